// The simulated multiprocessor: right kernels run clean under every schedule, and each planted fault is found, by its
// kind and at its line, and found again from its seed.
#include "kernels/simulator/simulate.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <thread>

#include "kernels/ptx.cuh"

namespace flashproof {
namespace {

constexpr int schedules = 100;

/// The text of a line of this file.
std::string source_line(int line) {
  std::ifstream source(__FILE__);
  std::string text;
  for (int i = 0; i < line; ++i) std::getline(source, text);
  return text;
}

/// A fault that may come of a planted one: its kind, and the comment that ends the line of the kernel it names.
struct Expected {
  FaultKind kind;
  const char* comment;
};

void expect_clean(SimulatedLaunch launch, const std::function<void()>& kernel) {
  for (launch.seed = 1; launch.seed <= schedules; ++launch.seed)
    ASSERT_NO_THROW(simulate(launch, kernel)) << launch.seed;
}

std::string message_of(const SimulatedLaunch& launch, const std::function<void()>& kernel) {
  try {
    simulate(launch, kernel);
  } catch (const SimulatedFault& fault) {
    return fault.message;
  }
  return "clean";
}

/// Every schedule ends with one of the expected faults, and again with the same message.
void expect_fault(SimulatedLaunch launch, const std::vector<Expected>& expected, const std::function<void()>& kernel) {
  for (launch.seed = 1; launch.seed <= schedules; ++launch.seed) {
    try {
      simulate(launch, kernel);
      FAIL() << "no fault under schedule " << launch.seed;
    } catch (const SimulatedFault& fault) {
      bool found = false;
      for (const Expected& e : expected)
        found = found || (fault.kind == e.kind && source_line(fault.line).ends_with(e.comment));
      ASSERT_TRUE(found) << fault.message << "\n" << source_line(fault.line);
      EXPECT_EQ(fault.file, "simulator_test.cpp");
      EXPECT_EQ(fault.seed, launch.seed);
      EXPECT_EQ(message_of(launch, kernel), fault.message);
    }
  }
}

// ---- tiles by asynchronous copies, two stages

constexpr int tile_words = 256, tiles = 5, copy_threads = 64;  // a thread brings 16 bytes

enum class CopyFault { none, no_barrier_after_wait, no_barrier_before_copy, wait_one_short, no_commit, no_last_wait };

/// out = in, each tile backwards, through shared memory. A copy into a stage begins when all have read its last tile.
void copy_tiles(CopyFault planted, const uint32* in, uint32* out) {
  const int t = thread_index();
  const auto stage = [](int tile) { return dynamic_shared() + uint32(tile % 2 * tile_words * 4); };
  const auto fetch = [&](int tile) {
    if (tile < tiles) copy_async_16(stage(tile) + uint32(t * 16), in + tile * tile_words + t * 4, true);  // copies
    if (planted != CopyFault::no_commit) copy_async_commit();
  };
  fetch(0);
  for (int tile = 0; tile < tiles; ++tile) {
    fetch(tile + 1);
    if (planted == CopyFault::wait_one_short || (planted == CopyFault::no_last_wait && tile == tiles - 1))
      copy_async_wait<2>();
    else
      copy_async_wait<1>();
    if (planted != CopyFault::no_barrier_after_wait) block_barrier();
    if (planted == CopyFault::no_last_wait && tile == tiles - 1) break;
    const Words4 x = load_shared<Words4>(stage(tile) + uint32(copy_threads - 1 - t) * 16);  // reads
    store_global(reinterpret_cast<Words4*>(out + tile * tile_words + t * 4), x);
    if (planted != CopyFault::no_barrier_before_copy) block_barrier();
  }
}

struct CopyBuffers {
  std::vector<uint32> in = std::vector<uint32>(tiles * tile_words), out = std::vector<uint32>(tiles * tile_words);
  CopyBuffers() {
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = uint32(i * 2654435761u);
  }
  SimulatedLaunch launch() const {
    SimulatedLaunch launch;
    launch.threads = copy_threads;
    launch.shared_bytes = 2 * tile_words * 4;
    launch.regions = {{in.data(), int64(in.size() * 4), "in", false}, {out.data(), int64(out.size() * 4), "out", true}};
    return launch;
  }
  std::function<void()> kernel(CopyFault planted) {
    return [this, planted] { copy_tiles(planted, in.data(), out.data()); };
  }
};

TEST(Simulator, CopiesTilesUnderEverySchedule) {
  CopyBuffers buffers;
  expect_clean(buffers.launch(), buffers.kernel(CopyFault::none));
  for (int tile = 0; tile < tiles; ++tile)
    for (int t = 0; t < copy_threads; ++t)
      for (int i = 0; i < 4; ++i)
        ASSERT_EQ(buffers.out[tile * tile_words + t * 4 + i],
                  buffers.in[tile * tile_words + (copy_threads - 1 - t) * 4 + i]);
}

TEST(Simulator, FindsAMissingBarrierAfterTheWait) {
  // The other thread has waited for its copy or not, or not even issued it, as the schedule has it.
  CopyBuffers buffers;
  expect_fault(buffers.launch(),
               {{FaultKind::race, "// reads"}, {FaultKind::in_flight, "// reads"}, {FaultKind::unwritten, "// reads"}},
               buffers.kernel(CopyFault::no_barrier_after_wait));
}

TEST(Simulator, FindsACopyOntoABufferInUse) {
  CopyBuffers buffers;
  expect_fault(buffers.launch(), {{FaultKind::race, "// copies"}, {FaultKind::in_flight, "// reads"}},
               buffers.kernel(CopyFault::no_barrier_before_copy));
}

TEST(Simulator, FindsAWaitOneShort) {
  CopyBuffers buffers;
  expect_fault(buffers.launch(), {{FaultKind::in_flight, "// reads"}}, buffers.kernel(CopyFault::wait_one_short));
}

TEST(Simulator, FindsAMissingCommit) {
  CopyBuffers buffers;
  expect_fault(buffers.launch(), {{FaultKind::in_flight, "// reads"}}, buffers.kernel(CopyFault::no_commit));
}

TEST(Simulator, FindsACopyThatNobodyWaitsFor) {
  CopyBuffers buffers;
  expect_fault(buffers.launch(), {{FaultKind::unwaited_copy, "// copies"}}, buffers.kernel(CopyFault::no_last_wait));
}

TEST(Simulator, BringsZerosWhereNothingIsPresentAndLooksAtNoSource) {
  SimulatedLaunch launch;
  launch.shared_bytes = 32 * 16;
  expect_clean(launch, [] {
    const SharedAddress own = dynamic_shared() + uint32(thread_index()) * 16;
    copy_async_16(own, nullptr, false);
    copy_async_commit();
    copy_async_wait<0>();
    const Words4 x = load_shared<Words4>(own);
    if ((x.x | x.y | x.z | x.w) != 0) throw std::logic_error("not zeros");
  });
}

// ---- a reduction by exchanges and shared memory

constexpr int sum_threads = 128;

enum class SumFault { none, no_barrier, other_line, one_lane_less, one_lane_leaves, one_warp_leaves, two_barriers };

/// *out = the sum of all thread numbers, twice, so that the second time finds the first's words.
void sum_threads_twice(SumFault planted, uint32* out) {
  const int t = thread_index(), lane = t % 32, warp = t / 32;
  const bool odd_one = planted == SumFault::one_lane_less && t == 77;
  if (planted == SumFault::one_lane_leaves && t == 77) return;
  for (int round = 0; round < 2; ++round) {
    uint32 x = uint32(t);
    for (int mask = 1; mask < 32; mask *= 2) {
      if (planted == SumFault::other_line && lane < 16)
        x += lane_exchange(x, mask);  // exchanges apart
      else if (!odd_one)
        x += lane_exchange(x, mask);  // exchanges
    }
    if (planted == SumFault::one_warp_leaves && warp == 2 && round == 1) return;
    if (lane == 0) store_shared(dynamic_shared() + uint32(warp) * 4, x);  // writes
    if (planted == SumFault::two_barriers && warp == 3)
      block_barrier();  // meets elsewhere
    else if (planted != SumFault::no_barrier || round == 0)
      block_barrier();  // meets
    uint32 sum = 0;
    for (int w = 0; w < sum_threads / 32; ++w) sum += load_shared<uint32>(dynamic_shared() + uint32(w) * 4);  // reads
    if (t == 0) store_global(out, sum);
    block_barrier();  // meets at the end
  }
}

SimulatedLaunch sum_launch(const uint32& out) {
  SimulatedLaunch launch;
  launch.threads = sum_threads;
  launch.shared_bytes = sum_threads / 32 * 4;
  launch.regions = {{&out, 4, "out", true}};
  return launch;
}

TEST(Simulator, SumsByExchangesUnderEverySchedule) {
  uint32 out = 0;
  expect_clean(sum_launch(out), [&] { sum_threads_twice(SumFault::none, &out); });
  EXPECT_EQ(out, uint32(sum_threads * (sum_threads - 1) / 2));
}

TEST(Simulator, FindsAMissingBarrierBetweenAWriteAndARead) {
  uint32 out = 0;
  expect_fault(sum_launch(out), {{FaultKind::race, "// reads"}, {FaultKind::race, "// writes"}},
               [&] { sum_threads_twice(SumFault::no_barrier, &out); });
}

TEST(Simulator, FindsLanesThatDivergeAtAnExchange) {
  uint32 out = 0;
  expect_fault(sum_launch(out),
               {{FaultKind::divergence, "// exchanges"}, {FaultKind::divergence, "// exchanges apart"}},
               [&] { sum_threads_twice(SumFault::other_line, &out); });
  expect_fault(sum_launch(out), {{FaultKind::divergence, "// exchanges"}, {FaultKind::divergence, "// meets"}},
               [&] { sum_threads_twice(SumFault::one_lane_less, &out); });
  expect_fault(sum_launch(out), {{FaultKind::divergence, "// exchanges"}},
               [&] { sum_threads_twice(SumFault::one_lane_leaves, &out); });
}

TEST(Simulator, FindsABarrierThatAWarpNeverComesTo) {
  uint32 out = 0;
  expect_fault(sum_launch(out), {{FaultKind::deadlock, "// meets"}},
               [&] { sum_threads_twice(SumFault::one_warp_leaves, &out); });
}

TEST(Simulator, FindsWarpsThatMeetAtDifferentBarriersOfTheBlock) {
  uint32 out = 0;
  expect_fault(sum_launch(out), {{FaultKind::divergence, "// meets"}, {FaultKind::divergence, "// meets elsewhere"}},
               [&] { sum_threads_twice(SumFault::two_barriers, &out); });
}

// ---- named barriers: two warps write, two read, in turns

enum class NamedFault { none, no_full, no_empty, wrong_count, odd_count, wrong_number };

/// `wrong` counts what a reader finds that is not its round's word.
void pass_words(NamedFault planted, int& wrong) {
  constexpr int full = 1, empty = 2, threads = 128;
  const int t = thread_index(), half = t / 64;
  for (int round = 0; round < 6; ++round) {
    const SharedAddress word = dynamic_shared() + uint32(t % 64) * 4;
    const SharedAddress mirrored = dynamic_shared() + uint32(63 - t % 64) * 4;
    if (half == 0) {
      if (planted != NamedFault::no_empty || round == 0) named_barrier(empty, threads);
      store_shared(word, uint32(round));  // writes
      if (planted == NamedFault::wrong_count)
        named_barrier(full, 96);  // counts 96
      else if (planted == NamedFault::odd_count)
        named_barrier(full, 100);  // counts 100
      else if (planted == NamedFault::wrong_number)
        named_barrier(full + 2, threads);  // waits for 3
      else if (planted != NamedFault::no_full || round == 0)
        named_barrier(full, threads);  // counts 128
    } else {
      if (planted != NamedFault::no_empty || round == 0) named_barrier(empty, threads);  // waits for 2
      if (planted != NamedFault::no_full || round == 0) named_barrier(full, threads);    // waits for 1
      const uint32 found = load_shared<uint32>(mirrored);                                // reads
      wrong += found != uint32(round);
    }
  }
}

SimulatedLaunch named_launch() {
  SimulatedLaunch launch;
  launch.threads = 128;
  launch.shared_bytes = 64 * 4;
  return launch;
}

TEST(Simulator, OrdersWarpsByNamedBarriers) {
  int wrong = 0;
  expect_clean(named_launch(), [&] { pass_words(NamedFault::none, wrong); });
  EXPECT_EQ(wrong, 0);
}

TEST(Simulator, FindsAMissingNamedBarrier) {
  int wrong = 0;
  const std::vector<Expected> races = {{FaultKind::race, "// reads"}, {FaultKind::race, "// writes"}};
  expect_fault(named_launch(), races, [&] { pass_words(NamedFault::no_full, wrong); });
  expect_fault(named_launch(), races, [&] { pass_words(NamedFault::no_empty, wrong); });
}

TEST(Simulator, FindsNamedBarriersThatDoNotFit) {
  int wrong = 0;
  expect_fault(named_launch(), {{FaultKind::divergence, "// counts 96"}, {FaultKind::divergence, "// waits for 1"}},
               [&] { pass_words(NamedFault::wrong_count, wrong); });
  expect_fault(named_launch(), {{FaultKind::divergence, "// counts 100"}},
               [&] { pass_words(NamedFault::odd_count, wrong); });
  expect_fault(named_launch(), {{FaultKind::deadlock, "// waits for 3"}, {FaultKind::deadlock, "// waits for 1"}},
               [&] { pass_words(NamedFault::wrong_number, wrong); });
}

// ---- what orders lanes of one warp

void neighbours(bool barrier) {
  const uint32 t = uint32(thread_index());
  store_shared(dynamic_shared() + t * 16, Words4{});  // writes
  any_lane(true);
  lane_exchange(t, 1);
  if (barrier) warp_barrier();
  uint32 r[4];
  load_matrix_x4(r, dynamic_shared() + t * 16);  // reads
  if (barrier) warp_barrier();
  store_shared(dynamic_shared() + (31 - t) * 16, Words4{r[0], r[1], r[2], r[3]});  // writes back
}

TEST(Simulator, OrdersLanesByWarpBarriersAlone) {
  SimulatedLaunch launch;
  launch.shared_bytes = 32 * 16;
  expect_clean(launch, [] { neighbours(true); });
  expect_fault(launch, {{FaultKind::race, "// reads"}}, [] { neighbours(false); });
}

TEST(Simulator, TellsNeighbouringWordsApart) {
  SimulatedLaunch launch;
  launch.threads = 64;
  launch.shared_bytes = 64 * 16;
  // Whole rows first, then words of them by other threads: the second round of writes splits what the first joined.
  expect_clean(launch, [] {
    const uint32 t = uint32(thread_index());
    store_shared(dynamic_shared() + t * 16, Words4{t, t, t, t});
    block_barrier();
    for (uint32 i = 0; i < 4; ++i) store_shared(dynamic_shared() + i * 256 + t * 4, t + i);
    block_barrier();
    const Words4 x = load_shared<Words4>(dynamic_shared() + t * 16);
    if (x.y != x.x + 1 || x.w != x.x + 3) throw std::logic_error("wrong words");
  });
  expect_fault(launch, {{FaultKind::race, "// writes one word"}, {FaultKind::race, "// writes the row"}}, [] {
    const uint32 t = uint32(thread_index());
    if (t == 1) store_shared(dynamic_shared() + 12, t);     // writes one word
    if (t == 40) store_shared(dynamic_shared(), Words4{});  // writes the row
  });
}

// ---- addresses

SimulatedLaunch small_launch(const std::vector<float>& in, const std::vector<float>& out) {
  SimulatedLaunch launch;
  launch.shared_bytes = 100;
  launch.regions = {{in.data(), int64(in.size() * 4), "in", false}, {out.data(), int64(out.size() * 4), "out", true}};
  return launch;
}

TEST(Simulator, ChecksEveryAddress) {
  const std::vector<float> in(50);
  std::vector<float> out(50);
  const SimulatedLaunch launch = small_launch(in, out);
  const SharedAddress base = dynamic_shared();
  const auto lane = [](int l) { return thread_index() == l; };
  expect_clean(launch, [&] {
    if (lane(3)) store_shared(base + 96, 1u);
    if (lane(3)) store_global(&out[49], load_global(&in[49]));
  });
  expect_fault(launch, {{FaultKind::out_of_bounds, "// shared 1"}}, [&] {
    if (lane(3)) store_shared(base + 100, 1u);  // shared 1
  });
  expect_fault(launch, {{FaultKind::out_of_bounds, "// shared 2"}}, [&] {
    if (lane(3)) load_shared<Words4>(base + 96);  // shared 2
  });
  expect_fault(launch, {{FaultKind::out_of_bounds, "// shared 3"}}, [&] {
    if (lane(3)) store_shared(base - 4, 1u);  // shared 3
  });
  expect_fault(launch, {{FaultKind::misaligned, "// shared 4"}}, [&] {
    if (lane(3)) store_shared(base + 8, Words4{});  // shared 4
  });
  expect_fault(launch, {{FaultKind::unwritten, "// shared 5"}}, [&] {
    if (lane(3)) load_shared<uint32>(base + 8);  // shared 5
  });
  expect_fault(launch, {{FaultKind::out_of_bounds, "// global 1"}}, [&] {
    if (lane(3)) load_global(in.data() + 50);  // global 1
  });
  expect_fault(launch, {{FaultKind::out_of_bounds, "// global 2"}}, [&] {
    if (lane(3)) store_global(out.data() - 1, 1.0f);  // global 2
  });
  expect_fault(launch, {{FaultKind::misaligned, "// global 3"}}, [&] {
    const auto odd = reinterpret_cast<const float*>(reinterpret_cast<const char*>(in.data()) + 2);
    if (lane(3)) load_global(odd);  // global 3
  });
  expect_fault(launch, {{FaultKind::read_only, "// global 4"}}, [&] {
    if (lane(3)) store_global(const_cast<float*>(&in[7]), 1.0f);  // global 4
  });
  expect_fault(launch, {{FaultKind::out_of_bounds, "// copy 1"}}, [&] {
    if (lane(3)) copy_async_16(base, in.data() + 48, true);  // copy 1
  });
  expect_fault(launch, {{FaultKind::misaligned, "// copy 2"}}, [&] {
    if (lane(3)) copy_async_16(base + 8, in.data(), true);  // copy 2
  });
  expect_fault(launch, {{FaultKind::out_of_bounds, "// matrix"}}, [&] {
    uint32 r[4];
    for (int i = 0; i < 6; ++i)
      if (lane(i)) store_shared(base + uint32(i) * 16, Words4{});
    warp_barrier();
    load_matrix_x4(r, base + uint32(thread_index()) * 16);  // matrix
  });
}

TEST(Simulator, ForgetsSharedMemoryBetweenBlocks) {
  SimulatedLaunch launch;
  launch.grid = {4, 1, 1};
  launch.shared_bytes = 128;
  expect_fault(launch, {{FaultKind::unwritten, "// reads the last block's word"}}, [] {
    const SharedAddress own = dynamic_shared() + uint32(thread_index()) * 4;
    if (block_index(0) == 2) load_shared<uint32>(own);  // reads the last block's word
    store_shared(own, 1u);
  });
}

// ---- blocks

TEST(Simulator, OrdersNoBlocks) {
  const std::vector<float> in(50);
  std::vector<float> out(50);
  SimulatedLaunch launch = small_launch(in, out);
  launch.grid = {2, 3, 2};
  const auto block = [] {
    return (block_index(2) * block_count(1) + block_index(1)) * block_count(0) + block_index(0);
  };
  expect_clean(launch, [&] {
    if (thread_index() == 0) store_global(&out[block()], float(block()));
  });
  for (int b = 0; b < 12; ++b) EXPECT_EQ(out[b], float(b));
  expect_fault(launch, {{FaultKind::race, "// writes"}}, [&] {
    if (thread_index() == 0) store_global(&out[block() % 11], 1.0f);  // writes
  });
  expect_fault(launch, {{FaultKind::race, "// writes one"}, {FaultKind::race, "// reads one"}}, [&] {
    if (thread_index() == 0 && block() == 4) store_global(&out[0], 1.0f);  // writes one
    if (thread_index() == 5 && block() != 4) load_global(&out[0]);         // reads one
  });
  // Reads by two blocks are no race; the writer, itself one of them, still meets the other's.
  expect_fault(launch, {{FaultKind::race, "// reads all"}, {FaultKind::race, "// writes late"}}, [&] {
    if (thread_index() == 0) load_global(&out[0]);                         // reads all
    if (thread_index() == 0 && block() == 4) store_global(&out[0], 1.0f);  // writes late
  });
}

TEST(Simulator, FindsRacesInGlobalMemoryWithinABlock) {
  const std::vector<float> in(50);
  std::vector<float> out(50);
  SimulatedLaunch launch = small_launch(in, out);
  launch.threads = 64;
  const auto exchange = [&](bool barrier) {
    const int t = thread_index();
    if (t < 50) store_global(&out[t], float(t));  // writes
    if (barrier) block_barrier();
    if (t < 50) load_global(&out[49 - t]);  // reads
  };
  expect_clean(launch, [&] { exchange(true); });
  expect_fault(launch, {{FaultKind::race, "// writes"}, {FaultKind::race, "// reads"}}, [&] { exchange(false); });
}

/// Two slices of one tensor, whose rows alternate: of the bytes of `out`, those that `in` has, too, are judged as
/// `out`'s.
TEST(Simulator, JudgesWhatTwoRegionsShareAsTheWrittenOne) {
  std::vector<float> both(100);
  SimulatedLaunch launch;
  launch.threads = 64;
  launch.regions = {{&both[0], 4 * 75, "in", false}, {&both[25], 4 * 75, "out", true}};
  const auto copy = [&](int apart) {
    const int t = thread_index();
    if (t < 25) store_global(&both[25 + t], 1.0f);              // writes
    if (t >= 32 && t < 57) load_global(&both[t - 32 + apart]);  // reads
  };
  expect_clean(launch, [&] { copy(0); });
  expect_fault(launch, {{FaultKind::race, "// writes"}, {FaultKind::race, "// reads"}}, [&] { copy(25); });
  expect_fault(launch, {{FaultKind::read_only, "// writes in"}}, [&] {
    if (thread_index() == 0) store_global(&both[24], 1.0f);  // writes in
  });
  launch.regions.push_back({&both[99], 4, "last", true});
  EXPECT_THROW(simulate(launch, [] {}), std::invalid_argument);
  launch.regions[1].bytes -= 4;
  EXPECT_NO_THROW(simulate(launch, [] {})) << "they touch";
}

// ---- the machine itself

TEST(Simulator, RunsBlocksAndWarpsInManyOrders) {
  std::set<std::vector<int>> orders;
  SimulatedLaunch launch;
  launch.grid = {3, 1, 1};
  launch.threads = 96;
  for (launch.seed = 1; launch.seed <= schedules; ++launch.seed) {
    std::vector<int> order;
    simulate(launch, [&] { order.push_back(block_index(0) * 96 + thread_index()); });
    EXPECT_EQ(order.size(), 3u * 96);
    orders.insert(order);
  }
  EXPECT_GT(orders.size(), std::size_t(schedules) * 9 / 10);
}

TEST(Simulator, RunsInSeveralThreadsOfTheProgramAtOnce) {
  const auto order_of = [](uint64 seed) {
    std::vector<int> order;
    SimulatedLaunch launch;
    launch.threads = 96;
    launch.seed = seed;
    simulate(launch, [&] {
      block_barrier();
      order.push_back(thread_index());
    });
    return order;
  };
  std::vector<std::vector<int>> orders(4);
  std::vector<std::thread> threads;
  for (std::size_t n = 0; n < orders.size(); ++n)
    threads.emplace_back([&, n] {
      for (int round = 0; round < schedules; ++round) orders[n] = order_of(n % 2);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(orders[0], order_of(0));
  EXPECT_EQ(orders[0], orders[2]);
  EXPECT_EQ(orders[1], orders[3]);
  EXPECT_NE(orders[0], orders[1]);
}

TEST(Simulator, DeliversCopiesSoonerOrLater) {
  // The source changes, which no kernel may do, between issue and wait: what arrives tells when.
  std::set<uint32> seen;
  SimulatedLaunch launch;
  launch.shared_bytes = 16;
  alignas(16) uint32 source[4];
  launch.regions = {{source, 16, "source", false}};
  for (launch.seed = 1; launch.seed <= schedules; ++launch.seed)
    simulate(launch, [&] {
      if (thread_index() != 0) return;
      source[0] = 1;
      copy_async_16(dynamic_shared(), source, true);
      source[0] = 2;
      copy_async_commit();
      source[0] = 3;
      copy_async_wait<0>();
      seen.insert(load_shared<uint32>(dynamic_shared()));
    });
  EXPECT_EQ(seen, (std::set<uint32>{1, 2, 3}));
}

TEST(Simulator, DestroysWhatTheThreadsHeldWhenOneFails) {
  struct Counted {
    int* living;
    explicit Counted(int* living) : living(living) { ++*living; }
    ~Counted() { --*living; }
  };
  int living = 0, most = 0;
  SimulatedLaunch launch;
  launch.threads = 128;
  launch.shared_bytes = 4;
  for (launch.seed = 1; launch.seed <= schedules; ++launch.seed) {
    EXPECT_THROW(simulate(launch,
                          [&] {
                            const Counted counted(&living);
                            most = std::max(most, living);
                            block_barrier();
                            if (thread_index() == 70) load_shared<uint32>(dynamic_shared());
                            block_barrier();
                          }),
                 SimulatedFault);
    EXPECT_EQ(living, 0);
  }
  EXPECT_EQ(most, 128);
}

TEST(Simulator, PassesOnWhatAKernelThrowsAndRefusesWhatAGpuWould) {
  SimulatedLaunch launch;
  EXPECT_THROW(simulate(launch,
                        [] {
                          if (thread_index() == 9) throw std::out_of_range("the kernel's own");
                          block_barrier();
                        }),
               std::out_of_range);
  EXPECT_NO_THROW(simulate(launch, [] { block_barrier(); }));
  EXPECT_THROW(simulate(launch, [] { simulate(SimulatedLaunch{}, [] {}); }), std::invalid_argument);
  launch.threads = 48;
  EXPECT_THROW(simulate(launch, [] {}), std::invalid_argument);
  launch.threads = 32;
  launch.shared_bytes = 232449;
  EXPECT_THROW(simulate(launch, [] {}), std::invalid_argument);
  launch.shared_bytes = 0;
  launch.grid = {1, 0, 1};
  EXPECT_THROW(simulate(launch, [] {}), std::invalid_argument);
}

TEST(Simulator, SaysWhatHappenedWhereAndHowToSeeItAgain) {
  SimulatedLaunch launch;
  launch.threads = 64;
  launch.shared_bytes = 1024;
  launch.seed = 77;
  try {
    simulate(launch, [] {
      const int t = thread_index();
      if (t == 5) load_shared<uint32>(dynamic_shared() + 512);  // reads the word
    });
    FAIL() << "no fault";
  } catch (const SimulatedFault& fault) {
    EXPECT_EQ(fault.what(), fault.message);
    EXPECT_EQ(fault.message.substr(0, fault.message.find(" at ")), "unwritten: thread 5 reads shared bytes 512..515");
    EXPECT_TRUE(fault.message.ends_with("; block (0,0,0), schedule 77")) << fault.message;
    EXPECT_EQ(fault.threads, std::vector<int>{5});
    EXPECT_EQ(fault.block, (std::array<int, 3>{0, 0, 0}));
  }
}

}  // namespace
}  // namespace flashproof
