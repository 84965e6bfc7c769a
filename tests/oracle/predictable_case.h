// Forward cases for oracle/gpu: any mask and modifiers, data for which rounding, overflow and subnormals matter.
#pragma once
#include "reference/case.h"
#include "tests/reference/small_inputs.h"

namespace flashproof::test {

/// Sequences up to `longest`, the dims of q and k and of v up to those given.
inline Case draw_predictable_case(DType dtype, int64_t longest, int64_t head_dim, int64_t value_dim) {
  Case c;
  c.problem = draw_problem(dtype, longest);
  c.problem.direction = Direction::forward;
  c.problem.head_dim = draw(1, head_dim), c.problem.value_dim = draw(1, value_dim);
  constexpr Family families[] = {Family::normal,     Family::outliers,  Family::sinks,
                                 Family::cancelling, Family::subnormal, Family::saturating};
  c.recipe.family = families[draw(0, 5)];
  c.recipe.seed = uint64_t(draw(0, 1 << 20));
  return c;
}

}  // namespace flashproof::test
