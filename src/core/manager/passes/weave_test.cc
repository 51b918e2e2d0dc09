#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include "core/manager/passes/passes.h"
#include "core/manager/test_state.h"

namespace heddle::core::manager {
namespace {

using namespace std::chrono_literals;
using test::kA;
using test::kB;
using test::kC;
using test::kDevice;
using test::kOther;
using test::kPages;
using test::TestState;

constexpr DeviceId kThird{2};

/// A hot model that has used up the memory of its device, beside a device whose model has 11 pages
/// for KV and uses one.
struct Pair : TestState {
  explicit Pair(int count = 2) : TestState(count, {.value = true, .weave = true}) {
    for (auto& [id, each] : state.devices) {
      each.config.in_host_memory = true;
    }
    serve(kA);
    at(kA).kv_pages = kPages - test::kImagePages;
    hold(kDevice, 12, 0);
    serve(kB, kOther);
    hold(kOther, 1, 11);
    run(kA);
    run(kB, kOther);
    shortages.heard(kDevice, {.short_sequences = 2, .short_pages = 3, .short_model = kA});
  }
  /// As the device's worker reports it.
  void hold(DeviceId id, std::int64_t kv, std::int64_t free) {
    ledger::PoolUsage usage{.total = kPages, .free = free};
    usage.by_kind.at(static_cast<std::size_t>(ledger::LeaseKind::kKvOwn)) = {.reserved = kv,
                                                                             .held = kv};
    devices.usage(id, usage);
  }
  /// So many pages are lent, and hold KV.
  void lent(std::int64_t pages) {
    weave(parts);
    guests.heard({.device = kOther, .model = kA, .pages = pages});
    at(kA).guest_pages = pages;
    hold(kOther, 1, 11 - pages);
    commands.clear();
  }
};

TEST(Weave, AHotModelGetsWhatAnotherDeviceHasToSpare) {
  Pair core;
  weave(core.parts);
  const std::vector<Weave> orders = core.all<Weave>();
  ASSERT_EQ(orders.size(), 1U);
  // Of 12 pages an eighth stays; half of the work at most, which is as much as it has itself.
  EXPECT_EQ(orders[0].pages, 10);
  EXPECT_EQ(orders[0].host, kOther);
  EXPECT_EQ(orders[0].hot, kDevice);
  EXPECT_EQ(orders[0].model, kA);
  EXPECT_EQ(orders[0].basis.epoch, core.device(kOther).epoch);
  EXPECT_EQ(orders[0].hot_epoch, core.device().epoch);
  EXPECT_EQ(core.decisions(DecisionKind::kLend).size(), 1U);
  weave(core.parts);
  EXPECT_EQ(core.all<Weave>().size(), 1U) << "the first is not answered yet";
}

TEST(Weave, NobodyLendsWithoutCause) {
  const std::vector<std::function<void(Pair&)>> reasons{
      [](Pair& core) { core.state.options.planner.weave = false; },
      [](Pair& core) { core.state.drain_deadline = core.state.now; },
      [](Pair& core) { core.device().config.in_host_memory = false; },
      [](Pair& core) { core.device(kOther).config.in_host_memory = false; },
      [](Pair& core) { core.device(kOther).config.page_bytes = 1; },
      [](Pair& core) { core.shortages.clear(kDevice), core.hold(kDevice, 1, 11); },
      [](Pair& core) { core.hold(kOther, 12, 0); },
      [](Pair& core) { core.load(kC, kOther); },
      [](Pair& core) {
        core.shortages.heard(kOther, {.short_sequences = 1, .short_pages = 1, .short_model = kB});
      },
      [](Pair& core) { core.serve(kA, kOther); },
      [](Pair& core) { core.devices.down(kOther); }};
  for (std::size_t i = 0; i < reasons.size(); ++i) {
    Pair core;
    reasons[i](core);
    weave(core.parts);
    EXPECT_TRUE(core.all<Weave>().empty()) << i;
  }
}

TEST(Weave, GpusThatReachEachOtherWeaveAndNoOthers) {
  const auto orders = [](const std::vector<std::pair<DeviceId, DeviceId>>& pairs, bool cpu) {
    Pair core;
    core.device().config.in_host_memory = false;
    core.device(kOther).config.in_host_memory = cpu;
    core.guests.heard(GuestPeers{.pairs = pairs});
    weave(core.parts);
    return core.all<Weave>().size();
  };
  EXPECT_EQ(orders({{kDevice, kOther}}, false), 1U);
  EXPECT_EQ(orders({{kOther, kDevice}}, false), 1U) << "both ways round";
  EXPECT_EQ(orders({{kDevice, kThird}}, false), 0U);
  EXPECT_EQ(orders({}, true), 0U) << "a part of the host reaches no GPU";
}

TEST(Weave, AnEmptyDeviceTakesTheModelItself) {
  Pair core(3);
  core.state.options.planner.pressure = true;
  weave(core.parts);
  EXPECT_TRUE(core.all<Weave>().empty()) << "a further instance costs nobody anything";
  core.state.options.planner.pressure = false;
  core.hold(kThird, 0, kPages);
  weave(core.parts);
  ASSERT_EQ(core.all<Weave>().size(), 1U);
  EXPECT_EQ(core.all<Weave>()[0].host, kThird) << "it has most to spare";
}

TEST(Weave, TheHostsOwnRequestsComeFirst) {
  Pair core;
  core.lent(10);
  core.shortages.heard(kOther, {.short_sequences = 1, .short_pages = 4, .short_model = kB});
  weave(core.parts);
  const std::vector<Unweave> orders = core.all<Unweave>();
  ASSERT_EQ(orders.size(), 1U);
  EXPECT_EQ(orders[0].pages, 4);
  EXPECT_EQ(core.decisions(DecisionKind::kRecall)[0].for_model, kB);
  EXPECT_TRUE(core.all<Weave>().empty()) << "nothing is lent again meanwhile";
  core.guests.heard({.device = kOther, .model = kA, .pages = 6});
  EXPECT_EQ(lent_pages(core.device(kOther)), 6);
}

TEST(Weave, ALoanThatHoldsNothingGoesBack) {
  Pair core;
  core.lent(10);
  core.pass(1min);
  weave(core.parts);
  EXPECT_TRUE(core.all<Unweave>().empty());
  core.at(kA).guest_pages = 0;
  core.shortages.clear(kDevice);
  core.hold(kDevice, 1, 11);
  core.pass(5s);
  weave(core.parts);
  EXPECT_TRUE(core.all<Unweave>().empty());
  core.pass(1min);
  weave(core.parts);
  ASSERT_EQ(core.all<Unweave>().size(), 1U);
  EXPECT_EQ(core.all<Unweave>()[0].pages, 10);
  core.guests.heard({.device = kOther, .model = kA, .pages = 0});
  EXPECT_TRUE(core.device(kOther).guests.empty());
}

TEST(Weave, GuestsLeaveTheHostTheTimeForItsObjective) {
  Pair core;
  core.state.models.at(kB).config.slo.tpot = 80ms;
  core.at(kA).attention = 40ms;
  core.devices.step(kDevice, 80ms);
  core.devices.step(kOther, 54ms);
  weave(core.parts);
  ASSERT_EQ(core.all<Weave>().size(), 1U);
  EXPECT_EQ(core.all<Weave>()[0].pages, 10) << "a quarter of its time is a half of attention";

  core.lent(10);
  core.at(kA).kv_pages = 12;
  weave(core.parts);
  EXPECT_TRUE(core.all<Unweave>().empty());
  core.devices.step(kOther, 63ms);
  weave(core.parts);
  const std::vector<Unweave> orders = core.all<Unweave>();
  ASSERT_EQ(orders.size(), 1U);
  EXPECT_EQ(orders[0].pages, 5) << "an eighth of its time is a quarter of 22 pages";
  weave(core.parts);
  EXPECT_EQ(core.all<Unweave>().size(), 1U) << "they are on their way";

  Pair busy;
  busy.state.models.at(kB).config.slo.tpot = 80ms;
  busy.at(kA).attention = 40ms;
  busy.devices.step(kDevice, 80ms);
  busy.devices.step(kOther, 70ms);
  weave(busy.parts);
  EXPECT_TRUE(busy.all<Weave>().empty());
}

TEST(Weave, AfterARefusalItIsTriedAgain) {
  Pair core;
  weave(core.parts);
  core.guests.heard({.device = kOther, .model = kA, .refused = true});
  EXPECT_TRUE(core.device(kOther).guests.empty());
  core.pass(2s);
  weave(core.parts);
  EXPECT_EQ(core.all<Weave>().size(), 2U);
}

}  // namespace
}  // namespace heddle::core::manager
