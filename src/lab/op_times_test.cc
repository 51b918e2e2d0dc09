#include "lab/op_times.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "cuda_emulator/emulated_driver.h"
#include "device/cpu/arena.h"
#include "device/cpu/cpu_device.h"
#include "device/cuda/cuda_device.h"

namespace heddle::lab {
namespace {

constexpr std::size_t kPage = std::size_t{64} << 10U;

spec::ModelSpec small_model() {
  return {.hidden = 64,
          .layers = 2,
          .heads = 4,
          .kv_heads = 2,
          .head_dim = 32,
          .intermediate = 96,
          .vocab = 100,
          .max_position = 256};
}

std::unique_ptr<device::CudaDevice> make_gpu() {
  return device::CudaDevice::create({.page_bytes = kPage,
                                     .bytes = 4 * kPage,
                                     .driver = emulator::EmulatedDriver::open().value()})
      .value();
}

TEST(OpTimes, HaveEveryProductAndAttentionThatFits) {
  const emulator::EmulatedDriver driver("memory=64MiB,granularity=64KiB");
  for (const spec::DType dtype : {spec::DType::kF32, spec::DType::kBf16, spec::DType::kI8}) {
    const auto device = make_gpu();
    const auto samples =
        time_ops(*device, small_model(), dtype, {.tokens = 16, .context = 128, .repeats = 1});
    ASSERT_TRUE(samples) << samples.error().message;
    const auto count = [&](std::string_view op) {
      return std::ranges::count(*samples, op, &OpSample::op);
    };
    for (const char* const op : {"qkv", "attention's output", "gate and up", "down", "head"}) {
      EXPECT_EQ(count(op), 2) << op << ": of 1 and 16 tokens";
    }
    EXPECT_EQ(count("attention in decode"), 2) << "of 1 and 8 sequences with 128 tokens each";
    EXPECT_EQ(count("attention of a prompt"), 1);
    for (const OpSample& sample : *samples) {
      EXPECT_GT(sample.seconds, 0) << sample.op;
      EXPECT_GT(sample.flops, 0) << sample.op;
    }
    EXPECT_EQ(samples->front().bytes, 64 * (128 + 128) * spec::dtype_bytes(dtype));
  }
  EXPECT_EQ(driver.alive(), "");
}

TEST(OpTimes, WhatHasNoMemoryIsLeftOut) {
  const emulator::EmulatedDriver driver("memory=320KiB,granularity=64KiB");
  const auto device = make_gpu();
  const auto samples = time_ops(*device, small_model(), spec::DType::kF32, {.repeats = 1});
  ASSERT_TRUE(samples) << samples.error().message;
  EXPECT_TRUE(
      std::ranges::none_of(*samples, [](const OpSample& sample) { return sample.tokens > 128; }));
}

TEST(OpTimes, AreOfDevicesThatRecord) {
  device::CpuDevice cpu(device::Arena::create({.page_bytes = kPage, .page_count = 4}).value(), {});
  const auto samples = time_ops(cpu, small_model(), spec::DType::kF32, {});
  EXPECT_EQ(samples.error().code, Code::kFailedPrecondition);
}

}  // namespace
}  // namespace heddle::lab
