// See exact_row.h. Ziv's strategy: with p bits, weights w_j = exp(s_j - max s) are each within 4 units of 2^-p,
// relatively (the subtraction, exp, and the exponent's error |s_j - max s| 2^-p, for which p is raised), so with n
// terms the quotient is within (4 n + 16) 2^-p sum w |v| / sum w. Where both ends of that interval print the same
// digits, the digits are right.
#include "oracle/exact_row.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <mpfr.h>

#include "reference/errors.h"

namespace flashproof {
namespace {

struct Number {
  mpfr_t x;
  explicit Number(mpfr_prec_t bits) { mpfr_init2(x, bits), mpfr_set_zero(x, 1); }
  ~Number() { mpfr_clear(x); }
  Number(const Number&) = delete;
  Number& operator=(const Number&) = delete;
};

std::string decimal(const Number& number, int digits) {
  char* text = nullptr;
  mpfr_asprintf(&text, "%.*Rg", digits, number.x);
  std::string copy = text;
  mpfr_free_str(text);
  return copy;
}

/// The enclosure's middle and half width with `bits` bits.
void enclose(const std::vector<double>& scores, const std::vector<double>& values, Number& middle, Number& half_width,
             mpfr_prec_t bits) {
  const double top = *std::max_element(scores.begin(), scores.end());
  Number weight(bits), term(bits), sum(bits), weighted(bits), magnitude(bits);
  for (size_t j = 0; j < scores.size(); ++j) {
    mpfr_set_d(weight.x, scores[j], MPFR_RNDN);
    mpfr_sub_d(weight.x, weight.x, top, MPFR_RNDN);
    mpfr_exp(weight.x, weight.x, MPFR_RNDN);
    mpfr_add(sum.x, sum.x, weight.x, MPFR_RNDN);
    mpfr_mul_d(term.x, weight.x, values[j], MPFR_RNDN);
    mpfr_add(weighted.x, weighted.x, term.x, MPFR_RNDN);
    mpfr_abs(term.x, term.x, MPFR_RNDN);
    mpfr_add(magnitude.x, magnitude.x, term.x, MPFR_RNDU);
  }
  mpfr_div(middle.x, weighted.x, sum.x, MPFR_RNDN);
  mpfr_div(half_width.x, magnitude.x, sum.x, MPFR_RNDU);
  mpfr_mul_ui(half_width.x, half_width.x, 4 * scores.size() + 16, MPFR_RNDU);
  mpfr_div_2ui(half_width.x, half_width.x, static_cast<unsigned long>(bits - 12),
               MPFR_RNDU);  // 12 bits: |s_j - max s| below 2^12
}

}  // namespace

std::string exact_row(const std::vector<double>& scores, const std::vector<double>& values, int digits) {
  if (scores.empty() || scores.size() != values.size())
    throw UsageError("a row needs as many values as scores, and at least one: there are " +
                     std::to_string(scores.size()) + " scores and " + std::to_string(values.size()) + " values");
  if (digits < 1 || digits > 1000) throw UsageError("digits must be from 1 to 1000, not " + std::to_string(digits));
  for (size_t j = 0; j < scores.size(); ++j)
    if (!std::isfinite(values[j]) || !(std::abs(scores[j]) < 2048))
      throw UsageError("scores must be below 2048 in magnitude and values finite; key " + std::to_string(j) +
                       " is not");
  for (mpfr_prec_t bits = 64 + 4 * digits;; bits *= 2) {
    Number middle(bits), half_width(bits), low(bits), high(bits);
    enclose(scores, values, middle, half_width, bits);
    mpfr_sub(low.x, middle.x, half_width.x, MPFR_RNDD);
    mpfr_add(high.x, middle.x, half_width.x, MPFR_RNDU);
    const std::string text = decimal(low, digits);
    if (text == decimal(high, digits) || bits > 8192) return bits > 8192 ? decimal(middle, digits) : text;
  }
}

}  // namespace flashproof
