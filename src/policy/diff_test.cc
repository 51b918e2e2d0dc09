#include "policy/diff.h"

#include <algorithm>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::policy {
namespace {

using namespace std::chrono_literals;

constexpr Instant kNow{100s};

Action action(ActionKind kind, std::uint64_t model, std::uint64_t device, double worth = 0.0) {
  return {.kind = kind, .model = ModelId(model), .devices = {DeviceId(device)}, .worth = worth};
}

TEST(MakeDiff, TheMorePressingAndThenTheWorthierGoFirst) {
  NotBefore not_before;
  const Diff diff = make_diff(std::vector{action(ActionKind::kPrewarm, 1, 1, 5.0),
                                          action(ActionKind::kPrewarm, 2, 1, 9.0),
                                          action(ActionKind::kMigrate, 3, 2),
                                          action(ActionKind::kStart, 3, 4)},
                              not_before,
                              kNow);
  ASSERT_EQ(diff.actions.size(), 2U);
  EXPECT_EQ(diff.actions[0].kind, ActionKind::kStart);
  EXPECT_EQ(diff.actions[1].model, ModelId(2));
  ASSERT_EQ(diff.held.size(), 2U);
  EXPECT_EQ(diff.held[0].reason, HeldReason::kModelTaken);
  EXPECT_EQ(diff.held[1].reason, HeldReason::kDeviceTaken);
  EXPECT_EQ(diff.retry_at, std::nullopt);
}

TEST(MakeDiff, KeepsHandsOffWhatWasJustActedOn) {
  NotBefore not_before;
  (void)make_diff(std::vector{action(ActionKind::kMigrate, 1, 1)}, not_before, kNow);
  const std::vector<Action> prewarm = {action(ActionKind::kPrewarm, 2, 1)};
  const Diff early = make_diff(prewarm, not_before, kNow + 29s);
  EXPECT_TRUE(early.actions.empty());
  EXPECT_EQ(early.held.front().reason, HeldReason::kTooSoon);
  EXPECT_EQ(early.retry_at, kNow + 30s);
  EXPECT_EQ(make_diff(prewarm, not_before, kNow + 30s).actions, prewarm);
}

TEST(MakeDiff, VictimsAreHeldToo) {
  NotBefore not_before;
  Action start = action(ActionKind::kStart, 1, 1);
  start.victims = {ModelId(7)};
  (void)make_diff(std::vector{start}, not_before, kNow);
  EXPECT_TRUE(make_diff(std::vector{action(ActionKind::kPrewarm, 7, 9)}, not_before, kNow + 1s)
                  .actions.empty());
}

TEST(MakeDiff, AWaitingRequestNeverComesTooSoon) {
  NotBefore not_before;
  (void)make_diff(std::vector{action(ActionKind::kMigrate, 1, 1)}, not_before, kNow);
  const std::vector<Action> start = {action(ActionKind::kStart, 1, 1)};
  EXPECT_EQ(make_diff(start, not_before, kNow + 1s).actions, start);
  EXPECT_EQ(not_before.free_at(start.front()), kNow + 30s) << "the longer hold stays";
}

TEST(NotBefore, ForgetsWhatHasPassed) {
  NotBefore not_before;
  not_before.hold(action(ActionKind::kPrewarm, 1, 1), kNow + 5s);
  not_before.hold(action(ActionKind::kPrewarm, 2, 1), kNow + 9s);
  EXPECT_EQ(not_before.size(), 3U);
  not_before.expire(kNow + 5s);
  EXPECT_EQ(not_before.size(), 2U);
  not_before.expire(kNow + 9s);
  EXPECT_EQ(not_before.size(), 0U);
}

// Properties over many ticks: nothing is acted on twice in a tick, nor before its time; every
// proposal is either accepted or held; the order of proposals does not matter.
TEST(MakeDiff, KeepsItsPromisesOnRandomInput) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    NotBefore not_before;
    NotBefore other;
    std::map<ModelId, Instant> models;
    std::map<DeviceId, Instant> devices;
    Instant now = kNow;
    for (int tick = 0; tick < 30; ++tick) {
      now += 1s * rng.below(5);
      std::vector<Action> proposals;
      for (std::uint64_t i = 0; i < rng.below(10); ++i) {
        proposals.push_back(action(static_cast<ActionKind>(rng.below(8)),
                                   rng.below(8),
                                   rng.below(8),
                                   static_cast<double>(rng.below(3))));
        proposals.back().plan = i;
        if (rng.below(3) == 0) {
          proposals.back().victims = {ModelId(rng.below(8))};
        }
      }
      const Diff diff = make_diff(proposals, not_before, now);
      ASSERT_EQ(diff.actions.size() + diff.held.size(), proposals.size());
      std::reverse(proposals.begin(), proposals.end());
      ASSERT_EQ(make_diff(proposals, other, now), diff);
      std::map<ModelId, Instant> models_after = models;
      std::map<DeviceId, Instant> devices_after = devices;
      std::set<ModelId> seen_models;
      std::set<DeviceId> seen_devices;
      for (const Action& accepted : diff.actions) {
        std::set<ModelId> touched(accepted.victims.begin(), accepted.victims.end());
        touched.insert(accepted.model);
        for (const ModelId model : touched) {
          ASSERT_TRUE(seen_models.insert(model).second);
          ASSERT_TRUE(accepted.kind == ActionKind::kStart || models[model] <= now);
          models_after[model] = std::max(models[model], now + hold_after(accepted.kind));
        }
        for (const DeviceId device : accepted.devices) {
          ASSERT_TRUE(seen_devices.insert(device).second);
          ASSERT_TRUE(accepted.kind == ActionKind::kStart || devices[device] <= now);
          devices_after[device] = std::max(devices[device], now + hold_after(accepted.kind));
        }
      }
      models = models_after;
      devices = devices_after;
    }
  }
}

}  // namespace
}  // namespace heddle::policy
