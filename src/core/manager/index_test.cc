#include "core/manager/index.h"

#include <functional>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "core/manager/test_state.h"

namespace heddle::core::manager {
namespace {

using namespace std::chrono_literals;
using test::kA;
using test::kB;
using test::kC;
using test::kDevice;
using test::kGroup;
using test::kOther;
using test::kShard;
using test::TestState;

TEST(Index, EachSeesWhatIsAddedFurtherOnAndNotWhatIsTakenOut) {
  std::set<int> set{1, 3, 5};
  std::vector<int> seen;
  each(set, [&](int key) {
    seen.push_back(key);
    if (key == 1) {
      set.erase(1);
      set.erase(3);
      set.insert({0, 4});
    }
  });
  EXPECT_EQ(seen, (std::vector<int>{1, 4, 5}));
}

TEST(Index, AModelIsUnplacedWhileItIsWantedAndNotUnderWay) {
  TestState core;
  const auto unplaced = [&] { return core.state.index.unplaced.contains(kA); };
  EXPECT_FALSE(unplaced());
  const RequestId id = core.wait(kA);
  EXPECT_TRUE(unplaced());
  core.load(kA);
  EXPECT_FALSE(unplaced());
  core.residency.forget(kDevice, kA);
  EXPECT_TRUE(unplaced());
  core.plans.begin(kDevice, kA, {});
  EXPECT_FALSE(unplaced());
  core.plans.cancel(kDevice);
  EXPECT_TRUE(unplaced());
  core.queues.cancel(id);
  EXPECT_FALSE(unplaced());
  core.tickets.ask(AdminLoad{.ticket = TicketId(1), .model = kA});
  EXPECT_TRUE(unplaced());
}

TEST(Index, RequestsAreSendableUntilTheyWereToldToWaitAndWhileTheirModelServes) {
  TestState core;
  const auto sendable = [&] { return core.state.index.sendable.contains(kA); };
  const RequestId id = core.wait(kA);
  EXPECT_TRUE(sendable());
  core.queues.hold(id);
  EXPECT_FALSE(sendable());
  core.serve(kA);
  EXPECT_TRUE(sendable());
  core.queues.send(id, kDevice, std::nullopt);
  EXPECT_FALSE(sendable());
}

TEST(Index, AModelIsAttachedToWhileItsWeightsComeAndItServesNowhere) {
  TestState core(2);
  const auto attaching = [&] { return core.state.index.attaching.contains(kA); };
  core.load(kA);
  EXPECT_FALSE(attaching());
  const RequestId id = core.wait(kA);
  EXPECT_TRUE(attaching());
  core.serve(kA, kOther);
  EXPECT_FALSE(attaching());
  core.residency.forget(kOther, kA);
  EXPECT_TRUE(attaching());
  core.queues.cancel(id);
  EXPECT_FALSE(attaching());
}

TEST(Index, AGroupIsStirredByWhatHappensToItsDevices) {
  TestState core(2);
  core.add_group();
  core.serve_group();
  core.claims.look_after(kGroup, kDevice);
  EXPECT_TRUE(core.state.index.stirred.empty());
  core.residency.forget(kOther, kShard);
  EXPECT_TRUE(core.state.index.stirred.contains({kGroup, kDevice}));
}

TEST(Index, TimeIsCountedAsTheUseChanges) {
  TestState core;
  core.serve(kA);
  const RequestId id = core.run(kA);
  core.pass(2s);
  core.finish(id);
  core.pass(3s);
  core.load(kB);
  core.pass(4s);
  EXPECT_EQ(time_used(core.state, core.device(), DeviceUse::kServing), 2s);
  EXPECT_EQ(time_used(core.state, core.device(), DeviceUse::kNone), 103s);
  EXPECT_EQ(time_used(core.state, core.device(), DeviceUse::kSwitching), 4s);
}

/// What writers may do, to models a, b and c on two devices.
void act_at_random(TestState& core, Rng& rng, std::vector<RequestId>& running) {
  const ModelId model(rng.below(3) + 1);
  const DeviceId device(rng.below(2));
  const auto& instances = core.state.devices.at(device).instances;
  const auto found = instances.find(model);
  const bool there = found != instances.end();
  const bool serves = there && found->second.is<Serving>();
  switch (rng.below(12)) {
    case 0:
      core.wait(model);
      break;
    case 1:
      if (serves) {
        running.push_back(core.run(model, device));
      }
      break;
    case 2:
      if (!running.empty()) {
        core.finish(running.back());
        running.pop_back();
      }
      break;
    case 3:
      if (!there) {
        core.residency.begin_load(device, model, LoadReason::kRequest);
      }
      break;
    case 4:
      if (there && found->second.is<Loading>()) {
        core.residency.serve(device, model);
      }
      break;
    case 5:
      if (serves) {
        core.residency.drain(device, model, rng.below(2) == 0);
      }
      break;
    case 6:
      if (there) {
        core.residency.resume(device, model);
      }
      break;
    case 7:
      if (there && found->second.in_flight.empty()) {
        core.residency.forget(device, model);
      }
      break;
    case 8:
      core.tickets.ask(AdminUnload{.ticket = TicketId(rng.below(1'000)), .model = model});
      core.tickets.fail_loads(model, {Code::kUnavailable, "test"});
      break;
    case 9:
      if (!core.state.devices.at(device).plan) {
        core.plans.begin(device, kC, {});
      } else {
        core.plans.cancel(device);
      }
      break;
    case 10:
      core.devices.leaves(device, rng.below(2) == 0);
      core.guests.lend(device, DeviceId(1 - device.value()), model, 1, "test");
      break;
    default:
      core.tickets.answer();
      core.pass(Duration(rng.below(1'000)));
  }
}

TEST(Index, ListsAreWhatALookAtEverythingGives) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    TestState core(2, {.share = seed % 2 == 0});
    std::vector<RequestId> running;
    for (int i = 0; i < 300; ++i) {
      act_at_random(core, rng, running);
      check_index(core.state);
    }
  }
}

TEST(Index, AListThatIsWrongIsFound) {
  TestState core;
  core.wait(kA);
  core.state.index.unplaced.clear();
  EXPECT_DEATH(check_index(core.state), "unplaced");
}

}  // namespace
}  // namespace heddle::core::manager
