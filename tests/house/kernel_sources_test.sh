#!/usr/bin/env bash
# kernel_sources_test.sh: each rule of kernel_sources.sh is seen to refuse a planted line, and to pass what it must.
set -u
rules=$(cd "$(dirname "$0")" && pwd)/kernel_sources.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# plant FILE LINE EXPECTED: a kernel with this line added to this file; EXPECTED is the breach that must be reported, or
# nothing.
plant() {
  rm -rf "$work/tree"
  mkdir -p "$work/tree/kernels/hardware" "$work/tree/kernels/simulator" "$work/tree/reference"
  git -C "$work/tree" init -q
  cd "$work/tree" || exit 70
  echo 'template <class T> T load_global(const T* from) { return *from; }' >kernels/ptx.cuh
  printf '%s\n' 'struct Call {' '  const float* data;  // rows, data[row]' '  int pages[4];' '};' >kernels/tiled_call.h
  printf '%s\n' '#include "kernels/ptx.cuh"' '#include "kernels/tiled_call.h"' >kernels/tiled.cuh
  echo 'int kept(const int* p) { return *p; }' >kernels/sequences.cuh
  echo '#include <cstdio>' >kernels/host.h
  printf '%s\n' "$2" >>"$1"
  local got; got=$("$rules" "$work/tree"); local code=$?
  local expected_code=0; [ -z "$3" ] || expected_code=1
  if [ "$got" = "$3" ] && [ $code = $expected_code ]; then echo "ok      $2: ${3:-allowed}"
  else echo "FAILED  $1: $2: expected '$3', got '$got' ($code)"; failed=1; fi
}
refused() { plant kernels/tiled.cuh "$2" "kernels/tiled.cuh:3: $1: $3"; }
allowed() { plant kernels/tiled.cuh "$1" ""; }

refused memory 'float x = *pointer;' '= *p'
refused memory 'float f(float* p) { return *p; }' 'return *p'
refused memory '  *(call.data + 3) = 0;' '  *('
refused memory 'float f(float* p, int i) { return p[i]; }' 'p['
refused memory 'float f(const float* const p) { return p[0]; }' 'p['
refused memory 'float x = call.data[7];' '.data['
refused memory 'float f(const float* p) { float y[2] = {p[0], 1}; return y[0]; }' 'p['
refused memory 'float x = (call.data + 7)[0];' ')['
refused memory 'float x = row_of(call)[0];' ')['
refused memory 'int f(const Call* other) { return other->pages[0]; }' 'other->'
refused memory '__shared__ float tile[64];' '__shared__'
refused hardware 'int lane = threadIdx.x % 32;' 'threadIdx'
refused hardware 'float x = __ldg(call.data);' '__ldg'
refused hardware 'void f(float* p) { atomicAdd(p, 1); }' 'atomicAdd'
refused asm 'void f() { asm volatile("bar.sync 0;"); }' 'asm'
refused simulator 'void f();  // as the simulator does it' 'named'
refused library '#include <cuda_bf16.h>' '<cuda_bf16.h>'
plant kernels/tiled_call.h 'float g(const Call& c) { return c.data[0]; }' 'kernels/tiled_call.h:5: memory: .data['
plant kernels/hardware/ex2.h 'void f() { asm("ex2.approx.ftz.f32;"); }' 'kernels/hardware/ex2.h:1: asm: asm'
plant kernels/ptx.cuh '#include <cstdint>' 'kernels/ptx.cuh:2: library: <cstdint>'

allowed 'float x = load_global(call.data + 7) * scale;'
allowed 'int f(const Call& call) { return call.pages[2] * 3; }'
allowed 'float f(const float (&p)[4], int data) { float from[2] = {}; return p[0] + from[1] * data; }'
allowed 'float f() { float p[4], data[2] = {}; return p[0] + data[1]; }'
allowed 'const char* text = "a * b[0], *p, asm";  // *p and p[0], by threadIdx'
allowed 'template <class T> __global__ void __launch_bounds__(128) kernel(const __grid_constant__ Call call) {}'
allowed 'constexpr float largest = __builtin_bit_cast(float, 0x7f7fffffu);'
plant kernels/ptx.cuh 'void f() { asm("bar.sync 0;"); }  // the simulator has its own' ''
plant kernels/sequences.cuh 'int f(const int* p) { return p[threadIdx.x]; }' ''
plant kernels/simulator/machine.h '#include <vector>' ''
exit $failed
