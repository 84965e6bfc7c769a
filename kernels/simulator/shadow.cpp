#include "kernels/simulator/shadow.h"

namespace flashproof::simulator {

int thread_of(Actor actor) { return actor.warp * lanes_a_warp + std::countr_zero(actor.lanes); }

std::string name_of(Actor actor) {
  if (actor.lanes == all_lanes) return "warp " + std::to_string(actor.warp);
  return "thread " + std::to_string(thread_of(actor));
}

static const char* does(int access) {
  constexpr const char* words[] = {"reads", "writes", "copies onto them"};
  return words[access];
}

/// Each cell becomes several of `bytes` bytes with the history of the whole.
void Shadow::split(int bytes) {
  const int parts_shift = shift_ - std::countr_zero(unsigned(bytes));
  const int64 cells = cells_ << parts_shift;
  std::vector<Write> writes(cells);
  for (int64 cell = 0; cell < cells; ++cell) writes[cell] = writes_[cell >> parts_shift];
  std::vector<Reads> reads(reads_.empty() ? 0 : cells * slots_);
  for (int64 cell = 0; cell < int64(reads.size()) / slots_; ++cell)
    std::copy_n(&reads_[(cell >> parts_shift) * slots_], slots_, &reads[cell * slots_]);
  writes_ = std::move(writes);
  reads_ = std::move(reads);
  cells_ = cells;
  shift_ -= parts_shift;
}

std::string Shadow::bytes_of(int64 cell) const {
  const int64 first = (cell << shift_) - misplaced_, end = ((cell + 1) << shift_) - misplaced_;
  const std::string range = std::to_string(first) + ".." + std::to_string(end - 1);
  return life_ == Life::block ? name_ + " bytes " + range : "bytes " + range + " of " + name_;
}

void Shadow::unwritten(int64 cell, Actor actor, const SourcePlace& where) const {
  throw SimulatedFault(FaultKind::unwritten,
                       name_of(actor) + " reads " + bytes_of(cell) + " at " + place(where) +
                           ", which no thread of the block has written",
                       where, {thread_of(actor)});
}

void Shadow::in_flight(int64 cell, Actor actor, const SourcePlace& where, Access access) const {
  const Write& copy = writes_[cell];
  const Actor issuer{copy.warp, copy.lanes};
  throw SimulatedFault(FaultKind::in_flight,
                       "on " + bytes_of(cell) + ": " + name_of(actor) + " " + does(int(access)) + " at " +
                           place(where) + ", and the copy that " + name_of(issuer) + " issued at " + place(copy.where) +
                           " has not been waited for",
                       where, {thread_of(actor), thread_of(issuer)});
}

void Shadow::race(int64 cell, Actor actor, const SourcePlace& where, Access access, Actor other, uint32 epoch,
                  const SourcePlace& there, const char* did) const {
  std::string what =
      "on " + bytes_of(cell) + ": " + name_of(actor) + " " + does(int(access)) + " at " + place(where) + ", ";
  if (epoch < clocks_->block_start()) {
    const std::array<int, 3> block = clocks_->block_of(epoch);
    what += "block (" + std::to_string(block[0]) + "," + std::to_string(block[1]) + "," + std::to_string(block[2]) +
            ") " + did + " at " + place(there) + ", blocks are not ordered";
  } else {
    what += name_of(other) + " " + did + " at " + place(there) + ", no barrier between";
  }
  throw SimulatedFault(FaultKind::race, what, where, {thread_of(actor), thread_of(other)});
}

}  // namespace flashproof::simulator
