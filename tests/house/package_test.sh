#!/usr/bin/env bash
# package_test.sh BUILD_DIR: installs the built project into a fresh prefix and builds and runs a consumer against it.
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
cat >"$work/consumer/main.cpp" <<'CPP'
#include <cstdio>

int main() { std::puts("linked"); }
CPP
cmake -S "$work/consumer" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix"
cmake --build "$work/build"
[ "$("$work/build/consumer")" = linked ]
