#include "manager/decision_log.h"

#include <string>

#include <gtest/gtest.h>

namespace heddle::manager {
namespace {

TEST(DecisionLog, KeepsTheLatestAndNoRepetitions) {
  DecisionLog log;
  for (std::size_t i = 0; i < DecisionLog::kMost + 5; ++i) {
    log.note({.kind = core::DecisionKind::kWait, .model = "m" + std::to_string(i), .why = "w"});
    log.note({.kind = core::DecisionKind::kWait, .model = "m" + std::to_string(i), .why = "w"});
  }
  const auto all = log.all();
  ASSERT_EQ(all.size(), DecisionLog::kMost);
  EXPECT_EQ(all.front().model, "m5");
  EXPECT_EQ(all.back().model, "m" + std::to_string(DecisionLog::kMost + 4));
}

}  // namespace
}  // namespace heddle::manager
