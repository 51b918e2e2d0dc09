#include "device/cuda/driver.h"

#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/test_places.h"
#include "cuda_emulator/emulated_driver.h"

namespace heddle::device {
namespace {

using ::testing::HasSubstr;

TEST(Driver, IsTheLibraryThatTheEnvironmentNames) {
  const emulator::EmulatedDriver emulated("driver=12080");
  ASSERT_EQ(::setenv("HEDDLE_CUDA_DRIVER", places::kCudaEmulator, 1), 0);
  const auto driver = Driver::open();
  ::unsetenv("HEDDLE_CUDA_DRIVER");
  ASSERT_TRUE(driver);
  EXPECT_EQ((*driver)->version(), 12080);
  EXPECT_EQ((*driver)->describe(kCudaOutOfMemory), "CUDA_ERROR_OUT_OF_MEMORY (out of memory)");
  EXPECT_EQ((*driver)->describe(12345), "CUDA error 12345");
}

TEST(Driver, WithoutOneThereIsNoGpu) {
  const auto driver = Driver::open("libno-such-driver.so.1");
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().code, Code::kNotFound);
  EXPECT_THAT(driver.error().message, HasSubstr("libno-such-driver.so.1"));
}

TEST(Driver, AnOldOneIsNamedByItsVersion) {
  const emulator::EmulatedDriver emulated("driver=11080");
  const auto driver = emulator::EmulatedDriver::open();
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().code, Code::kUnavailable);
  EXPECT_THAT(driver.error().message, HasSubstr("supports CUDA 11.8, and 12.4 or later"));
}

TEST(Driver, OneThatIsTooOldForTheKernelsIsNamed) {
  const emulator::EmulatedDriver emulated("driver=12080");
  const auto driver = emulator::EmulatedDriver::open();
  ASSERT_TRUE(driver);
  EXPECT_TRUE((*driver)->suits({.note = "nvcc 12.9", .driver_min = 12040}));
  const Result<void> suits = (*driver)->suits({.note = "nvcc 13.0.88", .driver_min = 13000});
  ASSERT_FALSE(suits);
  EXPECT_EQ(suits.error().code, Code::kUnavailable);
  EXPECT_THAT(suits.error().message,
              HasSubstr("kernels (nvcc 13.0.88): it supports CUDA 12.8, and 13.0 or later"));
}

TEST(Driver, WhatOneLacksIsNamed) {
  const auto driver = Driver::open(places::kOldCudaDriver);
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().code, Code::kUnavailable);
  EXPECT_THAT(driver.error().message, HasSubstr("has no cuInit: it is too old"));
}

TEST(Driver, SaysWhyItDoesNotStart) {
  const emulator::EmulatedDriver without("devices=0");
  const auto none = emulator::EmulatedDriver::open();
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::kNotFound);
  EXPECT_THAT(none.error().message, HasSubstr("CUDA_ERROR_NO_DEVICE"));

  const emulator::EmulatedDriver broken;
  broken.fail("cuInit", 1, kCudaUnknown);
  const auto driver = emulator::EmulatedDriver::open();
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().code, Code::kUnavailable);
}

}  // namespace
}  // namespace heddle::device
