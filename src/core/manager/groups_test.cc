#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/manager/test_bench.h"
#include "core/test_find.h"

namespace heddle::core {
namespace {

using namespace std::chrono_literals;
using test::find;

constexpr ModelId kSharded{1};
constexpr ModelId kShard{2};
constexpr ModelId kA{3};
constexpr ModelId kB{4};

DeviceId device(std::uint64_t number) {
  return DeviceId(number);
}

/// Four devices: kSharded goes on the first or the last two of them, kA and kB on any.
Configure two_blocks() {
  Configure configure{.options = {.drain_after = 1s}};
  for (const ModelId id : {kSharded, kShard, kA, kB}) {
    configure.models.push_back(
        {.id = id, .name = "m" + std::to_string(id.value()), .image_bytes = 100, .context = 100});
  }
  for (std::uint64_t i = 0; i < 4; ++i) {
    configure.devices.push_back(
        {.id = device(i), .name = "d" + std::to_string(i), .pages = 20, .page_bytes = 100});
    const policy::Footprint footprint{.image_pages = 8, .min_kv_pages = 1, .kv = test::kKv};
    configure.models[i % 2].footprints[device(i)] = footprint;
    configure.models[2].footprints[device(i)] = footprint;
    configure.models[3].footprints[device(i)] = footprint;
  }
  configure.models[0].groups = {{device(0), {{.model = kShard, .device = device(1)}}},
                                {device(2), {{.model = kShard, .device = device(3)}}}};
  configure.models[1].part_of = kSharded;
  return configure;
}

/// The test says what the devices say.
class ManagerGroups : public testing::Test, public test::Bench {
 protected:
  ManagerGroups() : test::Bench(two_blocks()) {}

  /// All weights of a model are on the device.
  std::vector<ManagerCommand> complete(std::uint64_t number, ModelId model) {
    report(device(number), ModelServing{.model = model});
    DeviceReport all;
    all.models = {{.model = model, .residency = Residency::kWarm, .complete = true}};
    return report(device(number), all);
  }
  /// The single model is loaded on this device, and idle.
  void settle_on(std::uint64_t number, ModelId model) {
    const std::vector<ManagerCommand> wanted = ask(model);
    ASSERT_EQ(find<LoadOn>(wanted)->device, device(number));
    complete(number, model);
    finish(requests);
  }
  std::vector<ManagerCommand> tell_formed(std::uint64_t leader) {
    return tell(GroupFormed{
        .device = device(leader), .epoch = epochs.at(device(leader)), .model = kSharded});
  }
  void serve_group(std::uint64_t leader = 0) {
    ask(kSharded);
    complete(leader, kSharded);
    complete(leader + 1, kShard);
    tell_formed(leader);
  }

