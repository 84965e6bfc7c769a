#!/usr/bin/env bash
# bundle_test.sh PROGRAM: a program built with FLASHPROOF_STATIC runs on a machine that has glibc, a GPU driver and
# nothing else: it asks the loader for glibc's libraries alone, is under 40 MiB, and starts. Alone in a folder, `fuzz`
# runs its campaign, says that there is no planted bug to show the alarm on, and ends with 2: not with 0, as if the
# alarm had passed.
set -u
program=$1
failed=0

foreign=$(objdump -p "$program" | awk '$1 == "NEEDED" { print $2 }' | grep -vxE '(libc|libm|libdl|librt|libpthread|ld-linux-x86-64)\.so\.[0-9]+')
[ -z "$foreign" ] || { echo "FAILED  needs more than glibc: $foreign"; failed=1; }

size=$(stat -c %s "$program")
[ "$size" -lt $((40 << 20)) ] || { echo "FAILED  $size bytes, over 40 MiB"; failed=1; }

"$program" --version || { echo "FAILED  does not start"; failed=1; }

alone=$(mktemp -d)
trap 'rm -rf "$alone"' EXIT
cp "$program" "$alone/flashproof"
page=$(cd "$alone" && timeout 180 ./flashproof fuzz 2>/dev/null)
code=$?
[ $code = 2 ] || { echo "FAILED  fuzz without the planted bug ends with $code, not 2"; failed=1; }
grep -q 'no finding in' <<<"$page" && grep -q 'THE ALARM WAS NOT SHOWN' <<<"$page" ||
  { echo "FAILED  fuzz without the planted bug says: $page"; failed=1; }
[ $failed = 0 ] && echo "ok      $program: $((size >> 10)) KiB, glibc alone"
exit $failed
