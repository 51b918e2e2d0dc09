#include "lab/co_running.h"

#include <cstdlib>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/test_places.h"

namespace heddle::lab {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

CalibrationOptions small_device() {
  return {.memory = 16U << 20U,
          .page_bytes = std::size_t{64} << 10U,
          .pace_step = 2ms,
          .pace_token = 20us,
          .directory = std::filesystem::path(places::kSources) / "models" / "adder",
          .repeats = 1};
}

TEST(CoRunning, EachIsMeasuredBesideEach) {
  CoRunner equal(small_device);  // Both before there are threads.
  CoRunner below(small_device, Standing::kBelow);
  for (CoRunner* const other : {&equal, &below}) {
    const auto samples = time_co_running(small_device(), *other);
    ASSERT_TRUE(samples) << samples.error().message;
    ASSERT_EQ(samples->size(), 9U);
    EXPECT_EQ(load_name((*samples)[1].own), "decode of 1");
    EXPECT_EQ(load_name((*samples)[1].other), "decode of 16");
    EXPECT_EQ(load_name((*samples)[8].own), "prefill of 256");
    for (const CoRunSample& sample : *samples) {
      EXPECT_EQ(sample.standing, other->standing());
      // No step is faster than the pace.
      const auto least = [](const EngineLoad& load) {
        return 2e-3 + 20e-6 * static_cast<double>(load.sequences * load.tokens);
      };
      EXPECT_GE(sample.alone, least(sample.own));
      EXPECT_GE(sample.together, least(sample.own));
      EXPECT_GE(sample.other_alone, least(sample.other));
      EXPECT_GE(sample.other_together, least(sample.other));
    }
  }
}

TEST(CoRunning, WhatEitherEngineIsRefusedIsSaid) {
  CoRunner other([] { return small_device(); });
  CalibrationOptions options = small_device();
  options.memory = 2U << 20U;
  const auto small = time_co_running(options, other);
  ASSERT_FALSE(small);
  EXPECT_EQ(small.error().code, Code::kResourceExhausted);
  EXPECT_THAT(small.error().message, HasSubstr("a memory of 16 pages does not hold the model"));

  CoRunner lost([]() -> Result<CalibrationOptions> {
    CalibrationOptions lost_options = small_device();
    lost_options.directory = "/nowhere";
    return lost_options;
  });
  const auto without = time_co_running(small_device(), lost);
  ASSERT_FALSE(without);
  EXPECT_THAT(without.error().message, HasSubstr("beside this engine: "));
  EXPECT_THAT(without.error().message, HasSubstr("/nowhere"));
}

TEST(CoRunning, AProcessThatEndsIsNotWaitedFor) {
  CoRunner other([]() -> Result<CalibrationOptions> { std::_Exit(1); });
  const auto samples = time_co_running(small_device(), other);
  ASSERT_FALSE(samples);
  EXPECT_THAT(samples.error().message, HasSubstr("has ended"));
}

/// Two processes of one GPU that is emulated: it knows no time, but memory and CUDA graphs.
TEST(CoRunningGpu, TwoProcessesShareOne) {
  ::setenv("HEDDLE_CUDA_DRIVER", places::kCudaEmulator, 1);
  ::setenv("HEDDLE_CUDA_EMULATOR", "memory=24MiB,granularity=65536", 1);
  const auto small_gpu = [] {
    return CalibrationOptions{
        .gpu = 0,
        .memory = 16U << 20U,
        .page_bytes = std::size_t{64} << 10U,
        .directory = std::filesystem::path(places::kSources) / "models" / "adder",
        .max_batch_tokens = 4,
        .max_context = 4,
        .repeats = 1};
  };
  CoRunner other(small_gpu);
  const auto samples = time_co_running(small_gpu(), other);
  ::unsetenv("HEDDLE_CUDA_DRIVER");
  ::unsetenv("HEDDLE_CUDA_EMULATOR");
  ASSERT_TRUE(samples) << samples.error().message;
  ASSERT_EQ(samples->size(), 9U);
  EXPECT_EQ(load_name((*samples)[4].own), "decode of 4");
  EXPECT_EQ(load_name((*samples)[8].other), "prefill of 4");
  for (const CoRunSample& sample : *samples) {
    EXPECT_GT(sample.alone, 0);
    EXPECT_GT(sample.together, 0);
    EXPECT_GT(sample.other_together, 0);
  }
}

}  // namespace
}  // namespace heddle::lab
