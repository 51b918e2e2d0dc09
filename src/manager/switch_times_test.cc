#include "manager/switch_times.h"

#include <gtest/gtest.h>

namespace heddle::manager {
namespace {

constexpr DeviceId kDevice{1};
constexpr ModelId kModel{2};

Instant at(std::int64_t ns) {
  return Instant(Duration(ns));
}

TEST(SwitchTimes, SplitsALoadThatARequestWaitedFor) {
  SwitchTimes times;
  times.ordered(kDevice, kModel, at(10), at(3));
  times.told(kDevice, kModel, at(14));
  const auto phases = times.serves(kDevice, kModel, at(25));
  ASSERT_TRUE(phases.has_value());
  EXPECT_EQ(phases->decide, Duration(7));
  EXPECT_EQ(phases->image, Duration(4));
  EXPECT_EQ(phases->map, Duration(11));
  EXPECT_FALSE(times.serves(kDevice, kModel, at(26)).has_value()) << "counted once";
}

TEST(SwitchTimes, NobodyWaitsForALoadThatAnOperatorAskedFor) {
  SwitchTimes times;
  times.ordered(kDevice, kModel, at(10), std::nullopt);
  times.told(kDevice, kModel, at(10));
  EXPECT_FALSE(times.serves(kDevice, kModel, at(11))->decide.has_value());
}

TEST(SwitchTimes, ALoadThatCameToNothingDoesNotCount) {
  SwitchTimes times;
  times.ordered(kDevice, kModel, at(10), std::nullopt);
  times.told(kDevice, kModel, at(11));
  times.ordered(kDevice, kModel, at(100), std::nullopt);  // The first was refused.
  EXPECT_FALSE(times.serves(kDevice, kModel, at(101)).has_value()) << "not told of this one";
  times.told(kDevice, kModel, at(102));
  EXPECT_EQ(times.serves(kDevice, kModel, at(103))->image, Duration(2));
  EXPECT_FALSE(times.serves(DeviceId(9), kModel, at(103)).has_value());
}

TEST(PlanMeasured, IsCountedAsThePartOfWhatWasPredicted) {
  Metrics metrics;
  publish(
      core::PlanMeasured{
          .kind = policy::PlanKind::kStages, .predicted = Duration(100), .took = Duration(120)},
      metrics);
  publish(core::PlanMeasured{.took = Duration(120)}, metrics);
  const std::string text = metrics.expose();
  EXPECT_NE(text.find("heddle_plan_first_token_ratio_sum{plan=\"stages\"} 1.2"), std::string::npos)
      << text;
  EXPECT_EQ(text.find("plan=\"activate\""), std::string::npos) << "nothing was predicted";
}

}  // namespace
}  // namespace heddle::manager
