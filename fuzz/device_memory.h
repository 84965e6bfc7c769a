// Memory and the stream that a kernel's call uses: this process's, or those of the first CUDA device.
//
// The CUDA driver is loaded when it is first needed (libcuda.so.1), so that one program runs with and without a GPU.
// Its device's primary context is used, which is the one that a plug-in's runtime API launches into.
#pragma once
#include <cstddef>
#include <string>

#include "kernels/flashproof_kernel.h"

namespace flashproof {

/// Whether a CUDA driver and a device are here; the reason if not.
bool cuda_available(std::string& reason);

/// The first device, which kernels run on. Throws UnavailableError where there is none.
struct CudaDevice {
  std::string name;                ///< "NVIDIA H200"
  std::string compute_capability;  ///< "9.0"
};
CudaDevice cuda_device();

/// The stream that calls enqueue on; NULL on the host. Throws UnavailableError without a device.
void* stream_of(flashproof_memory);
/// Waits for the stream. "", or the device's error: after one the context is lost, and this process can run nothing
/// more.
std::string synchronize(flashproof_memory);

/// One allocation of its own (no pool, which would hide writes past its end), 256-byte aligned.
class Allocation {
 public:
  Allocation() = default;
  /// Throws std::bad_alloc when there is not enough memory.
  Allocation(flashproof_memory, size_t bytes);
  ~Allocation();
  Allocation(Allocation&& other) noexcept;
  Allocation& operator=(Allocation&& other) noexcept;

  char* data() const { return data_; }  ///< an address of the kernel's memory
  size_t bytes() const { return bytes_; }
  void write(const void* from);  ///< bytes() bytes from host memory
  void read(void* to) const;     ///< bytes() bytes to host memory; the stream must have been waited for

 private:
  flashproof_memory memory_ = FLASHPROOF_HOST;
  char* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace flashproof
