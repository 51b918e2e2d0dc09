#include "core/manager/catalog.h"

#include <gtest/gtest.h>

#include "core/manager/test_state.h"

namespace heddle::core::manager {
namespace {

using namespace std::chrono_literals;
using test::kA;
using test::kB;
using test::kDevice;
using test::kEngine;
using test::kGroup;
using test::kOther;
using test::kShard;
using test::kUnknown;
using test::TestState;

bool known(const TestState& core, ModelId model) {
  return core.state.models.contains(model);
}

// ---- Configure ----

TEST(Catalog, AReloadChangesWhatIsConfiguredAndKeepsWhatIsKnown) {
  TestState core;
  core.serve(kA);
  core.run(kA);
  core.wait(kA);
  const Instant began = core.state.began;
  core.configuration.models[0].batch = 9;
  core.configuration.devices[0].name = "renamed";
  core.configuration.options.drain_after = 7s;
  core.pass(1min);
  core.configure();
  EXPECT_EQ(core.model(kA).config.batch, 9);
  EXPECT_EQ(core.model(kA).requests, 2U);
  EXPECT_EQ(core.model(kA).waiting.size(), 1U);
  EXPECT_EQ(core.model(kA).demand.in_system(), 2);
  EXPECT_EQ(core.device().config.name, "renamed");
  EXPECT_TRUE(core.device().up);
  EXPECT_TRUE(core.there(kA));
  EXPECT_EQ(core.state.options.drain_after, 7s);
  EXPECT_EQ(core.state.began, began) << "that is when it was first configured";
}

TEST(Catalog, AModelThatIsMissingIsBeingRemoved) {
  TestState core;
  core.remove(kA);
  EXPECT_TRUE(core.model(kA).removed);
  EXPECT_FALSE(core.model(kB).removed);
}

TEST(Catalog, AModelThatComesBackHasANewNumber) {
  TestState core;
  const ManagerModel model = core.configuration.models[0];
  core.remove(kA);
  core.configuration.models.push_back(model);
  EXPECT_DEATH(core.configure(), "removed");
}

TEST(Catalog, DevicesOfAHostThatJoinsAreNoPlaceForAnythingBeforeTheirWorkersAre) {
  TestState core;
  core.serve(kA);
  core.configuration.devices.push_back({.id = kOther});
  core.configure();
  EXPECT_FALSE(core.device(kOther).up);
  EXPECT_TRUE(core.device().up);
  EXPECT_TRUE(core.there(kA));
}

TEST(Catalog, WithoutForecastsAWindowIsExpectedToBeLikeTheLast) {
  for (const bool forecast : {true, false}) {
    TestState core(1, {.forecast = forecast});
    LoadRemembered remembered{.model = kA};
    for (std::int64_t window = 0; window < 10; ++window) {
      const double load = window % 2 == 0 ? 4 : 0;
      remembered.windows.emplace_back(window, policy::Load{.mean = load, .peak = load});
    }
    core.demand.remember(remembered);
    const bool last = core.model(kA).demand.expected().expert == policy::Expert::kLastWindow;
    EXPECT_EQ(last, !forecast);
  }
}

// ---- Images ----

TEST(Catalog, KnowsHowMuchOfAnImageTheHostHas) {
  TestState core;
  core.catalog.image({.model = kA, .bytes = 70, .host_cached = true});
  core.catalog.image({.model = kA, .bytes = 5, .host = HostId(2)});
  EXPECT_EQ(core.model(kA).images.at(HostId(0)).bytes, 70U);
  EXPECT_TRUE(core.model(kA).cached_at(HostId(0)));
  EXPECT_FALSE(core.model(kA).cached_at(HostId(2)));
  EXPECT_EQ(model_statuses(core.state).front().loaded_bytes, 70U) << "where there is most";
  core.catalog.image({.model = kA, .bytes = 0, .host_cached = false});
  EXPECT_EQ(core.model(kA).images.at(HostId(0)).bytes, 0U);
  EXPECT_FALSE(core.model(kA).cached_at(HostId(0)));
  core.catalog.image({.model = kUnknown, .bytes = 70});
  EXPECT_FALSE(known(core, kUnknown));
}

// ---- Forgetting ----

TEST(Catalog, ForgetsAModelThatWasRemovedAndNoOther) {
  TestState core;
  core.remove(kA);
  core.catalog.forget_removed();
  EXPECT_FALSE(known(core, kA));
  EXPECT_TRUE(known(core, kB));
}

TEST(Catalog, AModelIsKnownWhileThereAreRequestsForIt) {
  TestState core;
  const RequestId id = core.wait(kA);
  core.remove(kA);
  core.catalog.forget_removed();
  ASSERT_TRUE(known(core, kA));
  core.queues.cancel(id);
  core.catalog.forget_removed();
  EXPECT_FALSE(known(core, kA));
}

TEST(Catalog, AModelIsKnownWhileItIsOnADevice) {
  TestState core(2);
  core.load(kA, kOther);
  core.remove(kA);
  core.catalog.forget_removed();
  ASSERT_TRUE(known(core, kA));
  core.residency.lose(kOther, kA);
  core.catalog.forget_removed();
  EXPECT_FALSE(known(core, kA));
}

TEST(Catalog, AModelIsKnownUntilOperatorsHaveHeardThatItIsGone) {
  TestState core;
  core.tickets.ask(AdminUnload{.ticket = TicketId(1), .model = kA});
  core.remove(kA);
  core.catalog.forget_removed();
  ASSERT_TRUE(known(core, kA));
  core.tickets.answer();
  core.catalog.forget_removed();
  EXPECT_FALSE(known(core, kA));
}

TEST(Catalog, AModelIsKnownWhileItClaimsDevices) {
  TestState core(2);
  core.add_group();
  core.model(kGroup).claim = Claim{.leader = kDevice};
  core.remove(kGroup);
  core.catalog.forget_removed();
  ASSERT_TRUE(known(core, kGroup));
  core.claims.cancel(kGroup);
  core.catalog.forget_removed();
  EXPECT_FALSE(known(core, kGroup));
}

TEST(Catalog, ShardsAreKnownAsLongAsTheirRank0) {
  TestState core(2);
  core.add_group();
  core.load_group();
  std::erase_if(core.configuration.models, [](const auto& m) { return m.id == kShard; });
  core.remove(kGroup);
  core.residency.forget(kDevice, kGroup);
  core.catalog.forget_removed();
  ASSERT_TRUE(known(core, kGroup)) << "a shard is there";
  EXPECT_TRUE(known(core, kShard));
  core.residency.forget(kOther, kShard);
  const RequestId id = core.wait(kGroup);
  core.catalog.forget_removed();
  ASSERT_TRUE(known(core, kShard)) << "a request is there";
  core.queues.cancel(id);
  core.catalog.forget_removed();
  EXPECT_FALSE(known(core, kGroup));
  EXPECT_FALSE(known(core, kShard));
}

}  // namespace
}  // namespace heddle::core::manager
