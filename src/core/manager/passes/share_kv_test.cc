#include <optional>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/manager/passes/passes.h"
#include "core/manager/test_state.h"

namespace heddle::core::manager {
namespace {

using namespace std::chrono_literals;
using test::kA;
using test::kDevice;
using test::kEngine;
using test::Spots;
using test::TestState;
using testing::HasSubstr;

constexpr ModelId kBeside{77};  // An engine more.
constexpr std::int64_t kFixed = 2;
constexpr std::int64_t kLeast = 1;

/// Two elastic engines serve on a device.
struct Elastic : TestState {
  Elastic() : TestState(1, {.value = true}) {
    add_engine(kFixed + kLeast);
    ManagerModel other = configuration.models.back();
    other.id = kBeside;
    other.name = "other";
    configuration.models.push_back(other);
    configure();
    for (const ModelId model : {kEngine, kBeside}) {
      serve(model);
      says(model, 0, kLeast);
    }
  }

  void says(ModelId model, std::int64_t used, std::int64_t limit, bool deaf = false) {
    kv_limits.heard({.device = kDevice,
                     .model = model,
                     .firm_pages = kFixed + kLeast,
                     .fixed_pages = kFixed,
                     .least_pages = kLeast,
                     .limit_pages = limit,
                     .wanted_pages = limit,
                     .used_pages = used,
                     .deaf = deaf});
    residency.hold_pages(kDevice, model, kFixed + kLeast);
    at(model).elastic->told = limit;
  }
  /// What is left for KV of both.
  [[nodiscard]] std::int64_t all() const {
    return state.devices.at(kDevice).config.pages - 2 * kFixed;
  }
  [[nodiscard]] std::optional<std::int64_t> limit(ModelId model) const {
    std::optional<std::int64_t> last;
    for (const LimitKv& each : TestState::all<LimitKv>()) {
      last = each.model == model ? std::optional(each.pages) : last;
    }
    return last;
  }
  std::vector<LimitKv> share() {
    commands.clear();
    share_kv(parts);
    return TestState::all<LimitKv>();
  }
};

TEST(ShareKv, ABusyEngineGetsRoomToGrowInAndAnIdleOneNone) {
  Elastic core;
  EXPECT_TRUE(core.share().empty());
  core.run(kEngine);
  core.share();
  EXPECT_EQ(core.limit(kEngine), core.all() / 4);
  EXPECT_EQ(core.limit(kBeside), std::nullopt);
}

TEST(ShareKv, OneThatPeaksHasAllThatTheOtherDoesNotNeed) {
  Elastic core;
  core.run(kEngine);
  core.says(kEngine, core.all() - 1, core.all() - 2);
  core.share();
  EXPECT_EQ(core.limit(kEngine), core.all() - kLeast);
  EXPECT_EQ(core.device().shortage.engines, 1);
  EXPECT_EQ(core.device().shortage.model, kEngine);
  EXPECT_GT(core.device().shortage.pages, 0);
}

TEST(ShareKv, OneThatHasPeakedGivesBackAsItsRequestsEnd) {
  Elastic core;
  const RequestId request = core.run(kEngine);
  core.says(kEngine, core.all() - kLeast, core.all() - kLeast);
  core.run(kBeside);
  core.share();
  EXPECT_EQ(core.limit(kEngine), std::nullopt) << "it is not told to preempt";
  core.says(kEngine, core.all() / 2, core.all() - kLeast);
  core.share();
  EXPECT_LT(*core.limit(kEngine), core.all() - kLeast);
  EXPECT_GE(*core.limit(kEngine), core.all() / 2);
  core.finish(request);  // All that it has are prefixes now.
  core.says(kEngine, core.all() - 3, core.all() - 3);
  core.says(kBeside, 3, 3);
  core.share();
  EXPECT_LT(*core.limit(kEngine), core.all() - 3);
}

TEST(ShareKv, OneThatIsToComeIsWaitedForNoLongerThanItTakesToPreempt) {
  Elastic core;
  core.run(kEngine);
  core.residency.forget(kDevice, kBeside);
  core.says(kEngine, core.all() + kFixed, core.all() + kFixed);
  core.load(kBeside);
  core.share();
  EXPECT_EQ(core.limit(kEngine), core.all() - kLeast) << "though it uses more";
}

TEST(ShareKv, PeopleAreToldOfLargeChanges) {
  Elastic core;
  core.run(kEngine);
  core.says(kEngine, 2, 2);
  core.commands.clear();
  core.says(kEngine, core.all() - 2, 2);
  core.share();
  const std::vector<Decision> lent = core.decisions(DecisionKind::kLend);
  ASSERT_EQ(lent.size(), 1U);
  EXPECT_EQ(lent[0].model, kEngine);
  EXPECT_THAT(lent[0].why, HasSubstr("its KV may have"));
  core.finish(RequestId(1));
  core.run(kBeside);
  core.says(kBeside, core.all(), kLeast);
  core.share();
  const std::vector<Decision> back = core.decisions(DecisionKind::kRecall);
  ASSERT_EQ(back.size(), 1U);
  EXPECT_EQ(back[0].model, kEngine);
  EXPECT_EQ(back[0].for_model, kBeside);
}

TEST(ShareKv, AnEngineThatDoesNotListenIsLeftAlone) {
  Elastic core;
  core.run(kEngine);
  core.says(kEngine, 3, 3, true);
  EXPECT_TRUE(core.share().empty());
}

TEST(ShareKv, AnIdleModelLendsItsPagesToAnEngineThatLacksKv) {
  Elastic core;
  core.serve(kA);
  core.run(kEngine);
  core.says(kEngine, core.all(), core.all());
  core.share();
  ASSERT_GT(core.device().shortage.engines, 0);
  core.pass(10min);
  lend(core.parts);
  EXPECT_THAT(core.evictions(), testing::Contains(std::pair(kDevice, kA)));
  core.finish(RequestId(1));
  core.says(kEngine, 0, core.all());
  core.share();
  EXPECT_EQ(core.device().shortage.engines, 0);
}

TEST(ShareKv, AnIdleElasticEngineLends) {
  Elastic core;
  core.run(kEngine);
  core.says(kEngine, core.all(), core.all());
  core.share();
  core.pass(10min);
  lend(core.parts);
  ASSERT_EQ(core.evictions(), (Spots{{kDevice, kBeside}}));
}

}  // namespace
}  // namespace heddle::core::manager
