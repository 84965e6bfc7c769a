#!/usr/bin/env bash
# bundle_test.sh PROGRAM: a program built with FLASHPROOF_STATIC runs on a machine that has glibc, a GPU driver and nothing
# else: it asks the loader for glibc's libraries alone, is under 40 MiB, and starts.
set -u
program=$1
failed=0

foreign=$(objdump -p "$program" | awk '$1 == "NEEDED" { print $2 }' | grep -vxE '(libc|libm|libdl|librt|libpthread|ld-linux-x86-64)\.so\.[0-9]+')
[ -z "$foreign" ] || { echo "FAILED  needs more than glibc: $foreign"; failed=1; }

size=$(stat -c %s "$program")
[ "$size" -lt $((40 << 20)) ] || { echo "FAILED  $size bytes, over 40 MiB"; failed=1; }

"$program" --version || { echo "FAILED  does not start"; failed=1; }
[ $failed = 0 ] && echo "ok      $program: $((size >> 10)) KiB, glibc alone"
exit $failed
