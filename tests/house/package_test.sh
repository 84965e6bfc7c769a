#!/usr/bin/env bash
# package_test.sh BUILD_DIR: installs the built project into a fresh prefix, builds and runs a consumer of the package,
# and compiles the kernel header as the C99 that it promises to be.
set -eu
build=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/prefix" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }

mkdir "$work/consumer"
cat >"$work/consumer/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(consumer CXX)
find_package(flashproof REQUIRED)
add_executable(consumer main.cpp)
target_link_libraries(consumer PRIVATE flashproof::flashproof)
CMAKE
# One query sees one key, so O is exactly v.
cat >"$work/consumer/main.cpp" <<'CPP'
#include <cmath>
#include <cstdio>

#include "oracle/value.h"

int main() {
  using namespace flashproof;
  const Inputs inputs = make_inputs(parse_case("bf16 b1 h1 q1 k1 d8 data=normal seed=1"));
  const Enclosure o = enclose(inputs, OutputId::o, 0, 1e-30);
  std::puts(std::abs(o.mid - inputs.v.at(0)) <= o.radius ? "right" : "wrong");
}
CPP
cmake -S "$work/consumer" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix"
cmake --build "$work/build"
[ "$("$work/build/consumer")" = right ]

echo '#include "kernels/flashproof_kernel.h"' >"$work/plugin.c"
cc -std=c99 -pedantic -Wall -Wextra -Werror -fsyntax-only -I"$work/prefix/include/flashproof" "$work/plugin.c"
echo "ok      the installed package"
