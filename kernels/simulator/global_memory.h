// The global memory that a kernel may touch: the caller's buffers, checked for bounds, alignment and races between
// blocks.
#pragma once
#include <optional>
#include <vector>

#include "kernels/simulator/shadow.h"

namespace flashproof {

/// A buffer in the caller's memory. An access lies in one of them. They may touch, and one that is only read may
/// overlap others (slices of one tensor): what lies in a writable one is judged there, read or written.
struct GlobalRegion {
  const void* data;
  int64 bytes;
  const char* name;  ///< in messages: "K"
  bool writable;
};

namespace simulator {

class GlobalMemory {
 public:
  /// Throws std::invalid_argument for writable regions that overlap: a byte has one history.
  GlobalMemory(const Clocks&, const std::vector<GlobalRegion>&, int warps);

  /// The `bytes` bytes at `address` may be read by the actor.
  void read(const void* address, int bytes, Actor actor, const SourcePlace& where) {
    Region& region = find(address, bytes, actor, where);
    if (region.shadow) region.shadow->read(offset(region, address), bytes, actor, where);
  }

  void write(const void* address, int bytes, Actor actor, const SourcePlace& where) {
    Region& region = find(address, bytes, actor, where);
    if (!region.shadow) read_only(region.memory, address, bytes, actor, where);
    region.shadow->write(offset(region, address), bytes, actor, where);
  }

 private:
  struct Region {
    GlobalRegion memory;
    std::optional<Shadow> shadow;  // of writable regions
  };

  static int64 offset(const Region& region, const void* address) {
    return static_cast<const char*>(address) - static_cast<const char*>(region.memory.data);
  }

  static bool holds(const Region& region, const void* address, int bytes) {
    const int64 first = int64(uint64(address) - uint64(region.memory.data));
    return first >= 0 && first <= region.memory.bytes - bytes;
  }

  Region& find(const void* address, int bytes, Actor actor, const SourcePlace& where) {
    if (uint64(address) % uint64(bytes) != 0) misaligned(address, bytes, actor, where);
    for (Region& region : regions_)
      if (holds(region, address, bytes)) return region;
    out_of_bounds(address, bytes, actor, where);
  }

  [[noreturn]] void misaligned(const void*, int bytes, Actor, const SourcePlace&) const;
  [[noreturn]] void out_of_bounds(const void*, int bytes, Actor, const SourcePlace&) const;
  [[noreturn]] static void read_only(const GlobalRegion&, const void*, int bytes, Actor, const SourcePlace&);
  std::string position(const void* address) const;

  std::vector<Region> regions_;  // the writable ones first
};

}  // namespace simulator

}  // namespace flashproof
