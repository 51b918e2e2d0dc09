#include "core/manager/kv_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/manager/test_state.h"

namespace heddle::core::manager {
namespace {

using namespace std::chrono_literals;
using test::kDevice;
using test::kEngine;
using test::TestState;
using testing::HasSubstr;

/// An elastic engine serves, whose KV has two pages.
struct Limited : TestState {
  Limited() {
    add_engine(3);
    serve(kEngine);
    says(2);
    commands.clear();
  }
  void says(std::int64_t pages) {
    kv_limits.heard({.device = kDevice,
                     .model = kEngine,
                     .limit_pages = pages,
                     .wanted_pages = pages,
                     .used_pages = 1});
  }
  [[nodiscard]] const ElasticKv& kv() { return *at(kEngine).elastic; }
};

TEST(KvLimits, TellHostsAndOfLargeChangesPeople) {
  Limited core;
  core.kv_limits.limit(kDevice, kEngine, 3, {});
  ASSERT_EQ(core.all<LimitKv>().size(), 1U);
  EXPECT_EQ(core.all<LimitKv>()[0].pages, 3);
  EXPECT_EQ(core.all<LimitKv>()[0].basis.epoch, core.device().epoch);
  EXPECT_TRUE(core.all<Decision>().empty());
  core.kv_limits.limit(kDevice, kEngine, 9, {});
  ASSERT_EQ(core.decisions(DecisionKind::kLend).size(), 1U);
  EXPECT_THAT(core.decisions(DecisionKind::kLend)[0].why,
              HasSubstr("its KV may have 9 pages instead of 2; it uses 1"));
  core.kv_limits.limit(kDevice, kEngine, 2, test::kA);
  ASSERT_EQ(core.decisions(DecisionKind::kRecall).size(), 1U);
  EXPECT_EQ(core.decisions(DecisionKind::kRecall)[0].for_model, test::kA);
}

TEST(KvLimits, AHostThatFoundLessIsNotAskedAgainForAWhile) {
  Limited core;
  core.kv_limits.limit(kDevice, kEngine, 9, {});
  core.says(2);  // Said before it had heard.
  EXPECT_EQ(core.kv().told, 9);
  core.says(9);
  core.says(5);
  EXPECT_EQ(core.kv().told, 5);
  EXPECT_EQ(core.kv().told_again_at, core.state.now + 1s);
}

TEST(KvLimits, AreForgottenWithTheEngine) {
  Limited core;
  EXPECT_TRUE(core.state.index.elastic.contains(kDevice));
  core.kv_limits.forget(kDevice, kEngine);
  EXPECT_FALSE(core.at(kEngine).elastic);
  EXPECT_FALSE(core.state.index.elastic.contains(kDevice));
}

}  // namespace
}  // namespace heddle::core::manager
