// What a machine without a GPU says of certificates, and that the speed of every model is measured.
#include <gtest/gtest.h>

#include "fuzz/bench/hardware_speed.h"
#include "fuzz/build_info.h"
#include "kernels/hardware/certify.h"
#include "reference/errors.h"

namespace flashproof {
namespace {

TEST(Certify, IsUnavailableWithoutCudaInTheBuild) {
  if (std::string(build_info().cuda) != "none") GTEST_SKIP() << "this build has CUDA " << build_info().cuda;
  EXPECT_THROW(certify([](const std::string&) {}), UnavailableError);
}

TEST(HardwareSpeed, MeasuresEveryUnitAndTilesBeatSingleSteps) {
  std::vector<std::string> told;
  const std::vector<UnitSpeed> speeds = time_hardware_models(1, [&](const std::string& what) { told.push_back(what); });
  ASSERT_EQ(speeds.size(), 7u);
  ASSERT_EQ(told.size(), speeds.size());
  for (const UnitSpeed& s : speeds) {
    EXPECT_GT(s.scalar.median, 0) << s.instruction;
    EXPECT_GT(s.tile.median, 2 * s.scalar.median) << s.instruction;
  }
}

}  // namespace
}  // namespace flashproof
