// Groups whose members are on several hosts; agent_core_test.cc has those of one.

#include <vector>

#include <gtest/gtest.h>

#include "core/agent_core.h"
#include "core/test_find.h"

namespace heddle::core {
namespace {

using namespace std::chrono_literals;
using test::find;

constexpr ModelId kLeadingStage{1};
constexpr ModelId kNextStage{2};
constexpr DeviceId kOwnDevice = device_id(HostId(1), 0);
constexpr DeviceId kFarDevice = device_id(HostId(2), 0);
constexpr WorkerEpoch kOwnLife{1};
constexpr WorkerEpoch kFarLife{7};
constexpr GroupId kOverHosts{.term = 4, .number = 2};

/// A host with one device, whose worker leads or follows one of another host.
class GroupOverHosts : public testing::Test {
 protected:
  GroupOverHosts() { begin(); }

  void begin() {
    core = AgentCore{AgentOptions{.host_pages = 20, .devices = {{.id = kOwnDevice, .pages = 12}}}};
    AgentModels models;
    for (const ModelId id : {kLeadingStage, kNextStage}) {
      models.models.push_back({.id = id, .image_bytes = 600, .footprint = {.image_pages = 6}});
    }
    tell(models);
    tell(StartAgent{});
    tell(WorkerConnected{.device = kOwnDevice, .epoch = kOwnLife});
  }

  std::vector<AgentCommand> tell(const AgentEvent& event) {
    std::vector<AgentCommand> commands;
    core.step(Instant{1s}, event, commands);
    core.check_invariants();
    return commands;
  }
  std::vector<AgentCommand> said(WorkerReport report) {
    return tell(WorkerSaid{.device = kOwnDevice, .epoch = kOwnLife, .report = std::move(report)});
  }
  /// The worker has this shard, all of it.
  void load(ModelId model) {
    tell(LoadOn{.device = kOwnDevice, .model = model, .basis = {.epoch = kOwnLife}});
    tell(ReadEnded{.model = model});
    PagesReturned returned{.model = model};
    for (std::uint64_t page = 20; page < 26; ++page) {
      returned.pages.emplace_back(page);
    }
    said(returned);
  }
  static FormGroup led_here(GroupId id = kOverHosts) {
    return {.members = {{.device = kOwnDevice, .epoch = kOwnLife, .model = kLeadingStage},
                        {.device = kFarDevice, .epoch = kFarLife, .model = kNextStage}},
            .group = id,
            .hosts = {{.id = HostId(1), .name = "h1"}, {.id = HostId(2), .name = "h2"}}};
  }
  static FormGroup led_elsewhere() {
    return {.members = {{.device = kFarDevice, .epoch = kFarLife, .model = kLeadingStage},
                        {.device = kOwnDevice, .epoch = kOwnLife, .model = kNextStage}},
            .group = kOverHosts,
            .hosts = {{.id = HostId(1), .name = "h1"}, {.id = HostId(2), .name = "h2"}}};
  }
  static GroupCut cut() {
    return {.group = kOverHosts, .reason = {Code::kUnavailable, "h2 is gone"}};
  }

