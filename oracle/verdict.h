// What a check says of a kernel's result.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "reference/inputs.h"

namespace flashproof {

enum class Status { pass, fail, inconclusive, rejected };
const char* name_of(Status);

/// The element a verdict speaks of; index is flat in the logical (packed) tensor.
struct Where {
  OutputId output = OutputId::o;
  int64_t index = -1;
  int64_t b = 0, position = 0, head = 0, channel = 0;
};
Where locate(const Problem&, OutputId, int64_t index);
std::string print(const Where&);                      ///< "O[b=0 i=3 h=1 c=17]"
std::string bits_text(const Tensor&, int64_t index);  ///< an element's encoding: "0x3f80"

/// Largest observed / bound of one output, and the sizes behind it at that element.
struct OutputRatio {
  OutputId output;
  double ratio = 0;
  int64_t index = -1;
  double error = 0;  ///< |observed - exact|
  double bound = 0;  ///< the most that it may be
  double ulp = 0;    ///< of the output's format at the exact value; 0: no number was expected there, or none came
};

/// A wrong answer and whether this check would have rejected it on this case.
struct Imposter {
  std::string name;  ///< "zeros", "mean of V", "mask off by one", "one key dropped", "scale 1 % off", "base-2 L", ...
  bool rejected = false;
};

struct Verdict {
  std::string check;  ///< id of the check
  Status status = Status::pass;
  std::string kind;                 ///< of failure, stable for bucketing: "value", "nan", "unwritten", "crash", ...
  double ratio = 0;                 ///< observed / bound, threshold 1; for exact checks 0 or infinity
  Where where;                      ///< of the largest ratio
  std::string why;                  ///< one sentence with observed, expected and bound
  std::string assumed;              ///< what was assumed (bound status, unknown arithmetic, undefined conventions)
  std::vector<OutputRatio> ratios;  ///< by output
  int64_t judged = 0, undecided = 0;
  std::vector<Imposter> power;
};

}  // namespace flashproof
