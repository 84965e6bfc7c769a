#!/usr/bin/env bash
# mutants_apply.sh LIBRARIES: every patch of this folder still applies to the sources, the manifest lists each planted
# bug, and each library in LIBRARIES (the demo's at least) exports its entry alone and takes nothing of Flashproof's
# from outside.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
libraries=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

report() { if [ "$1" = 0 ]; then echo "ok      $2"; else echo "FAILED  $2"; failed=1; fi; }

for file in "$here"/*.patch "$here"/reference_faults/*.patch; do
  rm -rf "$work/tree"
  sed -n 's|^+++ b/\([^\t]*\).*|\1|p' "$file" | while read -r touched; do
    mkdir -p "$work/tree/$(dirname "$touched")" && cp "$root/$touched" "$work/tree/$touched"
  done
  patch -p1 --batch --forward --silent --directory="$work/tree" --input="$file" >"$work/log" 2>&1
  code=$?
  report $code "${file#"$here"/} applies"
  [ $code = 0 ] || cat "$work/log"
done

ls "$here" | sed -n 's/\.patch$//p' | sort >"$work/patches"
sed -n 's/.*"name": "\([^"]*\)".*/\1/p' "$here/manifest.json" | sort | diff "$work/patches" - >"$work/log"
report $? "manifest.json lists the patches, each once: $(tr '\n' ' ' <"$work/log")"

demo=$(grep -B2 '"demo": true' "$here/manifest.json" | sed -n 's/.*"name": "\([^"]*\)".*/\1/p')
[ -n "$demo" ] && [ -e "$libraries/$demo.so" ]
report $? "the demo '$demo' is built"
for library in "$libraries"/*.so; do
  [ "$(nm -D "$library" | grep flashproof | sed 's/^[0-9a-f]* *//')" = "T flashproof_kernel_entry" ] &&
    [ "$(nm -D --defined-only "$library" | wc -l)" = 1 ]
  report $? "$(basename "$library") exports its entry alone"
done
exit $failed
