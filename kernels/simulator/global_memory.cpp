#include "kernels/simulator/global_memory.h"

#include <algorithm>
#include <stdexcept>

namespace flashproof::simulator {

static bool overlap(const GlobalRegion& a, const GlobalRegion& b) {
  const uint64 first = std::max(uint64(a.data), uint64(b.data));
  return first < std::min(uint64(a.data) + uint64(a.bytes), uint64(b.data) + uint64(b.bytes));
}

GlobalMemory::GlobalMemory(const Clocks& clocks, const std::vector<GlobalRegion>& regions, int warps) {
  for (const GlobalRegion& region : regions) {
    if (!region.writable) continue;
    for (const Region& other : regions_)
      if (overlap(region, other.memory))
        throw std::invalid_argument(std::string("simulate: ") + other.memory.name + " and " + region.name +
                                    " are both written and overlap");
    regions_.push_back(
        {region, Shadow(clocks, region.name, Shadow::Life::grid, region.bytes, int(uint64(region.data) % 16), warps)});
  }
  for (const GlobalRegion& region : regions)
    if (!region.writable) regions_.push_back({region, std::nullopt});
}

static std::string access(int bytes, Actor actor, const SourcePlace& where) {
  return name_of(actor) + " at " + place(where) + ": " + std::to_string(bytes) + " bytes ";
}

/// The address in words that are the same in every run: "at byte 130 of K, which has 128", of the nearest region.
std::string GlobalMemory::position(const void* address) const {
  const Region* nearest = nullptr;
  uint64 least = ~0ul;
  for (const Region& region : regions_) {
    const uint64 start = uint64(region.memory.data), end = start + uint64(region.memory.bytes);
    const uint64 distance = uint64(address) < start ? start - uint64(address)
                            : uint64(address) < end ? 0
                                                    : uint64(address) - end;
    if (distance < least) least = distance, nearest = &region;
  }
  constexpr uint64 far = 1ul << 20;  // where the distance says more about the allocator than about the kernel
  if (!nearest || least > far) return "far from every buffer";
  return "at byte " + std::to_string(int64(uint64(address) - uint64(nearest->memory.data))) + " of " +
         nearest->memory.name + ", which has " + std::to_string(nearest->memory.bytes);
}

void GlobalMemory::misaligned(const void* address, int bytes, Actor actor, const SourcePlace& where) const {
  throw SimulatedFault(FaultKind::misaligned, access(bytes, actor, where) + position(address), where,
                       {thread_of(actor)});
}

void GlobalMemory::out_of_bounds(const void* address, int bytes, Actor actor, const SourcePlace& where) const {
  throw SimulatedFault(FaultKind::out_of_bounds, access(bytes, actor, where) + position(address), where,
                       {thread_of(actor)});
}

void GlobalMemory::read_only(const GlobalRegion& region, const void* address, int bytes, Actor actor,
                             const SourcePlace& where) {
  const int64 byte = int64(uint64(address) - uint64(region.data));
  throw SimulatedFault(FaultKind::read_only,
                       access(bytes, actor, where) + "written at byte " + std::to_string(byte) + " of " + region.name +
                           ", which the kernel only reads",
                       where, {thread_of(actor)});
}

}  // namespace flashproof::simulator
