// Groups whose members are on several hosts; agent_core_test.cc has those of one.

#include <vector>

#include <gtest/gtest.h>

#include "core/agent_core.h"
#include "core/test_find.h"

namespace heddle::core {
namespace {

using namespace std::chrono_literals;
using test::find;

constexpr ModelId kLeads{1};
constexpr ModelId kFollows{2};
constexpr DeviceId kHere = device_id(HostId(1), 0);
constexpr DeviceId kElsewhere = device_id(HostId(2), 0);
constexpr WorkerEpoch kLife{1};
constexpr WorkerEpoch kOtherLife{7};
constexpr GroupId kGroup{.term = 4, .number = 2};

/// A host with one device, whose worker leads or follows one of another host.
class GroupOverHosts : public testing::Test {
 protected:
  GroupOverHosts() { begin(); }

  void begin() {
    core = AgentCore{AgentOptions{.host_pages = 20, .devices = {{.id = kHere, .pages = 12}}}};
    AgentModels models;
    for (const ModelId id : {kLeads, kFollows}) {
      models.models.push_back({.id = id, .image_bytes = 600, .footprint = {.image_pages = 6}});
    }
    tell(models);
    tell(StartAgent{});
    tell(WorkerConnected{.device = kHere, .epoch = kLife});
  }

  std::vector<AgentCommand> tell(const AgentEvent& event) {
    std::vector<AgentCommand> commands;
    core.step(Instant{1s}, event, commands);
    core.check_invariants();
    return commands;
  }
  std::vector<AgentCommand> said(WorkerReport report) {
    return tell(WorkerSaid{.device = kHere, .epoch = kLife, .report = std::move(report)});
  }
  /// The worker has this shard, all of it.
  void load(ModelId model) {
    tell(LoadOn{.device = kHere, .model = model, .basis = {.epoch = kLife}});
    tell(ReadEnded{.model = model});
    PagesReturned returned{.model = model};
    for (std::uint64_t page = 20; page < 26; ++page) {
      returned.pages.emplace_back(page);
    }
    said(returned);
  }
  static FormGroup led_here(GroupId id = kGroup) {
    return {.members = {{.device = kHere, .epoch = kLife, .model = kLeads},
                        {.device = kElsewhere, .epoch = kOtherLife, .model = kFollows}},
            .group = id,
            .hosts = {{.id = HostId(1), .name = "h1"}, {.id = HostId(2), .name = "h2"}}};
  }
  static FormGroup led_elsewhere() {
    return {.members = {{.device = kElsewhere, .epoch = kOtherLife, .model = kLeads},
                        {.device = kHere, .epoch = kLife, .model = kFollows}},
            .group = kGroup,
            .hosts = {{.id = HostId(1), .name = "h1"}, {.id = HostId(2), .name = "h2"}}};
  }
  static GroupCut cut() { return {.group = kGroup, .reason = {Code::kUnavailable, "h2 is gone"}}; }

