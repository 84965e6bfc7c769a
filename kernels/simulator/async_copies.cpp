#include "kernels/simulator/async_copies.h"

#include <cstring>

namespace flashproof::simulator {

void AsyncCopies::deliver(const Copy& copy) {
  if (copy.from)
    std::memcpy(copy.to, copy.from, 16);
  else
    std::memset(copy.to, 0, 16);
}

void AsyncCopies::issue(SharedMemory& shared, GlobalMemory& global, Draws& draws, uint32 to, const void* from,
                        Actor actor, const SourcePlace& where) {
  if (from) global.read(from, 16, actor, where);
  void* destination = shared.begin_copy(to, actor, where);
  in_flight_.push_back({destination, from, to, group_, Arrival(draws.below(3)), where});
  if (in_flight_.back().arrival == Arrival::issue) deliver(in_flight_.back());
}

void AsyncCopies::commit() {
  for (const Copy& copy : in_flight_)
    if (copy.group == group_ && copy.arrival == Arrival::commit) deliver(copy);
  ++group_;
}

void AsyncCopies::wait(SharedMemory& shared, int pending, Actor actor) {
  std::size_t done = 0;
  while (done < in_flight_.size() && in_flight_[done].group + uint32(pending) < group_) {
    const Copy& copy = in_flight_[done++];
    if (copy.arrival == Arrival::completion) deliver(copy);
    shared.end_copy(copy.address, actor, copy.where);
  }
  in_flight_.erase(in_flight_.begin(), in_flight_.begin() + std::ptrdiff_t(done));
}

void AsyncCopies::finish(Actor actor) {
  if (in_flight_.empty()) return;
  const Copy& copy = in_flight_.front();
  throw SimulatedFault(
      FaultKind::unwaited_copy,
      name_of(actor) + " ends before the copy that it issued at " + place(copy.where) + " has been waited for",
      copy.where, {thread_of(actor)});
}

}  // namespace flashproof::simulator
