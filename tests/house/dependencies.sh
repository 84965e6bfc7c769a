#!/usr/bin/env bash
# dependencies.sh [ROOT]: the rules of the house that a compiler does not see. Prints each breach; ends with 1 if any.
#
#   includes   point one way: reference <- kernels <- oracle <- fuzz; nothing includes tests/. The oracle sees only the
#              ABI and the hardware models of kernels/. oracle/slow is a second witness and sees nothing of the first.
#              Device code sees kernels/ and the freestanding part of reference/.
#   READMEs    name only files that exist.
#   top level  holds the six folders and the files of the house, nothing else.
set -u
cd "${1:-$(dirname "$0")/../..}" || exit 70
breaches=$(mktemp)
trap 'rm -f "$breaches"' EXIT

# allow FILES_PATTERN INCLUDES_PATTERN: every project include of the tracked files that match must match too.
allow() {
  git ls-files -co --exclude-standard | grep -E '\.(h|cuh|cpp|cu)$' | grep -E "$1" | while read -r file; do
    [ -e "$file" ] || continue
    grep -nE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' "$file" | while IFS= read -r line; do
      included=${line#*\"}; included=${included%%\"*}
      [[ $included =~ $2 ]] || echo "$file:${line%%:*}: may not include \"$included\""
    done
  done >>"$breaches"
}

allow '^reference/'            '^reference/[^.]'
allow '^kernels/'              '^(reference|kernels)/[^.]'
allow '^kernels/.*\.cuh$'      '^(kernels/[^.]|reference/(formats|philox|recipe|arithmetic|visible)\.h$)'
allow '^oracle/'               '^(reference/[^.]|oracle/[^.]|kernels/flashproof_kernel\.h$|kernels/hardware/)'
allow '^oracle/slow\.'         '^oracle/slow\.'
allow '^fuzz/'                 '^(reference|kernels|oracle|fuzz)/[^.]'

# What a README names: link targets, and words in backquotes that are a path into a folder of the project or a file name
# with the ending of a source. A word with other characters than a path has (<name>, *) is a pattern.
git ls-files -co --exclude-standard | grep -E '(^|/)[A-Za-z_]+\.md$' | while read -r readme; do
  [ -e "$readme" ] || continue
  {
    grep -oE '\]\([^)#: ]+[)#]' "$readme" | sed -E 's/^\]\(//; s/[)#]$//'
    grep -oE '`[^` ]+`' "$readme" | tr -d '`' | grep -E '^\.?/?(reference|kernels|oracle|fuzz|proofs|tests|\.ci)/[A-Za-z0-9_./-]+$'
    grep -oE '`[A-Za-z0-9_-]+\.(h|cuh|cpp|cu|cmake|sh|py|md|v)`' "$readme" | tr -d '`'
  } | sort -u | while read -r name; do
    name=${name#./}
    [ -e "$(dirname "$readme")/$name" ] || [ -e "$name" ] || echo "$readme: names $name, which does not exist"
  done
done >>"$breaches"

git ls-files -co --exclude-standard | cut -d/ -f1 | sort -u |
  grep -vxE 'reference|kernels|oracle|fuzz|proofs|tests|CMakeLists\.txt|CMakePresets\.json|README\.md|LICENSE|CITATION\.cff|flashproof|\..*' |
  sed 's/$/: does not belong at the top level/' >>"$breaches"

cat "$breaches"
[ ! -s "$breaches" ]