  static std::vector<std::pair<DeviceId, ModelId>> loads(const std::vector<ManagerCommand>& all) {
    std::vector<std::pair<DeviceId, ModelId>> found;
    for (const ManagerCommand& command : all) {
      if (const auto* load = std::get_if<LoadOn>(&command)) {
        found.emplace_back(load->device, load->model);
      }
    }
    return found;
  }
  static std::vector<std::pair<DeviceId, ModelId>> evictions(
      const std::vector<ManagerCommand>& all) {
    std::vector<std::pair<DeviceId, ModelId>> found;
    for (const ManagerCommand& command : all) {
      if (const auto* evict = std::get_if<EvictFrom>(&command)) {
        found.emplace_back(evict->device, evict->model);
      }
    }
    return found;
  }
};

using Places = std::vector<std::pair<DeviceId, ModelId>>;

TEST_F(ManagerGroups, AllShardsAreLoadedAndTheLeaderGetsTheRequestsWhenTheyRunInLockstep) {
  EXPECT_EQ(loads(ask(kSharded)), (Places{{device(0), kSharded}, {device(1), kShard}}));
  EXPECT_EQ(find<FormGroup>(complete(0, kSharded)), nullptr);

  const std::vector<ManagerCommand> wanted = complete(1, kShard);
  const auto* form = find<FormGroup>(wanted);
  ASSERT_NE(form, nullptr);
  EXPECT_EQ(form->members,
            (std::vector<GroupMember>{{device(0), epochs.at(device(0)), kSharded},
                                      {device(1), epochs.at(device(1)), kShard}}));
  EXPECT_EQ(find<Dispatch>(said), nullptr);

  tell_formed(0);
  ASSERT_NE(find<Dispatch>(said), nullptr);
  EXPECT_EQ(find<Dispatch>(said)->device, device(0));
}

TEST_F(ManagerGroups, OneModelIsListedWithTheDevicesOfItsGroup) {
  serve_group();
  const std::vector<ModelStatus> models = core.models();
  ASSERT_EQ(models.size(), 3U);
  EXPECT_EQ(models[0].device, device(0));
  EXPECT_EQ(models[0].peers, std::vector{device(1)});
  EXPECT_EQ(models[0].image_bytes, 200U);
}

TEST_F(ManagerGroups, ItsKvShowsOnAllItsDevices) {
  serve_group();
  for (const std::uint64_t number : {0U, 1U}) {
    DeviceReport pages;
    pages.usage = {.total = 20, .free = 5};
    pages.usage.by_kind.at(static_cast<std::size_t>(ledger::LeaseKind::kShardPipe)) = {
        .reserved = 3, .held = 3};
    pages.models = {{.model = number == 0 ? kSharded : kShard,
                     .residency = Residency::kServing,
                     .kv_pages = 3,
                     .complete = true}};
    report(device(number), pages);
  }
  EXPECT_EQ(core.devices()[1].usage.free, 5);
  EXPECT_EQ(core.devices()[1].usage.of(ledger::LeaseKind::kShardPipe).held, 3);
  EXPECT_EQ(core.models()[0].kv_pages, 6);
  const std::vector<ResidentStatus> residents = core.devices()[1].residents;
  ASSERT_EQ(residents.size(), 1U);
  EXPECT_EQ(residents[0].kv_pages, 3);
  EXPECT_EQ(residents[0].residency, Residency::kServing);
}

TEST_F(ManagerGroups, TheBlockThatIsEmptyIsTaken) {
  settle_on(0, kA);
  EXPECT_EQ(loads(ask(kSharded)), (Places{{device(2), kSharded}, {device(3), kShard}}));
}

TEST_F(ManagerGroups, WhoIsIdleOnEitherDeviceMakesWayAtOnce) {
  settle_on(0, kA);
  serve_group(2);
  down(device(2));
  down(device(3));
  EXPECT_EQ(evictions(said), (Places{{device(3), kShard}, {device(0), kA}}));
  const Places all = loads(said);
  EXPECT_EQ(all[all.size() - 2], (std::pair{device(0), kSharded}));
  EXPECT_EQ(all[all.size() - 1], (std::pair{device(1), kShard}));
}

TEST_F(ManagerGroups, NothingElseIsLoadedBesideAGroup) {
  serve_group();
  EXPECT_EQ(loads(ask(kA)), (Places{{device(2), kA}}));
  complete(2, kA);
  EXPECT_EQ(loads(ask(kB)), (Places{{device(3), kB}}));
}

// Of an idle group the leader goes first, as it may still end a step, then the others; then who
// wanted one of the devices has it.
TEST_F(ManagerGroups, AnIdleGroupGoesAsAWhole) {
  serve_group();
  finish(1);
  for (const std::uint64_t other : {2U, 3U}) {
    down(device(other));
  }
  const std::vector<ManagerCommand> wanted = ask(kA);
  EXPECT_EQ(evictions(wanted), (Places{{device(0), kSharded}}));

  const std::vector<ManagerCommand> next = report(device(0), ModelEvicted{.model = kSharded});
  EXPECT_EQ(evictions(next), (Places{{device(1), kShard}}));
  EXPECT_EQ(find<EvictFrom>(next)->mode, EvictMode::kNow);
  EXPECT_EQ(loads(said).back().second, kA);
}

TEST_F(ManagerGroups, ABusyGroupStaysUntilItHasHadItsTime) {
  serve_group();
  for (const std::uint64_t other : {2U, 3U}) {
    down(device(other));
  }
  EXPECT_TRUE(evictions(ask(kA)).empty());
  EXPECT_TRUE(evictions(after(2s)).empty());  // It drains, for its request.
  EXPECT_EQ(evictions(finish(1)), (Places{{device(0), kSharded}}));
}

// Both devices are always busy with somebody; they are drained for the group that has waited.
TEST_F(ManagerGroups, AGroupIsNotStarvedByModelsThatKeepTheirDevicesBusy) {
  for (const std::uint64_t other : {2U, 3U}) {
    down(device(other));
  }
  ask(kA);  // Request 1.
  complete(0, kA);
  ask(kSharded);
  const std::vector<ManagerCommand> late = after(2s);
  EXPECT_EQ(find<Dispatch>(late), nullptr);
  EXPECT_EQ(find<LoadOn>(ask(kB)), nullptr);  // Though device 1 is empty: it is claimed.
  EXPECT_EQ(find<Dispatch>(ask(kA)), nullptr);
  const std::vector<ManagerCommand> wanted = finish(1);
  EXPECT_EQ(evictions(wanted), (Places{{device(0), kA}}));
  EXPECT_EQ(loads(wanted), (Places{{device(0), kSharded}, {device(1), kShard}}));
}

TEST_F(ManagerGroups, WithoutOneOfItsWorkersAGroupIsGoneAndItsRequestsGoOn) {
  serve_group();
  const std::vector<ManagerCommand> wanted = down(device(1));
  EXPECT_EQ(evictions(wanted), (Places{{device(0), kSharded}}));

  // The other worker of the group is ended by the agent.
  const std::vector<ManagerCommand> next = down(device(0));
  EXPECT_EQ(loads(next), (Places{{device(2), kSharded}, {device(3), kShard}}));
  EXPECT_EQ(find<FailRequest>(said), nullptr);
}

TEST_F(ManagerGroups, AShardThatCannotBeLoadedIsAFailureOfTheModel) {
  ask(kSharded);
  const Error why{Code::kUnavailable, "the disk says no"};
  const std::vector<ManagerCommand> wanted = tell(ImageFailed{
      .device = device(1), .epoch = epochs.at(device(1)), .model = kShard, .reason = why});
  EXPECT_EQ(evictions(wanted), (Places{{device(0), kSharded}}));
  ASSERT_TRUE(core.models()[0].failure.has_value());
  EXPECT_EQ(core.models()[0].failure->message, why.message);

  report(device(0), ModelEvicted{.model = kSharded});
  EXPECT_EQ(loads(after(1s)), (Places{{device(0), kSharded}, {device(1), kShard}}));
}

TEST_F(ManagerGroups, UnloadingEndsWhenEveryShardIsGone) {
  serve_group();
  finish(1);
  tell(AdminUnload{.ticket = TicketId(1), .model = kSharded});
  report(device(0), ModelEvicted{.model = kSharded});
  ASSERT_EQ(core.devices()[1].residents.size(), 1U) << "though its leader is gone";
  EXPECT_EQ(find<AdminDone>(said), nullptr);
  report(device(1), ModelEvicted{.model = kShard});
  EXPECT_NE(find<AdminDone>(said), nullptr);
}

TEST_F(ManagerGroups, AShardIsNoModelThatCanBeAskedFor) {
  const std::vector<ManagerCommand> wanted = ask(kShard);
  ASSERT_NE(find<FailRequest>(wanted), nullptr);
  EXPECT_EQ(find<FailRequest>(wanted)->error.code, Code::kNotFound);
}

}  // namespace
}  // namespace heddle::core
