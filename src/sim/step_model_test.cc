#include "sim/step_model.h"

#include <array>

#include <gtest/gtest.h>

#include "sim/test_hardware.h"

namespace heddle::sim {
namespace {

// The parts must add up to sim/perf_model's step, of which they are made.
TEST(StepModel, PartsAddUpToTheStepOfThePerformanceModel) {
  const StepModel model(test_llama_8b(), test_h100(), 1, {.fixed = 0.5e-3});
  const auto whole = [](const StepWork& work) {
    return gpu_time(test_llama_8b(), test_h100(), 1, work).total() * 1e12;
  };
  const double decode = static_cast<double>(model.base_ps(32, 32) + model.decode_ps() +
                                            32 * 1024 * model.context_ps());
  EXPECT_NEAR(decode / whole({.tokens = 32, .rows = 32, .context_tokens = 32 * 1024}), 1, 1e-3);
  const std::array chunk{PrefillChunk{.tokens = 512, .cached = 100}};
  const double prefill = static_cast<double>(model.base_ps(512, 1) + model.chunk_ps(chunk[0]));
  EXPECT_NEAR(prefill / whole({.tokens = 512, .rows = 1, .chunks = chunk}), 1, 1e-9);
}

TEST(StepModel, RemembersWithoutChangingTheAnswer) {
  const StepModel model(test_llama_8b(), test_h100(), 1, {});
  const std::int64_t first = model.base_ps(100, 7);
  EXPECT_GT(model.base_ps(4000, 7), first);
  EXPECT_EQ(model.base_ps(100, 7), first);
}

}  // namespace
}  // namespace heddle::sim
