#include "gateway/model_states.h"

#include <gtest/gtest.h>

namespace heddle::gateway {
namespace {

TEST(ModelStates, AreNamedAsClientsKnowThem) {
  EXPECT_EQ(state_name(core::Residency::kAbsent), "unloaded");
  EXPECT_EQ(state_name(core::Residency::kWarm), "loaded");
  EXPECT_EQ(state_name(core::EngineState::kSuspended), "sleeping");
  EXPECT_EQ(process_state_name(core::Residency::kServing), "ready");
  EXPECT_EQ(process_state_name(core::EngineState::kResuming), "starting");
  EXPECT_EQ(process_state_name(core::EngineState::kSuspended), "stopped");
}

}  // namespace
}  // namespace heddle::gateway