  AgentCore core{AgentOptions{}};
};

TEST_F(GroupOverHosts, TheManagerHearsOfItOnceItIsConnected) {
  load(kLeadingStage);
  const auto forming = tell(led_here());
  ASSERT_NE(find<ConnectGroup>(forming), nullptr);
  EXPECT_EQ(find<ConnectGroup>(forming)->group, kOverHosts);
  EXPECT_EQ(find<ConnectGroup>(forming)->hosts, led_here().hosts);
  EXPECT_EQ(find<GroupFormed>(forming), nullptr);
  const auto formed = tell(GroupLinked{.group = kOverHosts});
  ASSERT_NE(find<GroupFormed>(formed), nullptr);
  EXPECT_EQ(find<GroupFormed>(formed)->members, led_here().members);
  EXPECT_TRUE(tell(GroupLinked{.group = kOverHosts}).empty()) << "that is said once";
}

TEST_F(GroupOverHosts, OnlyTheHostOfTheLeaderSaysSo) {
  load(kNextStage);
  EXPECT_NE(find<ConnectGroup>(tell(led_elsewhere())), nullptr);
  EXPECT_TRUE(tell(GroupLinked{.group = kOverHosts}).empty());
}

TEST_F(GroupOverHosts, OneThatCannotBeConnectedIsAModelThatFailed) {
  load(kLeadingStage);
  tell(led_here());
  const auto failed = tell(cut());
  EXPECT_EQ(find<KillWorker>(failed), nullptr) << "it has run nothing";
  ASSERT_NE(find<EvictModel>(failed), nullptr);
  EXPECT_EQ(find<EvictModel>(failed)->mode, EvictMode::kNow);
  const auto gone = said(ModelEvicted{.model = kLeadingStage, .exchanged = true});
  ASSERT_NE(find<ImageFailed>(gone), nullptr);
  EXPECT_EQ(find<ImageFailed>(gone)->reason.message, "h2 is gone");
}

TEST_F(GroupOverHosts, WhereItIsCutTheLeadersWorkerEndsForNothingThatItRan) {
  load(kLeadingStage);
  tell(led_here());
  tell(GroupLinked{.group = kOverHosts});
  const auto commands = tell(cut());
  ASSERT_NE(find<KillWorker>(commands), nullptr);
  EXPECT_NE(find<KillWorker>(commands)->reason.message.find("h2 is gone"), std::string::npos);
  const auto down = tell(WorkerExited{.device = kOwnDevice, .epoch = kOwnLife, .killed = true});
  EXPECT_TRUE(find<WorkerDown>(down)->killed);
}

TEST_F(GroupOverHosts, AFollowerOutlivesIt) {
  load(kNextStage);
  tell(led_elsewhere());
  tell(GroupLinked{.group = kOverHosts});
  EXPECT_TRUE(tell(cut()).empty());
}

TEST_F(GroupOverHosts, AMemberThatDiesLeavesItAndSoTheOthersHear) {
  tell(led_elsewhere());
  const auto died = tell(WorkerExited{.device = kOwnDevice, .epoch = kOwnLife});
  ASSERT_NE(find<LeaveGroup>(died), nullptr);
  EXPECT_EQ(find<LeaveGroup>(died)->group, kOverHosts);
  EXPECT_TRUE(tell(cut()).empty()) << "it is none here any more";
}

TEST_F(GroupOverHosts, OneWhoseMemberDiedBeforeIsNotConnected) {
  tell(WorkerExited{.device = kOwnDevice, .epoch = kOwnLife});
  EXPECT_EQ(find<ConnectGroup>(tell(led_here())), nullptr);
}

TEST_F(GroupOverHosts, OnceAShardIsEvictedItsEndIsNoDeath) {
  for (const ModelId shard : {kLeadingStage, kNextStage}) {
    begin();
    load(shard);
    tell(shard == kLeadingStage ? led_here() : led_elsewhere());
    tell(GroupLinked{.group = kOverHosts});
    tell(EvictFrom{.device = kOwnDevice, .model = shard, .basis = {.epoch = kOwnLife}});
    const auto evicted = said(ModelEvicted{.model = shard, .exchanged = true});
    EXPECT_NE(find<LeaveGroup>(evicted), nullptr);
    EXPECT_TRUE(tell(cut()).empty());
  }
}

TEST_F(GroupOverHosts, AnImageThatIsGoneIsNewsOfItsHost) {
  load(kLeadingStage);
  tell(AgentModels{});  // It is not to be kept.
  tell(EvictFrom{.device = kOwnDevice, .model = kLeadingStage, .basis = {.epoch = kOwnLife}});
  const auto evicted = said(ModelEvicted{.model = kLeadingStage});
  ASSERT_NE(find<ImageState>(evicted), nullptr);
  EXPECT_EQ(find<ImageState>(evicted)->host, HostId(1));
}

TEST_F(GroupOverHosts, ANewOneTakesThePlaceOfAnotherOfTheSameShard) {
  tell(led_here());
  const GroupId later{.term = 5, .number = 1};
  const auto commands = tell(led_here(later));
  ASSERT_NE(find<LeaveGroup>(commands), nullptr);
  EXPECT_EQ(find<LeaveGroup>(commands)->group, kOverHosts);
  EXPECT_EQ(find<ConnectGroup>(commands)->group, later);
  EXPECT_TRUE(tell(GroupLinked{.group = kOverHosts}).empty()) << "the first is none any more";
}

}  // namespace
}  // namespace heddle::core
