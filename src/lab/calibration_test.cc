#include "lab/calibration.h"

#include <algorithm>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/device_fit.h"

namespace heddle::lab {
namespace {

using namespace std::chrono_literals;

CalibrationOptions small_device() {
  return {.memory = 8U << 20U,
          .page_bytes = std::size_t{64} << 10U,
          .load_bandwidth = 20'000'000,
          .pace_step = 2ms,
          .pace_token = 20us,
          .directory = std::filesystem::path(HEDDLE_SOURCE_DIR) / "models" / "adder",
          .repeats = 3};
}

TEST(Calibrate, APacedDeviceIsAsSlowAsItsPace) {
  double told = 0;
  const Result<Calibration> measured = calibrate(small_device(), [&](double part) {
    EXPECT_GE(part, told);
    told = part;
  });
  ASSERT_TRUE(measured) << measured.error().message;
  EXPECT_EQ(told, 1);
  // A link may be slower than its pace on a busy machine, never faster but for its first piece.
  EXPECT_LT(measured->copy_alone, 25e6);
  EXPECT_GT(measured->copy_alone, 1e6);
  EXPECT_LT(measured->copy_decoding, 25e6);
  ASSERT_EQ(measured->maps.size(), 3U);
  EXPECT_GT(measured->maps[0].map, 0);
  EXPECT_EQ(measured->maps[1].pages, 8);
  bool decodes = false;
  for (const StepSample& sample : measured->steps) {
    EXPECT_GE(sample.seconds, 2e-3 + 20e-6 * static_cast<double>(sample.tokens));
    decodes = decodes || sample.chunks.empty();
  }
  EXPECT_TRUE(decodes);
  EXPECT_GE(measured->steps.size(), 10U);
  EXPECT_GE(fit_device(*measured).fixed, 1e-3);
}

TEST(Calibrate, AMemoryThatHoldsNotTwoOfItIsRefused) {
  CalibrationOptions options = small_device();
  options.memory = 1U << 20U;
  const Result<Calibration> measured = calibrate(options, [](double) {});
  ASSERT_FALSE(measured);
  EXPECT_EQ(measured.error().code, Code::kResourceExhausted);
  EXPECT_THAT(measured.error().message, testing::HasSubstr("a memory of 16 pages"));
  options.directory = "/nowhere";
  EXPECT_FALSE(calibrate(options, [](double) {}));
}

}  // namespace
}  // namespace heddle::lab
