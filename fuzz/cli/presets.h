// Named settings of a campaign.
#pragma once
#include <string>
#include <vector>

namespace flashproof {

struct Preset {
  const char* name;
  const char* purpose;
  double seconds;         ///< 0: no limit
  long cases;             ///< 0: no limit
  double work;            ///< multiply-adds of a case, about
  double reduce_seconds;  ///< for each finding
};

const std::vector<Preset>& presets();
/// Throws UsageError with the nearest name.
const Preset& preset(const std::string& name);

}  // namespace flashproof
