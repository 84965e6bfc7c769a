#include "kernels/simulator/shared_memory.h"

namespace flashproof::simulator {

/// "thread 3: 16 bytes at shared byte 24 at flash2.cuh:7"; bytes are counted from the start of the block's dynamic
/// memory.
static std::string access(uint32 address, int bytes, Actor actor, const SourcePlace& where) {
  return name_of(actor) + " at " + place(where) + ": " + std::to_string(bytes) + " bytes at shared byte " +
         std::to_string(int64(address) - SharedMemory::first_address);
}

void SharedMemory::misaligned(uint32 address, int bytes, Actor actor, const SourcePlace& where) const {
  throw SimulatedFault(FaultKind::misaligned, access(address, bytes, actor, where), where, {thread_of(actor)});
}

void SharedMemory::out_of_bounds(uint32 address, int bytes, Actor actor, const SourcePlace& where) const {
  throw SimulatedFault(FaultKind::out_of_bounds,
                       access(address, bytes, actor, where) + ", where the block has " + std::to_string(bytes_), where,
                       {thread_of(actor)});
}

}  // namespace flashproof::simulator
