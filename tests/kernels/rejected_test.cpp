// How kernels answer across the C interface: which exception gives which status, message and text.
#include "kernels/rejected.h"

#include <gtest/gtest.h>

namespace flashproof {
namespace {

TEST(Rejected, BecomesAStatusAndAMessage) {
  char message[8] = "as was";
  EXPECT_EQ(guarded(message, sizeof message, [] {}), FLASHPROOF_OK);
  EXPECT_STREQ(message, "as was");
  EXPECT_EQ(guarded(message, sizeof message, [] { throw Rejected("no 2"); }), FLASHPROOF_REJECTED);
  EXPECT_STREQ(message, "no 2");
  EXPECT_EQ(guarded(message, sizeof message, [] { throw std::runtime_error("launch failed"); }), FLASHPROOF_ERROR);
  EXPECT_STREQ(message, "launch ") << "cut to the caller's buffer";
  EXPECT_EQ(guarded(nullptr, 0, [] { reject_unless(false, "no 3"); }), FLASHPROOF_REJECTED);
  EXPECT_EQ(guarded(nullptr, 0, [] { reject_unless(true, "no 4"); }), FLASHPROOF_OK);
}

TEST(Rejected, LeavesNoTextOfAnEarlierCall) {
  const auto text = [](bool taken, bool failed) {
    return text_unless_thrown([&] {
      reject_unless(taken, "no 5");
      if (failed) throw std::runtime_error("no compiler");
      return "p=bf16";
    });
  };
  EXPECT_STREQ(text(true, false), "p=bf16");
  EXPECT_STREQ(text(false, false), "");
  EXPECT_STREQ(text(true, false), "p=bf16");
  EXPECT_STREQ(text(true, true), "");
}

}  // namespace
}  // namespace flashproof
