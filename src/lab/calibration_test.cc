#include "lab/calibration.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/test_places.h"
#include "cuda_emulator/emulated_driver.h"
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
          .directory = std::filesystem::path(places::kSources) / "models" / "adder",
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

// 80 pages: the model twice, and less than the workspace of a step.
TEST(Calibrate, AMemoryThatHoldsTheModelAndNoStepIsRefused) {
  CalibrationOptions options = small_device();
  options.memory = 5U << 20U;
  const Result<Calibration> measured = calibrate(options, [](double) {});
  ASSERT_FALSE(measured);
  EXPECT_EQ(measured.error().code, Code::kResourceExhausted);
  EXPECT_THAT(measured.error().message, testing::HasSubstr("the workspace of a step"));
  EXPECT_THAT(measured.error().message, testing::HasSubstr("it takes 101 pages"));
}

/// On a GPU of the emulated driver, which has no sense of time but every rule of memory.
class CalibrateGpu : public testing::Test {
 protected:
  CalibrateGpu() {
    const char* before = std::getenv("HEDDLE_CUDA_DRIVER");  // NOLINT(concurrency-mt-unsafe)
    driver_before_ = before == nullptr ? "" : before;
    ::setenv("HEDDLE_CUDA_DRIVER", places::kCudaEmulator, 1);  // NOLINT
  }
  ~CalibrateGpu() override {
    if (driver_before_.empty()) {
      ::unsetenv("HEDDLE_CUDA_DRIVER");  // NOLINT(concurrency-mt-unsafe)
    } else {
      ::setenv("HEDDLE_CUDA_DRIVER", driver_before_.c_str(), 1);  // NOLINT
    }
  }

  static CalibrationOptions small_gpu(int ordinal) {
    return {.gpu = ordinal,
            .memory = 8U << 20U,
            .page_bytes = std::size_t{64} << 10U,
            .directory = std::filesystem::path(places::kSources) / "models" / "adder",
            .max_batch_tokens = 16,
            .max_context = 100,
            .repeats = 1};
  }

  emulator::EmulatedDriver driver_{"devices=1,memory=32MiB,granularity=65536"};
  std::string driver_before_{};
};

TEST_F(CalibrateGpu, GivesAnEntryAsAnyDeviceDoesAndAllMemoryBack) {
  double told = 0;
  const Result<Calibration> measured = calibrate(small_gpu(0), [&](double part) { told = part; });
  ASSERT_TRUE(measured) << measured.error().message;
  EXPECT_EQ(told, 1);
  EXPECT_GT(measured->copy_alone, 0);
  EXPECT_GT(measured->copy_decoding, 0);
  EXPECT_EQ(measured->memory, 8U << 20U);
  ASSERT_EQ(measured->maps.size(), 5U);
  EXPECT_EQ(measured->maps[2].pages, 32);
  ASSERT_EQ(measured->steps.size(), 4U);
  EXPECT_EQ(measured->steps[0].chunks[0].tokens, 16);
  EXPECT_EQ(measured->steps[3].rows, 16);
  EXPECT_EQ(measured->steps[3].context, 16 * 33) << "read in two steps of 16";
  EXPECT_EQ(measured->unrecorded.size(), 3U);
  EXPECT_FALSE(measured->ops.empty());
  EXPECT_EQ(op_table(*measured).size(), measured->ops.size() + 1);
  EXPECT_EQ(unrecorded_table(*measured).size(), measured->unrecorded.size() + 1);
  const DeviceFit fit = fit_device(*measured);
  EXPECT_FALSE(simulator_files(*measured, fit, "adder").empty());
  EXPECT_GT(driver_.calls("cuLaunchKernelEx") + driver_.calls("cuGraphLaunch"), 100U);
  EXPECT_EQ(driver_.alive(), "");
}

TEST_F(CalibrateGpu, AGpuThatIsNotThereIsNamed) {
  const Result<Calibration> measured = calibrate(small_gpu(3), [](double) {});
  ASSERT_FALSE(measured);
  EXPECT_EQ(measured.error().code, Code::kNotFound) << measured.error().message;
}

}  // namespace
}  // namespace heddle::lab
