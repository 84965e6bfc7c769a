// agreement [--outputs N] [--pair-outputs N] [--seed N] [--data FILE]: the oracle against its slow twin (agreement.h).
//
// Prints the figures. Ends with 0; 1 if they disagree; 2 if a pair of features has too few outputs or too many radii
// are large; 64 for a wrong command line.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <stdexcept>
#include <string>

#include "tests/oracle/agreement.h"

namespace flashproof::test {
namespace {

constexpr int64_t share = 40;  // one output in so many at the higher strengths: about half of the time
constexpr double least_small = 0.999;
constexpr size_t chunk = 200;  // cases between two lines of progress

/// Throws std::invalid_argument for anything but the digits of a number below 2^63.
int64_t number_of(const std::string& text) {
  int64_t number = 0;
  const char* end = text.data() + text.size();
  const std::from_chars_result read = std::from_chars(text.data(), end, number);
  if (read.ec != std::errc() || read.ptr != end || number < 0) throw std::invalid_argument(text + " is not a count");
  return number;
}

/// Throws std::invalid_argument.
PlanSettings settings_of(int count, char** words) {
  PlanSettings settings;
  settings.real_data = FLASHPROOF_TEST_DATA "/data/minilm_layer00.safetensors";
  for (int n = 1; n < count; n += 2) {
    const std::string word = words[n];
    if (n + 1 == count) throw std::invalid_argument(word + " needs a value");
    if (word == "--outputs")
      settings.outputs = number_of(words[n + 1]);
    else if (word == "--pair-outputs")
      settings.pair_outputs = number_of(words[n + 1]);
    else if (word == "--seed")
      settings.seed = uint64_t(number_of(words[n + 1]));
    else if (word == "--data")
      settings.real_data = words[n + 1];
    else
      throw std::invalid_argument("unknown word " + word +
                                  "; known are --outputs N, --pair-outputs N, --seed N and --data FILE");
  }
  return settings;
}

Agreement compare_with_progress(const Plan& plan) {
  Agreement sum;
  for (size_t begin = 0; begin < plan.cases.size(); begin += chunk) {
    const size_t end = std::min(plan.cases.size(), begin + chunk);
    sum += compare_cases({plan.cases.begin() + int64_t(begin), plan.cases.begin() + int64_t(end)}, share);
    std::fprintf(stderr, "%zu of %zu cases, %lld outputs, %lld disagreements\n", end, plan.cases.size(),
                 static_cast<long long>(sum.compared()), static_cast<long long>(sum.disagreements));
  }
  return sum;
}

void print_figures(const Plan& plan, const Agreement& sum) {
  const auto number = [](int64_t n) { return static_cast<long long>(n); };
  std::printf("%lld cases, %lld outputs compared:", number(sum.cases), number(sum.compared()));
  for (int n = 0; n < output_count; ++n) std::printf(" %s %lld", name_of(OutputId(n)), number(sum.outputs[n]));
  std::printf("\n%lld pairs of %lld features; the emptiest, %s: %lld outputs\n", number(plan.pairs),
              number(plan.features), plan.emptiest.c_str(), number(plan.emptiest_outputs));
  std::printf("disagreements: %lld\n", number(sum.disagreements));
  std::printf("radii at most 2^-40 of the condition: %.4f %%; largest |value - slow| / radius: %.3f\n",
              100 * double(sum.small_radii) / double(std::max<int64_t>(1, sum.conditioned)), sum.worst_ratio);
  std::printf("sums of zeros: %lld, largest radius %.1g\n", number(sum.compared() - sum.conditioned),
              sum.largest_zero_radius);
  std::printf("outputs compared by ball, interval and enclose too: %lld\n", number(sum.stronger));
  std::printf("correct rounding decided by double %lld, ball %lld, intervals %lld; undecided %lld\n",
              number(sum.rounded_by[0]), number(sum.rounded_by[1]), number(sum.rounded_by[2]), number(sum.undecided));
  for (const std::string& example : sum.examples) std::printf("%s\n", example.c_str());
}

int run(int count, char** words) {
  const PlanSettings settings = settings_of(count, words);
  const Plan plan = plan_cases(settings);
  const Agreement sum = compare_with_progress(plan);
  print_figures(plan, sum);
  if (sum.disagreements > 0) return 1;
  const bool small = double(sum.small_radii) >= least_small * double(sum.conditioned);
  return small && plan.emptiest_outputs >= settings.pair_outputs ? 0 : 2;
}

}  // namespace
}  // namespace flashproof::test

int main(int count, char** words) {
  try {
    return flashproof::test::run(count, words);
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "agreement: %s\n", error.what());
    return 64;
  }
}
