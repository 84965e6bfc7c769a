// The tensors of one call as physical memory: slots, strides, pages, red zones and poison, and what became of them.
//
// A logical tensor is packed, [tokens, heads, width] (reference/inputs.h). In memory its tokens stand on a physical
// axis [batch, slot]: dense slots, cu_seqlens, or pages; token t, head h, channel c is element
//
//     token[t] + h * head_stride + c          between the two red zones of its buffer.
//
// All other elements are outside the data: red zones, row gaps, slots past the used length, unused page slots. Those of
// inputs hold NaN or noise and may be read without effect; those of outputs hold poison. Poison is a signalling NaN
// with an odd payload that varies by element: arithmetic makes quiet NaNs only, so an element that still holds it was
// not written.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "fuzz/device_memory.h"
#include "kernels/flashproof_kernel.h"
#include "oracle/check.h"

namespace flashproof {

struct Buffer {
  const char* name = "";
  flashproof_tensor view = {};  ///< as the kernel sees it; data points into `memory`
  int64_t element_bytes = 0;
  int64_t elements = 0;  ///< between the red zones
  int64_t zone = 0;      ///< elements of each red zone
  std::vector<int64_t> token;
  int64_t heads = 1, head_stride = 0, width = 1;
  std::vector<uint8_t> image;  ///< bytes before the call, red zones included; empty = the tensor is absent
  std::vector<int32_t> host;   ///< host copy of an integer array
  Allocation memory;
  std::vector<uint8_t> after;  ///< bytes after the call, once read back
};

/// Index into MemoryPlan::buffers.
enum BufferId {
  buffer_q,
  buffer_k,
  buffer_v,
  buffer_d_o,
  buffer_bias,
  buffer_slopes,
  buffer_sink,
  buffer_q_descale,
  buffer_k_descale,
  buffer_v_descale,
  buffer_cu_seqlens_q,
  buffer_cu_seqlens_k,
  buffer_seqused_q,
  buffer_seqused_k,
  buffer_page_table,
  buffer_o,
  buffer_lse,
  buffer_dq,
  buffer_dk,
  buffer_dv,
  buffer_dsink,
  buffer_dbias,
  buffer_workspace,
  buffer_count
};

struct MemoryPlan {
  flashproof_memory memory = FLASHPROOF_HOST;
  flashproof_problem problem = {};
  flashproof_conventions conventions = FLASHPROOF_DEFAULT_CONVENTIONS;
  std::array<Buffer, buffer_count> buffers;
  std::vector<uint8_t> row_without_keys;  ///< [total_q, H]: sees no key, and there is no sink
};

/// Bytes that a plan may take on the host: the physical memory, or the process's limit where that is lower.
int64_t memory_budget();

/// UnavailableError when the problem's tensors alone are above memory_budget(): asked before its data are made.
void require_memory_for(const Problem&);

/// Lays the case out and places it in the kernel's memory. Throws UsageError for sizes that overflow and
/// UnavailableError for sizes above memory_budget(), both before anything is allocated.
MemoryPlan plan_memory(const Inputs&, const Placement&, const flashproof_kernel&, size_t workspace_bytes);

/// The calls on the plan's buffers; `plan` must outlive them. Backward reads o and lse and has no other output of
/// forward's.
flashproof_call forward_call(const MemoryPlan& plan);
flashproof_call backward_call(const MemoryPlan& plan);

/// Makes o and lse inputs of what follows: with the kernel's own values as read back, or with the given packed tensors.
void keep_forward(MemoryPlan&);
void give_forward(MemoryPlan&, const Tensor& o, const Tensor& lse, const Placement&);
/// Fills the workspace with other poison, as its content is arbitrary in each call.
void poison_workspace(MemoryPlan&, uint64_t seed);

/// Copies every buffer back after a call.
void read_back(MemoryPlan&);
/// Adds to the report what the last call did to its buffers; the first finding of each kind stays. `backward`: whether
/// the outputs to look at are the gradients, else O and L.
void inspect(const MemoryPlan&, const Problem&, bool backward, MemoryReport&);
/// The logical outputs that forward, and backward if `backward`, left in memory.
void gather(const MemoryPlan&, bool backward, Outputs&);

}  // namespace flashproof