  AgentCore core{AgentOptions{}};
};

TEST_F(GroupOverHosts, TheManagerHearsOfItOnceItIsConnected) {
  load(kLeads);
  const auto forming = tell(led_here());
  ASSERT_NE(find<ConnectGroup>(forming), nullptr);
  EXPECT_EQ(find<ConnectGroup>(forming)->group, kGroup);
  EXPECT_EQ(find<ConnectGroup>(forming)->hosts, led_here().hosts);
  EXPECT_EQ(find<GroupFormed>(forming), nullptr);
  const auto formed = tell(GroupLinked{.group = kGroup});
  ASSERT_NE(find<GroupFormed>(formed), nullptr);
  EXPECT_EQ(find<GroupFormed>(formed)->members, led_here().members);
  EXPECT_TRUE(tell(GroupLinked{.group = kGroup}).empty()) << "that is said once";
}

TEST_F(GroupOverHosts, OnlyTheHostOfTheLeaderSaysSo) {
  load(kFollows);
  EXPECT_NE(find<ConnectGroup>(tell(led_elsewhere())), nullptr);
  EXPECT_TRUE(tell(GroupLinked{.group = kGroup}).empty());
}

TEST_F(GroupOverHosts, OneThatCannotBeConnectedIsAModelThatFailed) {
  load(kLeads);
  tell(led_here());
  const auto failed = tell(cut());
  EXPECT_EQ(find<KillWorker>(failed), nullptr) << "it has run nothing";
  ASSERT_NE(find<EvictModel>(failed), nullptr);
  EXPECT_EQ(find<EvictModel>(failed)->mode, EvictMode::kNow);
  const auto gone = said(ModelEvicted{.model = kLeads, .exchanged = true});
  ASSERT_NE(find<ImageFailed>(gone), nullptr);
  EXPECT_EQ(find<ImageFailed>(gone)->reason.message, "h2 is gone");
}

TEST_F(GroupOverHosts, WhereItIsCutTheLeadersWorkerEndsForNothingThatItRan) {
  load(kLeads);
  tell(led_here());
  tell(GroupLinked{.group = kGroup});
  const auto commands = tell(cut());
  ASSERT_NE(find<KillWorker>(commands), nullptr);
  EXPECT_NE(find<KillWorker>(commands)->reason.message.find("h2 is gone"), std::string::npos);
  const auto down = tell(WorkerExited{.device = kHere, .epoch = kLife, .killed = true});
  EXPECT_TRUE(find<WorkerDown>(down)->killed);
}

TEST_F(GroupOverHosts, AFollowerOutlivesIt) {
  load(kFollows);
  tell(led_elsewhere());
  tell(GroupLinked{.group = kGroup});
  EXPECT_TRUE(tell(cut()).empty());
}

TEST_F(GroupOverHosts, AMemberThatDiesLeavesItAndSoTheOthersHear) {
  tell(led_elsewhere());
  const auto died = tell(WorkerExited{.device = kHere, .epoch = kLife});
  ASSERT_NE(find<LeaveGroup>(died), nullptr);
  EXPECT_EQ(find<LeaveGroup>(died)->group, kGroup);
  EXPECT_TRUE(tell(cut()).empty()) << "it is none here any more";
}

TEST_F(GroupOverHosts, OneWhoseMemberDiedBeforeIsNotConnected) {
  tell(WorkerExited{.device = kHere, .epoch = kLife});
  EXPECT_EQ(find<ConnectGroup>(tell(led_here())), nullptr);
}

TEST_F(GroupOverHosts, OnceAShardIsEvictedItsEndIsNoDeath) {
  for (const ModelId shard : {kLeads, kFollows}) {
    begin();
    load(shard);
    tell(shard == kLeads ? led_here() : led_elsewhere());
    tell(GroupLinked{.group = kGroup});
    tell(EvictFrom{.device = kHere, .model = shard, .basis = {.epoch = kLife}});
    const auto evicted = said(ModelEvicted{.model = shard, .exchanged = true});
    EXPECT_NE(find<LeaveGroup>(evicted), nullptr);
    EXPECT_TRUE(tell(cut()).empty());
  }
}

TEST_F(GroupOverHosts, AnImageThatIsGoneIsNewsOfItsHost) {
  load(kLeads);
  tell(AgentModels{});  // It is not to be kept.
  tell(EvictFrom{.device = kHere, .model = kLeads, .basis = {.epoch = kLife}});
  const auto evicted = said(ModelEvicted{.model = kLeads});
  ASSERT_NE(find<ImageState>(evicted), nullptr);
  EXPECT_EQ(find<ImageState>(evicted)->host, HostId(1));
}

TEST_F(GroupOverHosts, ANewOneTakesThePlaceOfAnotherOfTheSameShard) {
  tell(led_here());
  const GroupId later{.term = 5, .number = 1};
  const auto commands = tell(led_here(later));
  ASSERT_NE(find<LeaveGroup>(commands), nullptr);
  EXPECT_EQ(find<LeaveGroup>(commands)->group, kGroup);
  EXPECT_EQ(find<ConnectGroup>(commands)->group, later);
  EXPECT_TRUE(tell(GroupLinked{.group = kGroup}).empty()) << "the first is none any more";
}

}  // namespace
}  // namespace heddle::core
