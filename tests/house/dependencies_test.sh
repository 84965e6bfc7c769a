#!/usr/bin/env bash
# dependencies_test.sh: each rule of dependencies.sh is seen to refuse a planted breach, and to pass without one.
set -u
rules=$(cd "$(dirname "$0")" && pwd)/dependencies.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# plant FILE CONTENT EXPECTED: a tree with this one file; EXPECTED is the breach that must be reported, or nothing.
plant() {
  rm -rf "$work/tree"
  mkdir -p "$work/tree/$(dirname "$1")"
  git -C "$work/tree" init -q
  printf '%s\n' "$2" >"$work/tree/$1"
  local got; got=$("$rules" "$work/tree"); local code=$?
  local expected_code=0; [ -z "$3" ] || expected_code=1
  if [ "$got" = "$3" ] && [ $code = $expected_code ]; then echo "ok      $1: ${3:-allowed}"
  else echo "FAILED  $1: expected '$3', got '$got' ($code)"; failed=1; fi
}

refused() { plant "$1" "#include \"$2\"" "$1:1: may not include \"$2\""; }
allowed() { plant "$1" "#include \"$2\"" ""; }

allowed reference/visible.cpp reference/visible.h
refused reference/visible.cpp kernels/flashproof_kernel.h
refused reference/visible.cpp visible.h
allowed kernels/cpu/flash2.cpp reference/flash2.h
refused kernels/cpu/flash2.cpp oracle/value.h
allowed kernels/ptx.cuh reference/philox.h
refused kernels/ptx.cuh reference/attention.h
allowed oracle/bits.cpp kernels/hardware/ex2.h
allowed oracle/bits.cpp kernels/flashproof_kernel.h
refused oracle/bits.cpp kernels/cpu/flash2.h
refused oracle/bits.cpp fuzz/campaign.h
allowed oracle/slow.cpp oracle/slow.h
refused oracle/slow.cpp oracle/value.h
refused oracle/slow.h reference/visible.h
allowed fuzz/campaign.cpp oracle/value.h
refused fuzz/campaign.cpp tests/fuzz/campaign_test.h
refused fuzz/campaign.cpp ../oracle/value.h
plant oracle/README.md 'Start at `README.md`; `oracle/<name>.h` is a pattern; see [the web](https://example.org).' ""
plant oracle/README.md 'Start at `value.h`.' 'oracle/README.md: names value.h, which does not exist'
plant README.md 'The bound stands in `oracle/bound.h`.' 'README.md: names oracle/bound.h, which does not exist'
plant README.md 'See [theorems](proofs/THEOREMS.md).' 'README.md: names proofs/THEOREMS.md, which does not exist'
plant scratch/a.txt '' 'scratch: does not belong at the top level'
exit $failed
