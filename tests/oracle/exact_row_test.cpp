// The digits of exact_row against numbers known by other means.
#include "oracle/exact_row.h"

#include <gtest/gtest.h>

#include "reference/errors.h"

namespace flashproof {
namespace {

TEST(ExactRow, HasTheDigitsOfKnownNumbers) {
  // sigma(1) = 1 / (1 + 1/e) and tanh(1/2) = sigma(1) - sigma(-1), from tables.
  EXPECT_EQ(exact_row({1, 0}, {1, 0}, 40), "0.7310585786300048792511592418218362743651");
  EXPECT_EQ(exact_row({1, 0}, {1, -1}, 40), "0.4621171572600097585023184836436725487303");
  EXPECT_EQ(exact_row({2, 1, 0.5, 3, -1, 2.5, 0, 4}, {10, 20, 30, 40, 50, 60, 70, 80}, 12), "61.6894444404");
}

TEST(ExactRow, GivesExactValuesAndSurvivesCancellation) {
  EXPECT_EQ(exact_row({0, 0, 0, 0}, {1, 2, 3, 4}, 30), "2.5");
  EXPECT_EQ(exact_row({5}, {-7}, 20), "-7");
  // 1e30 (sigma(1) - sigma(1)) + 1 / 3: the large terms cancel to nothing.
  EXPECT_EQ(exact_row({1, 1, 1}, {1e30, -1e30, 1}, 20), "0.33333333333333333333");
}

TEST(ExactRow, DoesNotDependOnDigitsAsked) {
  const std::string many = exact_row({0.3, -1.7, 2.25}, {1, 10, 100}, 60);
  EXPECT_EQ(many.size(), 61u);  // with the point
  EXPECT_EQ(many.rfind(exact_row({0.3, -1.7, 2.25}, {1, 10, 100}, 20).substr(0, 18), 0), 0u);
}

TEST(ExactRow, RefusesWhatItCannotDo) {
  EXPECT_THROW(exact_row({}, {}, 10), UsageError);
  EXPECT_THROW(exact_row({1, 2}, {1}, 10), UsageError);
  EXPECT_THROW(exact_row({1e9}, {1}, 10), UsageError);
  EXPECT_THROW(exact_row({1}, {1}, 0), UsageError);
}

}  // namespace
}  // namespace flashproof
