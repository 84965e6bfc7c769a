#!/usr/bin/env bash
# launcher_test.sh: the launcher over a project of one file, in a folder of its own: what changed is rebuilt whatever
# the change, what did not is not, and every way to fail ends with the documented exit code.
set -u
source_root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

check() {  # check WHAT EXPECTED ACTUAL
  if [ "$2" = "$3" ]; then echo "ok      $1"; else echo "FAILED  $1: expected '$2', got '$3'"; failed=1; fi
}

small_project() {
  mkdir -p "$work/p"/{reference,kernels,oracle,fuzz,tests}
  cp "$source_root/flashproof" "$work/p/"
  cat >"$work/p/CMakePresets.json" <<'JSON'
{"version": 6, "configurePresets": [{"name": "release", "generator": "Ninja", "binaryDir": "${sourceDir}/.build/release"}]}
JSON
  cat >"$work/p/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(small CXX)
enable_testing()
file(GLOB parts CONFIGURE_DEPENDS reference/*.cpp)
list(LENGTH parts count)
add_executable(flashproof fuzz/main.cpp ${parts})
target_compile_definitions(flashproof PRIVATE PARTS=${count})
add_custom_target(tests)
add_test(NAME right COMMAND true)
add_test(NAME wrong COMMAND test ! -e ${CMAKE_SOURCE_DIR}/tests/broken)
CMAKE
  program "one"
}

program() {  # program WORD: writes the program that prints WORD, the number of parts and its arguments
  cat >"$work/p/fuzz/main.cpp" <<CPP
#include <cstdio>
int main(int count, char** words) {
  std::printf("$1 %d", PARTS);
  for (int i = 1; i < count; ++i) std::printf(" <%s>", words[i]);
}
CPP
}

run() { "$work/p/flashproof" "$@" 2>"$work/err"; }
export CMAKE_PREFIX_PATH=$work/none  # no packages are asked for
unset FLASHPROOF_BUILD

small_project
check "first build, arguments pass through" "one 0 <fuzz> <a b>" "$(run fuzz 'a b')"
start=$(date +%s%N)
check "nothing changed" "one 0" "$(run)"
check "an unchanged tree starts in under 0.2 s" yes "$([ $(($(date +%s%N) - start)) -lt 200000000 ] && echo yes || echo no)"
check "an unchanged tree is not built" "" "$(cat "$work/err")"

cp -p "$work/p/fuzz/main.cpp" "$work/old.cpp"
sleep 0.05; program two
check "a changed source" "two 0" "$(run)"
echo 'int part() { return 0; }' >"$work/p/reference/part.cpp"
check "an added source" "two 1" "$(run)"
rm "$work/p/reference/part.cpp"
check "a deleted source" "two 0" "$(run)"
mv "$work/old.cpp" "$work/p/fuzz/main.cpp"
check "an older source moved into place" "one 0" "$(run)"
sed -i 's/PARTS=/PARTS=7/' "$work/p/CMakeLists.txt"
check "a changed CMake file" "one 70" "$(run)"

echo 'syntax error' >>"$work/p/fuzz/main.cpp"
run >/dev/null; check "a source that does not compile" 70 $?
check "its compiler output is shown" yes "$(grep -q 'error:' "$work/err" && echo yes)"
run >/dev/null; check "and again, not the old program" 70 $?
program three
check "the source mended" "three 70" "$(run)"

program four
(setsid "$work/p/flashproof" >/dev/null 2>&1 & echo $! >"$work/pid"); sleep 0.3; kill -9 -- "-$(cat "$work/pid")" 2>/dev/null
check "a build that was killed starts again" "four 70" "$(run)"

program five
for i in 1 2 3 4; do "$work/p/flashproof" >"$work/out$i" 2>/dev/null & pids[i]=$!; done
wait "${pids[@]}"
check "four launches at once" "five 70five 70five 70five 70" "$(cat "$work"/out?)"

cp -r "$work/p" "$work/moved"
check "a moved checkout is configured anew" "five 70" "$("$work/moved/flashproof" 2>/dev/null)"

last=$(run test | tail -1); check "test counts" "2 passed, 0 failed" "$last"
touch "$work/p/tests/broken"
out=$(run test); code=$?
check "a failing test ends with 1" 1 $code
check "and is counted" "1 passed, 1 failed" "$(tail -1 <<<"$out")"
out=$(run test -R nothing_of_this_name); code=$?
check "no test at all ends with 1" 1 $code

# A system that has no package installed: a dpkg-query that knows none.
mkdir "$work/bin"
printf '#!/bin/sh\nexit 1\n' >"$work/bin/dpkg-query"
printf '#!/bin/sh\nexit 1\n' >"$work/bin/sudo"
printf '#!/bin/sh\necho 1000\n' >"$work/bin/id"
chmod +x "$work/bin"/*
if [ -r /etc/debian_version ]; then
  program six
  (unset CMAKE_PREFIX_PATH; PATH="$work/bin:$PATH" run --no-install fuzz); check "--no-install" 69 $?
  check "and lists what is missing" yes "$(grep -q 'apt-get install .*libmpfi-dev' "$work/err" && echo yes)"
  (unset CMAKE_PREFIX_PATH; PATH="$work/bin:$PATH" run fuzz </dev/null); check "neither root nor sudo" 69 $?
  check "and lists what is missing" yes "$(grep -q 'As root: apt-get install .*libmpfi-dev' "$work/err" && echo yes)"
fi
exit $failed
