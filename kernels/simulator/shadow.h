// What is remembered of every byte of a memory, so that each access can be judged: its last write and its last reads.
//
// An access is judged against the last write and, if it is itself a write, against the last reads of every warp; with
// the clocks of clocks.h that finds a race in whatever order the two accesses came. An asynchronous copy owns its
// destination from begin_copy to end_copy: every access in between is a fault, and what it brought counts as written at
// its end.
//
// Neighbouring bytes that have always been accessed together share a cell. Cells begin with 16 bytes and are split at
// the first smaller access; accesses are aligned to their size, so that this is exact.
#pragma once
#include <bit>
#include <string>
#include <vector>

#include "kernels/simulator/clocks.h"
#include "kernels/simulator/fault.h"

namespace flashproof::simulator {

constexpr uint32 all_lanes = 0xffffffffu;

/// Who accesses: one lane, or a warp in one collective operation, whose lanes then count as having all taken part.
struct Actor {
  int warp;
  uint32 lanes;
};

class Shadow {
 public:
  enum class Life {
    block,  ///< shared memory: a new block finds nothing written
    grid    ///< global memory: blocks are not ordered, so that no block may touch what another one writes
  };

  /// `misplaced`: the first byte's address modulo 16.
  Shadow(const Clocks& clocks, std::string name, Life life, int64 bytes, int misplaced, int warps)
      : clocks_(&clocks),
        name_(std::move(name)),
        life_(life),
        misplaced_(misplaced),
        warps_(warps),
        slots_(warps + (life == Life::grid)),
        cells_((misplaced + bytes + 15) / 16),
        writes_(cells_) {}

  /// `bytes` is 1, 2, 4, 8 or 16, and divides the address; the bytes lie inside.
  void read(int64 offset, int bytes, Actor actor, const SourcePlace& where) {
    if (bytes >> shift_ == 0) split(bytes);
    if (reads_.empty()) reads_.resize(cells_ * slots_);
    const uint32 now = clocks_->now(actor.warp);
    for (int64 cell = first_cell(offset), end = first_cell(offset + bytes); cell < end; ++cell) {
      Reads& mine = reads_[cell * slots_ + actor.warp];
      if (mine.epoch == now && (mine.lanes & actor.lanes) == actor.lanes) continue;  // judged before
      judge_write(cell, actor, where, Access::read);
      if (life_ == Life::grid && earlier_block(mine.epoch)) reads_[cell * slots_ + warps_] = mine;
      mine = {where, now, mine.epoch == now ? mine.lanes | actor.lanes : actor.lanes};
    }
  }

  void write(int64 offset, int bytes, Actor actor, const SourcePlace& where) {
    put(offset, bytes, actor, where, Access::write);
  }

  /// From here on the bytes belong to a copy that the actor has issued.
  void begin_copy(int64 offset, int bytes, Actor actor, const SourcePlace& where) {
    put(offset, bytes, actor, where, Access::copy);
  }

  /// The actor has waited for its copy: the bytes count as written by it now.
  void end_copy(int64 offset, int bytes, Actor actor, const SourcePlace& where) {
    const uint32 now = clocks_->now(actor.warp);
    for (int64 cell = first_cell(offset), end = first_cell(offset + bytes); cell < end; ++cell)
      writes_[cell] = {where, now, actor.lanes, actor.warp, false};
  }

 private:
  enum class Access { read, write, copy };
  struct Write {
    SourcePlace where;
    uint32 epoch = 0;  // 0: never
    uint32 lanes = 0;
    int warp = 0;
    bool in_flight = false;
  };
  struct Reads {  // of one warp in the last epoch in which it read
    SourcePlace where;
    uint32 epoch = 0;
    uint32 lanes = 0;
  };

  int64 first_cell(int64 offset) const { return (offset + misplaced_) >> shift_; }

  bool earlier_block(uint32 epoch) const { return epoch != 0 && epoch < clocks_->block_start(); }

  static bool same_thread(uint32 lanes, uint32 others) { return std::has_single_bit(lanes | others); }

  void put(int64 offset, int bytes, Actor actor, const SourcePlace& where, Access access) {
    if (bytes >> shift_ == 0) split(bytes);
    const uint32 now = clocks_->now(actor.warp);
    for (int64 cell = first_cell(offset), end = first_cell(offset + bytes); cell < end; ++cell) {
      judge_write(cell, actor, where, access);
      if (!reads_.empty()) judge_reads(cell, actor, where, access);
      writes_[cell] = {where, now, actor.lanes, actor.warp, access == Access::copy};
    }
  }

  // The last write must come before this access.
  void judge_write(int64 cell, Actor actor, const SourcePlace& where, Access access) const {
    const Write& last = writes_[cell];
    const bool of_this_block = last.epoch >= clocks_->block_start();
    if (!of_this_block && life_ == Life::block) {
      if (access == Access::read) unwritten(cell, actor, where);
      return;
    }
    if (last.epoch == 0) return;
    if (last.in_flight) in_flight(cell, actor, where, access);
    if (!of_this_block || !(clocks_->ordered(last.warp, last.epoch, actor.warp) ||
                            (last.warp == actor.warp && same_thread(last.lanes, actor.lanes))))
      race(cell, actor, where, access, {last.warp, last.lanes}, last.epoch, last.where, "wrote");
  }

  // Every read must come before this write. The cell's own reads of the writing warp are then behind the write for
  // everybody and are forgotten, so that the next read is judged afresh.
  void judge_reads(int64 cell, Actor actor, const SourcePlace& where, Access access) {
    Reads* reads = &reads_[cell * slots_];
    for (int w = 0; w < slots_; ++w) {
      const Reads& last = reads[w];
      if (last.epoch == 0 || (life_ == Life::block && earlier_block(last.epoch))) continue;
      if (earlier_block(last.epoch) ||
          !(clocks_->ordered(w, last.epoch, actor.warp) || (w == actor.warp && same_thread(last.lanes, actor.lanes))))
        race(cell, actor, where, access, {w, last.lanes}, last.epoch, last.where, "read");
    }
    reads[actor.warp].epoch = 0;
  }

  void split(int bytes);
  std::string bytes_of(int64 cell) const;
  [[noreturn]] void unwritten(int64 cell, Actor, const SourcePlace&) const;
  [[noreturn]] void in_flight(int64 cell, Actor, const SourcePlace&, Access) const;
  [[noreturn]] void race(int64 cell, Actor, const SourcePlace&, Access, Actor other, uint32 epoch,
                         const SourcePlace& there, const char* did) const;

  const Clocks* clocks_;
  std::string name_;
  Life life_;
  int misplaced_;
  int warps_, slots_;  // slots of reads a cell: of each warp, and in global memory of some earlier block
  int shift_ = 4;      // log2 of the bytes of a cell
  int64 cells_;
  std::vector<Write> writes_;
  std::vector<Reads> reads_;
};

/// "thread 40", or "warp 1" where all its lanes act.
std::string name_of(Actor);

/// The first thread of the actor.
int thread_of(Actor);

}  // namespace flashproof::simulator
