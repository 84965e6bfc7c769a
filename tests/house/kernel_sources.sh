#!/usr/bin/env bash
# kernel_sources.sh [ROOT]: what a compiler does not see in device code. Prints each breach; ends with 1 if any.
#
# Device headers: every .cuh in kernels/, the models of kernels/hardware, and the headers that these include.
#   library    they include no library header: NVRTC has none.
#   asm        stands in ptx.cuh alone, but for certify_wgmma.cuh, which no kernel has part in.
#   simulator  is named by ptx.cuh alone: the same text runs on both machines.
# Kernel files: the .cuh of tiled kernels and the headers of kernels/ that they include; not ptx.cuh and what it needs,
# not the plain CUDA of standard.cu (score_rule, sequences, tile_product). They touch memory through ptx.cuh's loads,
# stores and copies alone, so that the simulated multiprocessor sees every access:
#   memory     no unary *; no [] or -> on a name that any kernel file declares as a pointer, nor on what a parenthesis
#              gives; no __shared__.
#   hardware   no variable or function of CUDA's own: threadIdx, atomicAdd, __ldg. Allowed are __global__ with its
#              __launch_bounds__ and __grid_constant__, and the host compiler's __builtin_ functions.
set -u
cd "${1:-$(dirname "$0")/../..}" || exit 70
breaches=$(mktemp)
trap 'rm -f "$breaches"' EXIT

# closure FILE...: the files and all that they include by quotes, but the simulator.
closure() {
  local waiting=("$@") seen=" " file
  while [ ${#waiting[@]} -gt 0 ]; do
    file=${waiting[0]} waiting=("${waiting[@]:1}")
    [[ $seen != *" $file "* && $file != kernels/simulator/* && -e $file ]] || continue
    seen+="$file "
    mapfile -t -O ${#waiting[@]} waiting < <(sed -nE 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*"([^"]*)".*/\1/p' "$file")
  done
  tr ' ' '\n' <<<"$seen" | sed '/^$/d'
}

tracked() { git ls-files -co --exclude-standard "$@"; }
plain='kernels/(score_rule|sequences|tile_product|hardware/certify_wgmma)\.cuh'
mapfile -t device < <(closure $(tracked 'kernels/*.cuh' 'kernels/hardware/*.h' | grep -vxE "$plain|kernels/hardware/(certif(icate|y|y_device)|device_array)\.h"))
mapfile -t kernels < <(closure $(tracked 'kernels/*.cuh' | grep -vxE "$plain|kernels/ptx\.cuh") |
  grep -xE 'kernels/[^/]*' | grep -vxE 'kernels/(ptx\.cuh|instruction_types\.h)')

# code FILE: its text without comments, string and character literals, line by line.
code() {
  perl -0777 -pe 's{//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'"'"'(?:\\.|[^'"'"'\\\n])+'"'"'}{$a = $&; $a =~ s/[^\n]//g; $a}gse' "$1"
}

# refuse FILE WHAT PATTERN [EXCEPT]: each line of the code that matches, once what matches EXCEPT is taken out.
refuse() {
  code "$1" | perl -ne 'BEGIN { ($file, $what, $pattern, $except) = splice @ARGV, 0, 4 }
    s/$except//g if length $except; print "$file:$.: $what: $&\n" if /$pattern/' "$1" "$2" "$3" "${4:-}"
}

for file in "${device[@]}"; do
  grep -nE '^[[:space:]]*#[[:space:]]*include[[:space:]]*<' "$file" | sed -E "s|^([0-9]+):.*(<.*>).*|$file:\1: library: \2|"
  [ "$file" = kernels/ptx.cuh ] && continue
  refuse "$file" asm '\b(asm|__asm__)\b'
  grep -niwE 'simulators?|simulated' "$file" | sed -E "s|^([0-9]+):.*|$file:\1: simulator: named|"
done >"$breaches"

# declared FILE PATTERN: names before which the pattern stands, one a line. A * of a declaration follows its type at
# once, as clang-format writes it.
declared() { code "$1" | grep -oP "$2" | sort -u; }
pointers=$(for file in "${kernels[@]}"; do declared "$file" '[\w>]\*\s+(?:const\s+)?\K[A-Za-z_]\w*(?=\s*[;,)=\[{])'; done | sort -u)
for file in "${kernels[@]}"; do
  # A name of a pointer elsewhere may be an array's here; as a member, after a point, it may not.
  arrays=$({
    declared "$file" '(?:\b(?!return\b)\w+>?\s+|\(&)\K[A-Za-z_]\w*(?=\)?\[)'
    declared "$file" '(?:\b(?!return\b)\w+>?)\s+\w+\[[^;={(]*,\s*\K[A-Za-z_]\w*(?=\[)'  # the second one of a declaration
  })
  members=$(paste -sd'|' <<<"$pointers")
  names=$(grep -vxF "${arrays:-none}" <<<"$pointers" | paste -sd'|')
  refuse "$file" memory '(^|[(,=\[{;!&|<+\-*/?:~]|\breturn\b)\s*\*+\s*[A-Za-z_(]'
  refuse "$file" memory "(\\.(${members:-none})|(?<![.\\w])(${names:-none}))\\s*(\\[|->)"
  refuse "$file" memory '\)\s*(\[|->)' '\(&\w*\)\['
  refuse "$file" memory '\b__shared__\b'
  refuse "$file" hardware '\b(__(?!builtin_|CUDACC)\w+|threadIdx|blockIdx|blockDim|gridDim|warpSize|atomic[A-Z]\w*|memcpy|memset)\b' \
    '\b(__global__|__launch_bounds__|__grid_constant__|__shared__)\b'
done >>"$breaches"

cat "$breaches"
[ ! -s "$breaches" ]
