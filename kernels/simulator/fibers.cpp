#include "kernels/simulator/fibers.h"

#include <boost/context/fiber.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace flashproof::simulator {

namespace {

// Frames of a kernel with 256 output columns a row stay below a tenth of it, with a sanitizer's red zones below half.
constexpr std::size_t stack_bytes = 256 << 10;

// AddressSanitizer keeps a model of the stack in use and has to be told of each change, and that a new one holds none
// of the red zones of a stack that lay there before.
#if defined(__SANITIZE_ADDRESS__)
void clear_stack(const void* bottom, std::size_t bytes) { __asan_unpoison_memory_region(bottom, bytes); }
void leave_stack(void** shadow, const void* bottom, std::size_t bytes) {
  __sanitizer_start_switch_fiber(shadow, bottom, bytes);
}
void enter_stack(void* shadow, const void** bottom, std::size_t* bytes) {
  __sanitizer_finish_switch_fiber(shadow, bottom, bytes);
}
#else
void clear_stack(const void*, std::size_t) {}
void leave_stack(void**, const void*, std::size_t) {}
void enter_stack(void*, const void**, std::size_t*) {}
#endif

}  // namespace

struct Fibers::Slot {
  boost::context::fiber fiber;  // empty while it runs
  void* shadow = nullptr;       // AddressSanitizer's own
  const void* bottom = nullptr;
  std::size_t bytes = 0;
};

inline Fibers::Slot& Fibers::slot(int fiber) { return slots_[fiber + 1]; }

Fibers::Fibers() : slots_(new Slot[1]) {}

Fibers::~Fibers() {
  ending_ = true;
  for (int i = 0; i < count_; ++i) resume(i);
}

void Fibers::prepare(int count, std::function<int(int)> work) {
  work_ = std::move(work);
  if (count <= count_) return;
  std::unique_ptr<Slot[]> slots(new Slot[count + 1]);
  for (int i = 0; i <= count_; ++i) slots[i] = std::move(slots_[i]);
  slots_ = std::move(slots);
  for (; count_ < count; ++count_) enter(count_);
}

/// Starts fiber `index` on a stack of its own, at rest.
void Fibers::enter(int index) {
  namespace context = boost::context;
  context::protected_fixedsize_stack allocator(stack_bytes);
  const context::stack_context stack = allocator.allocate();
  // Stacks begin at multiples of a page; moved apart, their ends do not fall into the same lines of the cache.
  constexpr std::size_t line = 64, lines_apart = 5, lines_a_page = 64;
  const std::size_t moved = std::size_t(index) * lines_apart % lines_a_page * line;
  slot(index).bytes = stack.size;
  slot(index).bottom = static_cast<char*>(stack.sp) - stack.size;
  clear_stack(slot(index).bottom, slot(index).bytes);
  slot(index).fiber = context::fiber(
      std::allocator_arg, context::preallocated(static_cast<char*>(stack.sp) - moved, stack.size - moved, stack),
      allocator, [this, index](context::fiber&& from) {
        slot(left_).fiber = std::move(from);
        enter_stack(nullptr, &slot(left_).bottom, &slot(left_).bytes);
        while (!ending_) resume(work_(index));
        running_ = host, left_ = index;
        leave_stack(nullptr, slot(host).bottom, slot(host).bytes);
        return std::move(slot(host).fiber);
      });
}

void Fibers::resume(int next) {
  const int self = running_;
  if (next == self) return;
  left_ = self;
  running_ = next;
  leave_stack(&slot(self).shadow, slot(next).bottom, slot(next).bytes);
  boost::context::fiber from = std::move(slot(next).fiber).resume();
  slot(left_).fiber = std::move(from);
  enter_stack(slot(self).shadow, &slot(left_).bottom, &slot(left_).bytes);
}

}  // namespace flashproof::simulator
