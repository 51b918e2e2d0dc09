#include "policy/value.h"

#include <gtest/gtest.h>

namespace heddle::policy {
namespace {

using namespace std::chrono_literals;

constexpr Asset kReplica{
    .needed = 0.5, .without = 10s, .with = 1s, .ttft = 4s, .bytes = 9'000'000'000};

TEST(Value, IsTheSecondsSavedByProbabilityPerByte) {
  EXPECT_DOUBLE_EQ(worth(kReplica), 4.5);
  EXPECT_DOUBLE_EQ(value_density(kReplica), 0.5e-9);
}

TEST(Value, CountsLessWhereTheObjectiveIsKeptAnyway) {
  Asset lenient = kReplica;
  lenient.ttft = 20s;
  EXPECT_DOUBLE_EQ(worth(lenient), 2.25) << "10 s of 20 s";
  lenient.ttft = 10s;
  EXPECT_DOUBLE_EQ(worth(lenient), 4.5);
}

TEST(Value, IsZeroWhereNothingIsSaved) {
  Asset useless = kReplica;
  useless.with = 11s;
  EXPECT_DOUBLE_EQ(value_density(useless), 0.0);
}

TEST(NeededByRenewal, GrowsWithTheHorizon) {
  EXPECT_DOUBLE_EQ(needed_by_renewal(0s, 10s), 0.0);
  EXPECT_NEAR(needed_by_renewal(10s, 10s), 0.632120558828558, 1e-15);
  EXPECT_NEAR(needed_by_renewal(kGapsAhead * 10s, 10s), 0.950212931632136, 1e-15);
}

TEST(NeededByForecast, IsTheTailAboveWhatIsServed) {
  EXPECT_NEAR(needed_by_forecast(10.0, 10.0, 20.0), 0.5, 1e-6);
  EXPECT_NEAR(needed_by_forecast(20.0, 10.0, 20.0), 0.01, 1e-4);
  EXPECT_GT(needed_by_forecast(0.0, 10.0, 20.0), needed_by_forecast(25.0, 10.0, 20.0));
  EXPECT_NEAR(needed_by_forecast(11.0, 10.0, 5.0), 0.0, 1e-9) << "a peak below the mean is none";
}

}  // namespace
}  // namespace heddle::policy
