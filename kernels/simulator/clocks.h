// Which accesses to memory come before which, whatever the schedule: vector clocks of warps.
//
// Memory is ordered by barriers alone (of the block, of named sets of warps, of a warp), and a barrier takes whole
// warps. So a warp's time is cut by its barriers into epochs, numbered upwards, and an access is (warp, lane, epoch).
// It comes before what another warp does now exactly if that warp has learnt of its epoch's end; lanes of one warp are
// ordered between epochs; a lane is in order with itself. (Lamport 1978; Flanagan and Freund, FastTrack, PLDI 2009.)
//
// Epochs go on counting from block to block: what an earlier block did has an epoch before `block_start()`.
#pragma once
#include <algorithm>
#include <array>
#include <vector>

#include "reference/formats.h"

namespace flashproof::simulator {

constexpr int lanes_a_warp = 32, most_warps = 32;

/// Entry w: the epochs of warp w that have ended, as far as is known, are those below it. In a warp's own clock its own
/// entry is its current epoch.
using Clock = std::array<uint32, most_warps>;

class Clocks {
 public:
  /// All warps of the next block, in their first epoch.
  void start_block(int warps, std::array<int, 3> block) {
    uint32 start = 1;
    for (const Clock& clock : clocks_) start = std::max(start, *std::max_element(clock.begin(), clock.end()) + 1);
    block_start_ = start;
    clocks_.assign(warps, Clock{});
    for (Clock& clock : clocks_) std::fill_n(clock.begin(), warps, start);
    blocks_.emplace_back(start, block);
  }

  uint32 now(int warp) const { return clocks_[warp][warp]; }
  uint32 block_start() const { return block_start_; }

  /// True if what `warp` did in `epoch` comes before what `observer` does now.
  bool ordered(int warp, uint32 epoch, int observer) const { return epoch < clocks_[observer][warp]; }

  /// The warp comes to a barrier whose clock is given: its epoch ends.
  void arrive(int warp, Clock& barrier) {
    const Clock& own = clocks_[warp];
    for (int w = 0; w < most_warps; ++w) barrier[w] = std::max(barrier[w], own[w]);
    barrier[warp] = ++clocks_[warp][warp];
  }

  /// The warp goes on from the barrier and knows of all that came to it.
  void leave(int warp, const Clock& barrier) {
    Clock& own = clocks_[warp];
    for (int w = 0; w < most_warps; ++w) own[w] = std::max(own[w], barrier[w]);
  }

  /// The block that was running in `epoch`.
  std::array<int, 3> block_of(uint32 epoch) const {
    const auto after = std::upper_bound(blocks_.begin(), blocks_.end(), epoch,
                                        [](uint32 e, const auto& block) { return e < block.first; });
    return std::prev(after)->second;
  }

 private:
  std::vector<Clock> clocks_;
  uint32 block_start_ = 0;
  std::vector<std::pair<uint32, std::array<int, 3>>> blocks_;  // first epoch, block; in the order of running
};

}  // namespace flashproof::simulator
