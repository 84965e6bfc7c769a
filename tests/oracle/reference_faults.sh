#!/usr/bin/env bash
# reference_faults.sh PROGRAMS: the slow oracle sees each fault that mutants/reference_faults plants in reference/.
# Runs agreement and every agreement_FAULT of the folder PROGRAMS over the same cases: the first must find no
# disagreement, each of the others at least one. Ends with 1 otherwise.
set -u
here=$(cd "$(dirname "$0")" && pwd)
programs=$1
failed=0

# expect CODE NAME PROGRAM
expect() {
  local output code
  output=$("$3" --outputs 50000 --pair-outputs 100 --seed 3 2>/dev/null)
  code=$?
  [ $code = "$1" ] || failed=1
  echo "$([ $code = "$1" ] && echo ok || echo "FAILED (exit $code)")  $2: $(grep '^disagreements' <<<"$output")"
  [ "$code" = 0 ] || sed -n '/data=/{p;n;p;q}' <<<"$output"  # the first example
}

expect 0 "no fault" "$programs/agreement"
for fault in "$here"/../mutants/reference_faults/*.patch; do
  name=$(basename "$fault" .patch)
  expect 1 "$name" "$programs/agreement_$name"
done
exit $failed
