// The launches, one element a thread; see device_numbers.h.
#include "tests/kernels/device_numbers.h"

#include <stdexcept>

#include "kernels/ptx.cuh"

namespace flashproof::on_device {
namespace {

void require(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(error));
}

template <class T>
struct Buffer {
  T* data = nullptr;
  explicit Buffer(size_t count) { require(cudaMalloc(&data, count * sizeof(T))); }
  ~Buffer() { cudaFree(data); }
};

template <class Function, class In, class Out>
__global__ void map_kernel(Function function, const In* in, Out* out, size_t count) {
  const size_t n = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (n < count) out[n] = function(in[n]);
}

template <class Out, class Function, class In>
std::vector<Out> map(Function function, const std::vector<In>& in) {
  constexpr unsigned threads = 128;
  const Buffer<In> from(in.size());
  const Buffer<Out> to(in.size());
  std::vector<Out> out(in.size());
  require(cudaMemcpy(from.data, in.data(), in.size() * sizeof(In), cudaMemcpyHostToDevice));
  map_kernel<<<unsigned((in.size() + threads - 1) / threads), threads>>>(function, from.data, to.data, in.size());
  require(cudaGetLastError());
  require(cudaMemcpy(out.data(), to.data, in.size() * sizeof(Out), cudaMemcpyDeviceToHost));
  return out;
}

struct Element {
  __device__ uint32 operator()(const ElementQuery& e) const {
    return flashproof::element(e.recipe, e.operand, e.context, e.at.b, e.at.position, e.at.head, e.at.channel);
  }
};
struct Encode {
  DType dtype;
  __device__ uint32 operator()(double x) const { return flashproof::encode(dtype, x); }
};
struct Decode {
  DType dtype;
  __device__ double operator()(uint32 bits) const { return flashproof::decode(dtype, bits); }
};
template <class Number>
struct Convert {
  __device__ uint32 operator()(float x) const { return from_fp32<Number>(x).bits; }
};
template <class Number>
struct Widen {
  __device__ float operator()(uint32 bits) const { return to_fp32(Number{static_cast<decltype(Number::bits)>(bits)}); }
};

}  // namespace

std::string device_name(std::string& reason) {
  cudaDeviceProp properties;
  const cudaError_t error = cudaGetDeviceProperties(&properties, 0);
  if (error == cudaSuccess) return properties.name;
  return reason = cudaGetErrorString(error), "";
}

std::vector<uint32> element(const std::vector<ElementQuery>& queries) { return map<uint32>(Element{}, queries); }
std::vector<uint32> encode(DType dtype, const std::vector<double>& x) { return map<uint32>(Encode{dtype}, x); }
std::vector<double> decode(DType dtype, const std::vector<uint32>& codes) { return map<double>(Decode{dtype}, codes); }

std::vector<uint32> convert(DType dtype, const std::vector<float>& x) {
  if (dtype == DType::e4m3) return map<uint32>(Convert<E4m3>{}, x);
  return dtype == DType::bf16 ? map<uint32>(Convert<Bf16>{}, x) : map<uint32>(Convert<Fp16>{}, x);
}
std::vector<float> widen(DType dtype, const std::vector<uint32>& codes) {
  if (dtype == DType::e4m3) return map<float>(Widen<E4m3>{}, codes);
  if (dtype == DType::e5m2) return map<float>(Widen<E5m2>{}, codes);
  return dtype == DType::bf16 ? map<float>(Widen<Bf16>{}, codes) : map<float>(Widen<Fp16>{}, codes);
}

}  // namespace flashproof::on_device
