#include "spec/engine.h"

#include <gtest/gtest.h>

namespace heddle::spec {
namespace {

TEST(Engine, NamesOfLevelsAndKindsAreReadBack) {
  for (std::size_t i = 0; i < kSuspendLevels; ++i) {
    const auto level = static_cast<SuspendLevel>(i);
    EXPECT_EQ(suspend_level(name(level)), level);
  }
  for (const EngineKind kind : {EngineKind::kGeneric,
                                EngineKind::kVllm,
                                EngineKind::kSglang,
                                EngineKind::kLlamaServer,
                                EngineKind::kOllama,
                                EngineKind::kTensorRtLlm,
                                EngineKind::kTriton}) {
    EXPECT_EQ(engine_kind(name(kind)), kind);
  }
  EXPECT_FALSE(suspend_level("nap").has_value());
  EXPECT_FALSE(engine_kind("").has_value());
}

TEST(Engine, OnlyWhatLeavesTheProcessAsItIsKeepsItsRequests) {
  EXPECT_TRUE(keeps_requests(SuspendLevel::kFreeze));
  EXPECT_TRUE(keeps_requests(SuspendLevel::kReclaim));
  EXPECT_TRUE(keeps_requests(SuspendLevel::kCheckpoint));
  EXPECT_FALSE(keeps_requests(SuspendLevel::kSleep));
  EXPECT_FALSE(keeps_requests(SuspendLevel::kDeepSleep));
  EXPECT_FALSE(keeps_requests(SuspendLevel::kStop));
}

}  // namespace
}  // namespace heddle::spec
