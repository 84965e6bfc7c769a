#include "kernels/simulator/machine.h"

#include <cstring>
#include <numeric>
#include <stdexcept>

namespace flashproof {

namespace simulator {

constinit thread_local Machine* running_machine = nullptr;

namespace {

/// Unwinds a thread of a block that has failed.
struct Abandoned {};

thread_local Fibers fibers;

/// Of what is the same, the text mostly is the same one too.
bool same_text(const char* a, const char* b) { return a == b || std::strcmp(a, b) == 0; }

bool same_place(const SourcePlace& a, const SourcePlace& b) { return a.line == b.line && same_text(a.file, b.file); }

std::string name_of_block(const std::array<int, 3>& block) {
  return "(" + std::to_string(block[0]) + "," + std::to_string(block[1]) + "," + std::to_string(block[2]) + ")";
}

}  // namespace

Machine::Machine(const SimulatedLaunch& launch, const std::function<void()>& body)
    : launch_(launch),
      body_(body),
      fibers_(fibers),
      draws_(launch.seed),
      shared_(clocks_, launch.shared_bytes, launch.threads / lanes_a_warp),
      global_(clocks_, launch.regions, launch.threads / lanes_a_warp),
      copies_(launch.threads) {
  fibers_.prepare(launch.threads, [this](int thread) { return run_thread(thread); });
}

void Machine::run() {
  const auto [x, y, z] = launch_.grid;
  std::vector<int> order(std::size_t(x) * y * z);
  std::iota(order.begin(), order.end(), 0);
  for (uint32 left = uint32(order.size()); left > 1; --left) std::swap(order[left - 1], order[draws_.below(left)]);
  for (const int block : order) {
    block_ = {block % x, block / x % y, block / x / y};
    run_block();
  }
}

void Machine::run_block() {
  clocks_.start_block(launch_.threads / lanes_a_warp, block_);
  warps_.assign(launch_.threads / lanes_a_warp, Warp{});
  fibers_.resume(choose_thread());
  if (!failure_) return;
  abandon_block();
  std::rethrow_exception(failure_);
}

/// Ends every thread that is somewhere inside the kernel, so that its objects are destroyed.
void Machine::abandon_block() {
  abandoned_ = true;
  for (int thread = 0; thread < launch_.threads; ++thread) {
    const Warp& warp = warps_[thread / lanes_a_warp];
    if ((warp.started & warp.live) >> thread % lanes_a_warp & 1) fibers_.resume(thread);
  }
}

/// The life of one thread; returns the fiber that runs next.
int Machine::run_thread(int thread) {
  thread_ = thread;
  Warp& warp = warps_[thread / lanes_a_warp];
  warp.started |= lane().lanes;
  int next = Fibers::host;
  try {
    body_();
    copies().finish(lane());
    next = leave_kernel();
  } catch (const Abandoned&) {
  } catch (SimulatedFault& fault) {
    fault.block = block_;
    fault.seed = launch_.seed;
    fault.message += "; block " + name_of_block(block_) + ", schedule " + std::to_string(launch_.seed);
    failure_ = std::current_exception();
  } catch (...) {
    failure_ = std::current_exception();
  }
  warp.live &= ~(1u << thread % lanes_a_warp);
  return next;
}

int Machine::leave_kernel() {
  const int index = thread_ / lanes_a_warp;
  Warp& warp = warps_[index];
  warp.live &= ~lane().lanes;
  if (warp.ready) return take_lane(index);
  if (warp.arrived)
    diverged(name_of(lane()) + " has left the kernel, and " + name_of({index, warp.arrived & -warp.arrived}) +
                 " of its warp waits at " + warp.operation + " " + place(warp.where),
             warp.where);
  return choose_thread();
}

/// One of the warp's lanes that can run; it no longer counts as ready.
inline int Machine::take_lane(int warp) {
  uint32& ready = warps_[warp].ready;
  const int lane = (std::countr_zero(std::rotr(ready, first_lane_)) + first_lane_) % lanes_a_warp;
  ready ^= 1u << lane;
  return warp * lanes_a_warp + lane;
}

inline void Machine::go_to(int thread) {
  const int self = thread_;
  fibers_.resume(thread);
  thread_ = self;
  if (abandoned_) throw Abandoned{};
}

/// Comes to a meeting of the warp. Null for a lane that finds the operation done when it goes on; the operands of all
/// lanes for the last one, which has to do it.
void* const* Machine::arrive(const char* operation, void* operand, const SourcePlace& where) {
  const int index = thread_ / lanes_a_warp;
  Warp& warp = warps_[index];
  if (!warp.operation) {
    warp.operation = operation;
    warp.where = where;
  } else if (!same_text(warp.operation, operation) || !same_place(warp.where, where)) {
    diverged(name_of(lane()) + " is at " + operation + " " + place(where) + ", and " +
                 name_of({index, warp.arrived & -warp.arrived}) + " of its warp waits at " + warp.operation + " " +
                 place(warp.where),
             where);
  }
  warp.operands[thread_ % lanes_a_warp] = operand;
  warp.arrived |= lane().lanes;
  if (warp.arrived == all_lanes) return warp.operands;
  if (!warp.ready)
    diverged(name_of(lane()) + " waits at " + operation + " " + place(where) + ", and " +
                 name_of({index, ~warp.live & (warp.live + 1)}) + " of its warp has left the kernel",
             where);
  go_to(take_lane(index));
  return nullptr;
}

/// After a meeting all lanes of the warp can run; which warp does is the schedule's choice now and then.
void Machine::depart() {
  Warp& warp = warps_[thread_ / lanes_a_warp];
  warp.operation = nullptr;
  warp.arrived = 0;
  warp.ready = all_lanes;
  if (warp.barrier < 0 && patience_ > 0) {
    --patience_;
    warp.ready ^= lane().lanes;
    return;
  }
  go_to(choose_thread());
}

void Machine::barrier(int id, int threads, bool everybody, const SourcePlace& where) {
  struct Operand {
    int id, threads;
  } mine{id, threads};
  meet(everybody ? "block_barrier" : "named_barrier", mine, where, [&](auto operand) {
    for (int lane = 0; lane < lanes_a_warp; ++lane)
      if (operand(lane).id != id || operand(lane).threads != threads)
        diverged("the lanes of warp " + std::to_string(thread_ / lanes_a_warp) +
                     " name different barriers or counts of threads at " + place(where),
                 where);
    if (id < 0 || id >= int(barriers_.size()) || threads <= 0 || threads % lanes_a_warp != 0)
      diverged("barrier " + std::to_string(id) + " for " + std::to_string(threads) + " threads at " + place(where) +
                   ": a barrier is 0 to 15 and takes whole warps",
               where);
    come_to_barrier(id, threads, everybody, where);
  });
}

void Machine::come_to_barrier(int id, int threads, bool everybody, const SourcePlace& where) {
  const int index = thread_ / lanes_a_warp;
  Barrier& barrier = barriers_[id];
  if (barrier.arrived == 0) {
    barrier = {threads, 0, everybody, 0, where, Clock{}};
  } else if (barrier.threads != threads) {
    diverged("warp " + std::to_string(index) + " comes to barrier " + std::to_string(id) + " for " +
                 std::to_string(threads) + " threads at " + place(where) + ", others for " +
                 std::to_string(barrier.threads) + " at " + place(barrier.where),
             where);
  } else if ((everybody || barrier.everybody) && !same_place(barrier.where, where)) {
    diverged("warp " + std::to_string(index) + " is at block_barrier " + place(where) + ", others wait at " +
                 place(barrier.where),
             where);
  }
  clocks_.arrive(index, barrier.clock);
  barrier.arrived += lanes_a_warp;
  barrier.warps |= 1u << index;
  warps_[index].barrier = id;
  if (barrier.arrived < barrier.threads) return;
  for (std::size_t w = 0; w < warps_.size(); ++w) {
    if (!(barrier.warps >> w & 1)) continue;
    clocks_.leave(int(w), barrier.clock);
    warps_[w].barrier = -1;
  }
  barrier.arrived = 0;
  patience_ = 0;
}

void Machine::warp_barrier(const SourcePlace& where) {
  struct Operand {
  } mine;
  meet("warp_barrier", mine, where, [this](auto) {
    Clock clock{};
    const int index = thread_ / lanes_a_warp;
    clocks_.arrive(index, clock);
    clocks_.leave(index, clock);
  });
}

/// The thread that runs next, whichever warp it is of; the host where every thread has left the kernel.
int Machine::choose_thread() {
  uint32 able = 0, live = 0;
  for (std::size_t w = 0; w < warps_.size(); ++w) {
    if (warps_[w].live) live |= 1u << w;
    if (warps_[w].barrier < 0 && warps_[w].ready) able |= 1u << w;
  }
  if (!live) return Fibers::host;
  if (!able) deadlocked();
  constexpr uint32 longest_patience = 64;
  patience_ = draws_.below(longest_patience);
  first_lane_ = int(draws_.below(lanes_a_warp));
  return take_lane(draws_.one_of(able));
}

void Machine::diverged(const std::string& what, const SourcePlace& where) const {
  throw SimulatedFault(FaultKind::divergence, what, where, {thread_});
}

void Machine::deadlocked() const {
  std::string what = "nobody can run:";
  std::vector<int> threads;
  SourcePlace where;
  for (std::size_t w = 0; w < warps_.size(); ++w) {
    const Warp& warp = warps_[w];
    what += (w ? ", warp " : " warp ") + std::to_string(w);
    if (warp.barrier < 0) {
      what += " has left the kernel";
      continue;
    }
    const Barrier& barrier = barriers_[warp.barrier];
    if (threads.empty()) where = barrier.where;
    threads.push_back(int(w) * lanes_a_warp);
    what += " waits at barrier " + std::to_string(warp.barrier) + " " + place(barrier.where) + " (" +
            std::to_string(barrier.arrived) + " of " + std::to_string(barrier.threads) + " threads have come)";
  }
  throw SimulatedFault(FaultKind::deadlock, what, where, std::move(threads));
}

}  // namespace simulator

void simulate(const SimulatedLaunch& launch, const std::function<void()>& body) {
  constexpr uint32 most_shared_bytes = 232448;  // 227 KiB, what compute capability 9.0 gives a block
  if (launch.threads <= 0 || launch.threads % 32 != 0 || launch.threads > 1024)
    throw std::invalid_argument("simulate: " + std::to_string(launch.threads) + " threads a block; 32, 64 ... 1024");
  if (launch.shared_bytes > most_shared_bytes)
    throw std::invalid_argument("simulate: " + std::to_string(launch.shared_bytes) +
                                " bytes of shared memory; at most " + std::to_string(most_shared_bytes));
  for (const int blocks : launch.grid)
    if (blocks <= 0) throw std::invalid_argument("simulate: an empty grid");
  if (simulator::running_machine) throw std::invalid_argument("simulate: called by a kernel that is being simulated");
  struct Running {
    explicit Running(simulator::Machine& machine) { simulator::running_machine = &machine; }
    ~Running() { simulator::running_machine = nullptr; }
  };
  simulator::Machine machine(launch, body);
  const Running running(machine);
  machine.run();
}

}  // namespace flashproof
