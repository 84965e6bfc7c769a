// Arrays in the memory of the current CUDA device. For .cu files of the host's part.
#pragma once
#include <cuda_runtime.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "reference/errors.h"

namespace flashproof {

/// Throws UnavailableError where memory is short, else std::runtime_error: `what` failed.
inline void require_cuda(cudaError_t error, const std::string& what) {
  if (error != cudaSuccess) cudaGetLastError();  // takes it back, so that the next launch is not blamed for it
  if (error == cudaErrorMemoryAllocation)
    throw UnavailableError("the GPU's memory is too small for Flashproof's own arrays; another program may hold it");
  if (error != cudaSuccess) throw std::runtime_error(what + " on the GPU: " + cudaGetErrorString(error));
}

/// `count` elements, zeros at first. Copies wait for the kernels before them.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t count) : count_(count) {
    require_cuda(cudaMalloc(&data_, std::max<size_t>(count, 1) * sizeof(T)), "allocation");
    require_cuda(cudaMemset(data_, 0, count * sizeof(T)), "zeroing");
  }
  explicit DeviceArray(const std::vector<T>& from) : DeviceArray(from.size()) {
    require_cuda(cudaMemcpy(data_, from.data(), count_ * sizeof(T), cudaMemcpyHostToDevice), "copy");
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { cudaFree(data_); }

  T* data() const { return data_; }
  void read(std::vector<T>& to) const {
    to.resize(count_);
    require_cuda(cudaMemcpy(to.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost), "computation");
  }
  std::vector<T> read() const {
    std::vector<T> copy;
    read(copy);
    return copy;
  }

 private:
  T* data_ = nullptr;
  size_t count_ = 0;
};

}  // namespace flashproof
