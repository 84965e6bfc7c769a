// The dynamic shared memory of one block: its bytes, checked for bounds, alignment, arrival and races.
#pragma once
#include <vector>

#include "kernels/simulator/shadow.h"

namespace flashproof::simulator {

class SharedMemory {
 public:
  /// Not 0, as on the chip, where the first bytes of a block belong to the system.
  static constexpr uint32 first_address = 1024;

  SharedMemory(const Clocks& clocks, uint32 bytes, int warps)
      : shadow_(clocks, "shared", Shadow::Life::block, bytes, 0, warps), bytes_(bytes), data_((bytes + 15) / 16) {}

  const void* read(uint32 address, int bytes, Actor actor, const SourcePlace& where) {
    const uint32 offset = checked(address, bytes, actor, where);
    shadow_.read(offset, bytes, actor, where);
    return at(offset);
  }

  void* write(uint32 address, int bytes, Actor actor, const SourcePlace& where) {
    const uint32 offset = checked(address, bytes, actor, where);
    shadow_.write(offset, bytes, actor, where);
    return at(offset);
  }

  /// The 16 bytes at `address` belong to a copy until end_copy; what it brings is put there at any time between.
  void* begin_copy(uint32 address, Actor actor, const SourcePlace& where) {
    const uint32 offset = checked(address, 16, actor, where);
    shadow_.begin_copy(offset, 16, actor, where);
    return at(offset);
  }

  void end_copy(uint32 address, Actor actor, const SourcePlace& where) {
    shadow_.end_copy(address - first_address, 16, actor, where);
  }

 private:
  struct alignas(16) Chunk {
    unsigned char bytes[16];
  };

  void* at(uint32 offset) { return reinterpret_cast<unsigned char*>(data_.data()) + offset; }

  uint32 checked(uint32 address, int bytes, Actor actor, const SourcePlace& where) const {
    const uint32 offset = address - first_address;
    if (address % uint32(bytes) != 0) misaligned(address, bytes, actor, where);
    if (offset > bytes_ || bytes_ - offset < uint32(bytes)) out_of_bounds(address, bytes, actor, where);
    return offset;
  }

  [[noreturn]] void misaligned(uint32 address, int bytes, Actor, const SourcePlace&) const;
  [[noreturn]] void out_of_bounds(uint32 address, int bytes, Actor, const SourcePlace&) const;

  Shadow shadow_;
  uint32 bytes_;
  std::vector<Chunk> data_;
};

}  // namespace flashproof::simulator
