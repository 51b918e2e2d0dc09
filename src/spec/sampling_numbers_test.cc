#include "spec/sampling_numbers.h"

#include <gtest/gtest.h>

namespace heddle::spec {
namespace {

TEST(SamplingNumbers, KeepWhatWasSaidOfEachAndLeaveTheOthersOpen) {
  SamplingNumbers numbers;
  numbers[&SamplingParams::min_p] = 0.5;
  for (const SamplingNumber& number : kSamplingNumbers) {
    EXPECT_EQ(numbers[number.field].has_value(), number.field == &SamplingParams::min_p);
  }
  EXPECT_EQ(numbers[&SamplingParams::min_p], 0.5);
}

TEST(SamplingNumbers, AreWithinTheirRangeByDefault) {
  const SamplingParams neutral;
  for (const SamplingNumber& number : kSamplingNumbers) {
    EXPECT_GE(static_cast<double>(neutral.*number.field), number.least) << number.name;
    EXPECT_LE(static_cast<double>(neutral.*number.field), number.most) << number.name;
  }
}

}  // namespace
}  // namespace heddle::spec
