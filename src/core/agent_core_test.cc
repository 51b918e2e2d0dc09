#include "core/agent_core.h"

#include <vector>

#include <gtest/gtest.h>

#include "core/test_find.h"

namespace heddle::core {
namespace {

using namespace std::chrono_literals;
using test::find;

constexpr ModelId kA{1};
constexpr ModelId kB{2};
constexpr DeviceId kDevice{0};
constexpr WorkerEpoch kEpoch{1};

/// An AgentCore with 10 host pages and a device of 12; images of 6 pages of 100 bytes.
class Bench {
 public:
  Bench() {
    AgentModels models;
    for (const ModelId id : {kA, kB}) {
      models.models.push_back({.id = id, .image_bytes = 600, .footprint = {.image_pages = 6}});
    }
    tell(models);
    spawned = tell(StartAgent{});
    tell(WorkerConnected{.device = kDevice, .epoch = kEpoch});
  }

  std::vector<AgentCommand> tell(const AgentEvent& event) {
    std::vector<AgentCommand> commands;
    core.step(now, event, commands);
    core.check_invariants();
    return commands;
  }
  template <class T>
  std::vector<AgentCommand> said(T report) {
    return tell(WorkerSaid{.device = kDevice, .epoch = kEpoch, .report = report});
  }
  std::vector<AgentCommand> load(ModelId model) {
    now += 1s;
    return tell(LoadOn{.device = kDevice, .model = model, .basis = {.epoch = kEpoch}});
  }
  std::vector<AgentCommand> evict(ModelId model) {
    now += 1s;
    return tell(EvictFrom{.device = kDevice, .model = model, .basis = {.epoch = kEpoch}});
  }
  PagesReturned free_pages(ModelId model, std::uint64_t first) {
    PagesReturned returned{.model = model};
    for (std::uint64_t i = 0; i < 6; ++i) {
      returned.pages.emplace_back(first + i);
    }
    return returned;
  }

  Instant now{1s};
  AgentCore core{AgentOptions{.host_pages = 10, .devices = {{.id = kDevice, .pages = 12}}}};
  std::vector<AgentCommand> spawned{};
};

TEST(AgentCore, GivesAWorkerItsPagesAtItsStart) {
  Bench bench;
  ASSERT_NE(find<SpawnWorker>(bench.spawned), nullptr);
  EXPECT_EQ(find<SpawnWorker>(bench.spawned)->pages.size(), 12U);
}

TEST(AgentCore, ALoadIsSentWhileItsImageIsRead) {
  Bench bench;
  const auto commands = bench.load(kA);
  ASSERT_NE(find<StartRead>(commands), nullptr);
  ASSERT_NE(find<LoadModel>(commands), nullptr);
  EXPECT_EQ(find<LoadModel>(commands)->pages, find<StartRead>(commands)->pages);
  EXPECT_EQ(find<LoadModel>(commands)->ready_bytes, 0U);
  const auto progress = bench.tell(ReadProgress{.model = kA, .bytes = 200});
  EXPECT_EQ(find<ImageProgress>(progress)->bytes, 200U);
  const auto ended = bench.tell(ReadEnded{.model = kA});
  EXPECT_EQ(find<ImageProgress>(ended)->bytes, 600U);
}

TEST(AgentCore, AModelThatIsThereIsNotLoadedAgain) {
  Bench bench;
  bench.load(kA);
  const auto again = bench.load(kA);
  ASSERT_NE(find<LoadRefused>(again), nullptr);
  EXPECT_EQ(find<LoadRefused>(again)->reason.code, Code::kFailedPrecondition);
  EXPECT_EQ(find<LoadModel>(again), nullptr);
}

TEST(AgentCore, PagesAreExchangedAndTheImageComesBack) {
  Bench bench;
  bench.load(kA);
  bench.tell(ReadEnded{.model = kA});
  EXPECT_EQ(bench.core.host_usage().free, 4);
  bench.said(bench.free_pages(kA, 10));
  EXPECT_EQ(bench.core.host_usage().free, 10);  // The budget is whole again.
  const auto evicting = bench.evict(kA);
  EXPECT_EQ(find<EvictModel>(evicting)->pages.size(), 6U);
  bench.said(ModelEvicted{.model = kA, .exchanged = true});
  EXPECT_EQ(bench.core.host_usage().of(ledger::LeaseKind::kImage).held, 6);
  const auto again = bench.load(kA);
  EXPECT_EQ(find<StartRead>(again), nullptr);  // It was in the cache.
  EXPECT_EQ(find<LoadModel>(again)->ready_bytes, 600U);
}

TEST(AgentCore, AWorkerHearsThatAnImageIsGoneWhichItGaveBack) {
  Bench bench;
  bench.load(kA);
  bench.tell(ReadEnded{.model = kA});
  bench.said(bench.free_pages(kA, 10));
  bench.evict(kA);
  bench.said(ModelEvicted{.model = kA, .exchanged = true});
  bench.now += 1s;
  const auto commands = bench.load(kB);  // Which takes the room of A's image.
  ASSERT_NE(find<StartRead>(commands), nullptr);
  ASSERT_NE(find<ImageGone>(commands), nullptr);
  EXPECT_EQ(find<ImageGone>(commands)->model, kA);
  bench.tell(ReadEnded{.model = kB});
  EXPECT_EQ(find<ImageGone>(bench.tell(AgentModels{})), nullptr) << "it never gave B back";
}

TEST(AgentCore, AnImageIsDroppedWhereTheHostHasNoRoom) {
  Bench bench;
  bench.load(kA);
  bench.tell(ReadEnded{.model = kA});
  bench.said(bench.free_pages(kA, 10));
  // B is being read and cannot make room: A's pages stay with the worker, as free ones.
  bench.now += 1s;
  bench.tell(LoadOn{.device = kDevice, .model = kB, .basis = {.epoch = kEpoch}});
  const auto evicting = bench.evict(kA);
  ASSERT_NE(find<EvictModel>(evicting), nullptr);
  EXPECT_TRUE(find<EvictModel>(evicting)->pages.empty());
  bench.said(ModelEvicted{.model = kA});
}

TEST(AgentCore, AnImageIsWorthItsLastUseByTheClockOfTheHost) {
  for (const Duration idle : {Duration(0s), Duration(60s)}) {
    Bench bench;
    bench.now += 3600s;
    for (const ModelId model : {kA, kB}) {
      bench.load(model);
      bench.tell(ReadEnded{.model = model});
      bench.said(bench.free_pages(model, model == kA ? 10 : 16));
    }
    bench.evict(kA);
    bench.said(ModelEvicted{.model = kA, .exchanged = true});
    bench.now += 1s;
    const auto evicting = bench.tell(
        EvictFrom{.device = kDevice, .model = kB, .basis = {.epoch = kEpoch}, .idle = idle});
    EXPECT_EQ(find<EvictModel>(evicting)->pages.empty(), idle > 0s)
        << "the host has room for one image: for that which was used later";
  }
}

TEST(AgentCore, ADyingWorkerCostsNoReading) {
  Bench bench;
  bench.load(kA);
  bench.tell(ReadEnded{.model = kA});
  bench.said(bench.free_pages(kA, 10));
  const auto died = bench.tell(WorkerExited{.device = kDevice, .epoch = kEpoch});
  EXPECT_NE(find<WorkerDown>(died), nullptr);
  EXPECT_EQ(find<SpawnWorker>(died), nullptr);  // A pause first.
  EXPECT_EQ(bench.core.host_usage().of(ledger::LeaseKind::kImage).held, 6);
  bench.now = find<WakeAt>(died)->at;
  const auto spawned = bench.tell(Tick{});
  ASSERT_NE(find<SpawnWorker>(spawned), nullptr);
  EXPECT_EQ(find<SpawnWorker>(spawned)->pages.size(), 12U);
  EXPECT_EQ(find<SpawnWorker>(spawned)->epoch, WorkerEpoch(2));
}

TEST(AgentCore, PausesDoubleAsAWorkerKeepsDying) {
  Bench bench;
  Duration last{};
  for (std::uint64_t life = 1; life < 5; ++life) {
    const auto died = bench.tell(WorkerExited{.device = kDevice, .epoch = WorkerEpoch(life)});
    const Duration pause = find<WakeAt>(died)->at - bench.now;
    EXPECT_GT(pause, last);
    last = pause;
    bench.now = find<WakeAt>(died)->at;
    bench.tell(Tick{});
  }
}

TEST(AgentCore, ThePauseStartsAnewOnceAWorkerWasUpForAWhile) {
  Bench bench;
  const Duration first = AgentOptions{}.restart_first;
  for (std::uint64_t life = 1; life < 150; ++life) {
    bench.now += 4s;
    const auto died =
        bench.tell(WorkerExited{.device = kDevice, .epoch = WorkerEpoch(life), .killed = true});
    EXPECT_EQ(find<WakeAt>(died)->at - bench.now, first);
    EXPECT_TRUE(find<WorkerDown>(died)->killed);
    bench.now = find<WakeAt>(died)->at;
    bench.tell(Tick{});
    bench.tell(WorkerConnected{.device = kDevice, .epoch = WorkerEpoch(life + 1)});
  }
}

TEST(AgentCore, AWorkerThatDiesRightAfterItsHelloStillBacksOff) {
  Bench bench;
  Duration pause{};
  for (std::uint64_t life = 1; life < 12; ++life) {
    bench.now += 1s;
    const auto died = bench.tell(WorkerExited{.device = kDevice, .epoch = WorkerEpoch(life)});
    pause = find<WakeAt>(died)->at - bench.now;
    bench.now = find<WakeAt>(died)->at + 10s;  // A slow start is no life.
    bench.tell(Tick{});
    bench.tell(WorkerConnected{.device = kDevice, .epoch = WorkerEpoch(life + 1)});
  }
  EXPECT_EQ(pause, AgentOptions{}.restart_most);
}

TEST(AgentCore, AWorkerThatHangsIsKilledAndBlamedUnlessASignalStoppedIt) {
  for (const bool stopped : {true, false}) {
    Bench bench;
    bench.now += 4s;
    const auto commands = bench.tell(WorkerHung{.device = kDevice,
                                                .epoch = kEpoch,
                                                .stopped = stopped,
                                                .reason = {Code::kDeadlineExceeded, "no beat"}});
    ASSERT_NE(find<KillWorker>(commands), nullptr);
    EXPECT_EQ(find<KillWorker>(commands)->reason.message, "no beat");
    EXPECT_TRUE(bench.tell(WorkerHung{.device = kDevice, .epoch = kEpoch}).empty());
    const auto died = bench.tell(WorkerExited{.device = kDevice, .epoch = kEpoch, .killed = true});
    EXPECT_EQ(find<WorkerDown>(died)->killed, stopped);
  }
}

TEST(AgentCore, AFailedReadTakesTheModelOffAndIsReportedOnce) {
  for (const bool refused : {false, true}) {
    Bench bench;
    bench.load(kA);
    if (!refused) {
      bench.said(bench.free_pages(kA, 10));
    }
    const auto failed =
        bench.tell(ReadEnded{.model = kA, .error = Error{Code::kCorrupt, "bad header"}});
    EXPECT_EQ(find<EvictModel>(failed)->mode, EvictMode::kNow);
    EXPECT_EQ(find<ImageFailed>(failed), nullptr);  // Not before the worker has let go.
    const LoadRefused stale{.model = kA, .reason = {Code::kFailedPrecondition, "stale"}};
    const auto answer = refused ? bench.said(stale) : std::vector<AgentCommand>();
    const auto gone = bench.said(ModelEvicted{.model = kA});
    EXPECT_EQ(find<ImageFailed>(refused ? answer : gone)->reason.message, "bad header");
    EXPECT_EQ(find<ImageFailed>(gone) == nullptr, refused);
    EXPECT_EQ(bench.core.host_usage().free, 10);
  }
}

TEST(AgentCore, AnImageThatProvesWrongIsGivenUp) {
  for (const bool loaded : {true, false}) {
    SCOPED_TRACE(loaded);
    Bench bench;
    const ImageSpoilt spoilt{.model = kA, .error = {Code::kCorrupt, "another digest"}};
    EXPECT_TRUE(bench.tell(spoilt).empty());
    bench.load(kA);
    bench.said(bench.free_pages(kA, 10));
    EXPECT_EQ(find<EvictModel>(bench.tell(spoilt)), nullptr) << "its read has not ended";
    bench.tell(ReadEnded{.model = kA});
    if (!loaded) {
      bench.evict(kA);
      bench.said(ModelEvicted{.model = kA, .exchanged = true});
    }
    const auto given_up = bench.tell(spoilt);
    EXPECT_EQ(find<EvictModel>(given_up) != nullptr, loaded);
    EXPECT_NE(find<ForgetKv>(given_up), nullptr) << "what was computed with it is wrong";
    if (loaded) {
      const auto gone = bench.said(ModelEvicted{.model = kA});
      EXPECT_EQ(find<ImageFailed>(gone)->reason.message, "another digest");
    }
    EXPECT_EQ(bench.core.host_usage().free, 10);
  }
}

TEST(AgentCore, ARefusedLoadBringsTheImageHome) {
  Bench bench;
  bench.load(kA);
  bench.tell(ReadEnded{.model = kA});
  bench.said(LoadRefused{.model = kA, .reason = {Code::kResourceExhausted, "full"}});
  EXPECT_EQ(bench.core.host_usage().of(ledger::LeaseKind::kImage).held, 6);
}

TEST(AgentCore, KillsAWorkerThatReturnsWhatItDoesNotHave) {
  Bench bench;
  bench.load(kA);
  EXPECT_NE(find<KillWorker>(bench.said(bench.free_pages(kA, 0))), nullptr);
}

TEST(AgentCore, AnImageLargerThanTheCacheIsRefusedWithTheNumbers) {
  Bench bench;
  AgentModels models;
  models.models.push_back({.id = kA, .image_bytes = 1100, .footprint = {.image_pages = 11}});
  bench.tell(models);
  const auto commands = bench.load(kA);
  EXPECT_EQ(find<ImageFailed>(commands)->reason.code, Code::kInvalidArgument);
  EXPECT_NE(find<ImageFailed>(commands)->reason.message.find("11 pages"), std::string::npos);
}

TEST(AgentCore, AnImageThatADeviceCopiesIsNotDroppedUnderIt) {
  const DeviceId other{1};
  AgentCore core{AgentOptions{
      .host_pages = 6, .devices = {{.id = kDevice, .pages = 12}, {.id = other, .pages = 12}}}};
  const auto tell = [&](const AgentEvent& event) {
    std::vector<AgentCommand> commands;
    core.step(Instant{1s}, event, commands);
    core.check_invariants();
    return commands;
  };
  AgentModels models;
  for (const ModelId id : {kA, kB}) {
    models.models.push_back({.id = id, .image_bytes = 600, .footprint = {.image_pages = 6}});
  }
  tell(models);
  tell(StartAgent{});
  tell(WorkerConnected{.device = kDevice, .epoch = WorkerEpoch(1)});
  tell(WorkerConnected{.device = other, .epoch = WorkerEpoch(2)});
  tell(LoadOn{.device = kDevice, .model = kA, .basis = {.epoch = WorkerEpoch(1)}});
  PagesReturned returned{.model = kA};
  for (std::uint64_t page = 6; page < 12; ++page) {
    returned.pages.emplace_back(page);
  }
  tell(WorkerSaid{.device = kDevice, .epoch = WorkerEpoch(1), .report = returned});
  const auto copying =
      tell(LoadOn{.device = other, .model = kA, .basis = {.epoch = WorkerEpoch(2)}});
  ASSERT_NE(find<LoadModel>(copying), nullptr);
  EXPECT_EQ(find<LoadModel>(copying)->source, ImageSource::kShared);
  tell(ReadEnded{.model = kA});
  tell(LoadOn{.device = other, .model = kB, .basis = {.epoch = WorkerEpoch(2)}});

  const EvictFrom evict{.device = kDevice, .model = kA, .basis = {.epoch = WorkerEpoch(1)}};
  EXPECT_EQ(find<EvictModel>(tell(evict)), nullptr);  // The host is full of B.
  const auto copied = tell(
      WorkerSaid{.device = other, .epoch = WorkerEpoch(2), .report = ImageCopied{.model = kA}});
  ASSERT_NE(find<EvictModel>(copied), nullptr);
  EXPECT_TRUE(find<EvictModel>(copied)->pages.empty());
}

TEST(AgentCore, PagesOfADeviceWithMemoryOfItsOwnAreNumberedApartAndStayThere) {
  AgentCore core{
      AgentOptions{.host_pages = 10,
                   .devices = {{.id = kDevice, .pages = 12, .copy = true, .own_memory = true},
                               {.id = DeviceId(1), .pages = 4}}}};
  const auto tell = [&](Instant now, const AgentEvent& event) {
    std::vector<AgentCommand> commands;
    core.step(now, event, commands);
    core.check_invariants();
    return commands;
  };
  const policy::Footprint there{.image_pages = 6, .overhead_pages = 3};
  tell(Instant{1s},
       AgentModels{.models = {{.id = kA,
                               .image_bytes = 600,
                               .footprint = {.image_pages = 6, .overhead_pages = 1},
                               .gpu_footprint = there}}});
  const auto spawned = tell(Instant{1s}, StartAgent{});
  ASSERT_EQ(spawned.size(), 2U);
  EXPECT_EQ(std::get<SpawnWorker>(spawned[0]).pages.front(), PageId(0));
  EXPECT_EQ(std::get<SpawnWorker>(spawned[0]).pages.size(), 12U);
  EXPECT_EQ(std::get<SpawnWorker>(spawned[1]).pages.front(), PageId(10)) << "behind the host's";

  tell(Instant{1s}, WorkerConnected{.device = kDevice, .epoch = WorkerEpoch(1)});
  const auto loaded =
      tell(Instant{1s}, LoadOn{.device = kDevice, .model = kA, .basis = {.epoch = WorkerEpoch(1)}});
  ASSERT_NE(find<LoadModel>(loaded), nullptr);
  EXPECT_EQ(find<LoadModel>(loaded)->source, ImageSource::kShared);
  EXPECT_EQ(find<LoadModel>(loaded)->footprint, there);
  EXPECT_EQ(core.host_usage().free, 4) << "the image stays the host's";

  tell(Instant{2s}, WorkerExited{.device = kDevice, .epoch = WorkerEpoch(1)});
  const auto again = tell(Instant{60s}, ReadEnded{.model = kA});
  ASSERT_NE(find<SpawnWorker>(again), nullptr);
  EXPECT_EQ(find<SpawnWorker>(again)->pages, std::get<SpawnWorker>(spawned[0]).pages);
}

TEST(AgentCore, ImagesOfRemovedModelsGo) {
  Bench bench;
  bench.load(kA);
  bench.tell(ReadEnded{.model = kA});
  bench.said(LoadRefused{.model = kA, .reason = {Code::kResourceExhausted, "full"}});
  bench.tell(AgentModels{});
  EXPECT_EQ(bench.core.host_usage().free, 10);
}

TEST(AgentCore, AFailedReadEndsWhatWaitsForItsWeightsThoughAnEvictionIsOnItsWay) {
  Bench bench;
  bench.load(kA);
  bench.said(bench.free_pages(kA, 10));
  ASSERT_EQ(find<EvictModel>(bench.evict(kA))->mode, EvictMode::kWhenIdle);
  // A step may be waiting for the rest of the image, and the eviction for that step.
  const auto failed = bench.tell(ReadEnded{.model = kA, .error = Error{Code::kUnavailable, "no"}});
  ASSERT_NE(find<EvictModel>(failed), nullptr);
  EXPECT_EQ(find<EvictModel>(failed)->mode, EvictMode::kNow);
  const bool exchanged = !find<EvictModel>(failed)->pages.empty();
  EXPECT_FALSE(exchanged);
  const auto gone = bench.said(ModelEvicted{.model = kA, .exchanged = true});
  EXPECT_EQ(find<KillWorker>(gone), nullptr);
  EXPECT_NE(find<WorkerSaid>(gone), nullptr);
  // The manager has heard that it is gone, and may have asked for it again.
  EXPECT_TRUE(bench.said(ModelEvicted{.model = kA}).empty());
}

TEST(AgentCore, PagesAreLentOutOfAWorkersPoolAndComeBackWhenTheyAreBacked) {
  Bench bench;
  const auto asked =
      bench.tell(Borrow{.device = kDevice, .model = kB, .basis = {.epoch = kEpoch}, .pages = 6});
  ASSERT_NE(find<LendPages>(asked), nullptr);
  EXPECT_EQ(find<LendPages>(asked)->count, 6);
  const auto granted = bench.said(bench.free_pages(kB, 10));
  EXPECT_EQ(find<GrantLoan>(granted)->pages.size(), 6U);
  EXPECT_EQ(bench.core.host_usage().free, 10);  // They are not the host's.
  const auto repaid = bench.tell(Repay{.device = kDevice, .model = kB, .pages = 4});
  ASSERT_NE(find<BackPages>(repaid), nullptr);
  EXPECT_EQ(find<GivePages>(repaid), nullptr);  // Not before there is memory behind them.
  const auto backed = bench.tell(
      PagesBacked{.device = kDevice, .model = kB, .pages = find<BackPages>(repaid)->pages});
  EXPECT_EQ(find<GivePages>(backed)->pages.size(), 4U);
  EXPECT_EQ(find<EndLoan>(backed)->model, kB);
}

TEST(AgentCore, LentPagesAreNotGivenToTheNextLifeOfTheWorker) {
  Bench bench;
  bench.tell(Borrow{.device = kDevice, .model = kB, .basis = {.epoch = kEpoch}, .pages = 6});
  bench.said(bench.free_pages(kB, 10));
  const auto died = bench.tell(WorkerExited{.device = kDevice, .epoch = kEpoch});
  bench.now = find<WakeAt>(died)->at;
  const auto spawned = bench.tell(Tick{});
  ASSERT_NE(find<SpawnWorker>(spawned), nullptr);
  EXPECT_EQ(find<SpawnWorker>(spawned)->pages.size(), 6U);
  // What is repaid while it starts, it is told of as soon as it is up.
  const auto repaid = bench.tell(Repay{.device = kDevice, .model = kB, .pages = 6});
  const auto backed = bench.tell(
      PagesBacked{.device = kDevice, .model = kB, .pages = find<BackPages>(repaid)->pages});
  EXPECT_EQ(find<GivePages>(backed), nullptr);
  const auto up = bench.tell(WorkerConnected{.device = kDevice, .epoch = WorkerEpoch(2)});
  EXPECT_EQ(find<GivePages>(up)->pages.size(), 6U);
}

TEST(AgentCore, ALoanIsRefusedWhenTheWorkerDoesOrDies) {
  Bench bench;
  const Borrow borrow{.device = kDevice, .model = kB, .basis = {.epoch = kEpoch}, .pages = 6};
  bench.tell(borrow);
  const auto refused = bench.said(
      LoadRefused{.model = kB, .version = 1, .reason = {Code::kResourceExhausted, "no room"}});
  EXPECT_EQ(find<RefuseLoan>(refused)->reason.message, "no room");
  bench.tell(borrow);
  const auto died = bench.tell(WorkerExited{.device = kDevice, .epoch = kEpoch});
  EXPECT_EQ(find<RefuseLoan>(died)->model, kB);
  EXPECT_NE(find<RefuseLoan>(bench.tell(borrow)), nullptr);  // Of a life that has ended.
}

/// Two devices whose workers run one model in lockstep.
class Group : public testing::Test {
 protected:
  Group() {
    tell(AgentModels{.models = {{.id = kA, .image_bytes = 600, .footprint = {.image_pages = 6}},
                                {.id = kB, .image_bytes = 600, .footprint = {.image_pages = 6}}}});
    tell(StartAgent{});
    for (const GroupMember& member : form.members) {
      tell(WorkerConnected{.device = member.device, .epoch = member.epoch});
    }
  }

  std::vector<AgentCommand> tell(const AgentEvent& event) {
    std::vector<AgentCommand> commands;
    core.step(Instant{1s}, event, commands);
    core.check_invariants();
    return commands;
  }

  AgentCore core{AgentOptions{
      .host_pages = 20,
      .devices = {{.id = DeviceId(0), .pages = 12}, {.id = DeviceId(1), .pages = 12}}}};
  FormGroup form{{{.device = DeviceId(0), .epoch = WorkerEpoch(1), .model = kA},
                  {.device = DeviceId(1), .epoch = WorkerEpoch(2), .model = kB}}};
};

TEST_F(Group, ItIsConnectedAndThenTheManagerHears) {
  const auto commands = tell(form);
  ASSERT_EQ(commands.size(), 2U);
  EXPECT_EQ(std::get<ConnectGroup>(commands[0]).members, form.members);
  EXPECT_EQ(find<GroupFormed>(commands)->device, DeviceId(0));
}

TEST_F(Group, WhicheverDiesTheOthersAreEnded) {
  for (const std::size_t dies : {0U, 1U}) {
    core = AgentCore{AgentOptions{
        .host_pages = 20,
        .devices = {{.id = DeviceId(0), .pages = 12}, {.id = DeviceId(1), .pages = 12}}}};
    tell(StartAgent{});
    for (const GroupMember& member : form.members) {
      tell(WorkerConnected{.device = member.device, .epoch = member.epoch});
    }
    tell(form);
    const GroupMember& dead = form.members[dies];
    const auto commands =
        tell(WorkerExited{.device = dead.device, .epoch = dead.epoch, .killed = dies == 0});
    ASSERT_NE(find<KillWorker>(commands), nullptr);
    const GroupMember& other = form.members[1 - dies];
    EXPECT_EQ(find<KillWorker>(commands)->device, other.device);
    const auto ended =
        tell(WorkerExited{.device = other.device, .epoch = other.epoch, .killed = true});
    EXPECT_EQ(find<WorkerDown>(ended)->killed, dies == 0) << "as the first, whose fault it was";
  }
}

TEST_F(Group, OneThatIsDeadAlreadyIsNotWaitedFor) {
  tell(WorkerExited{.device = DeviceId(1), .epoch = WorkerEpoch(2)});
  const auto commands = tell(form);
  EXPECT_EQ(find<ConnectGroup>(commands), nullptr);
  EXPECT_EQ(find<GroupFormed>(commands), nullptr);
  ASSERT_NE(find<KillWorker>(commands), nullptr);
  EXPECT_EQ(find<KillWorker>(commands)->device, DeviceId(0));
}

TEST_F(Group, OnceItsLeaderHasEvictedItsShardItIsNone) {
  tell(LoadOn{.device = DeviceId(0), .model = kA, .basis = {.epoch = WorkerEpoch(1)}});
  const auto say = [&](auto report) {
    return tell(
        WorkerSaid{.device = DeviceId(0), .epoch = WorkerEpoch(1), .report = std::move(report)});
  };
  PagesReturned returned{.model = kA};
  for (std::uint64_t page = 20; page < 26; ++page) {
    returned.pages.emplace_back(page);
  }
  say(returned);
  tell(ReadEnded{.model = kA});
  tell(form);
  tell(EvictFrom{.device = DeviceId(0), .model = kA, .basis = {.epoch = WorkerEpoch(1)}});
  say(ModelEvicted{.model = kA, .exchanged = true});
  const auto commands = tell(WorkerExited{.device = DeviceId(1), .epoch = WorkerEpoch(2)});
  EXPECT_EQ(find<KillWorker>(commands), nullptr);
}

/// kA is fetched, kB read from disk.
AgentModels with_fetched() {
  return {
      .models = {{.id = kA, .image_bytes = 600, .footprint = {.image_pages = 4}, .fetched = true},
                 {.id = kB, .image_bytes = 600, .footprint = {.image_pages = 4}}}};
}

TEST(AgentCore, WhatIsFetchedHoldsNoReaderUp) {
  Bench bench;
  bench.tell(with_fetched());
  const auto fetched = bench.tell(LoadOn{.device = kDevice,
                                         .model = kA,
                                         .basis = {.epoch = kEpoch},
                                         .early = true,
                                         .due_in = std::chrono::seconds(3),
                                         .peers = {{.id = HostId(4), .name = "h4"}}});
  ASSERT_NE(find<StartRead>(fetched), nullptr);
  EXPECT_EQ(find<StartRead>(fetched)->peers.at(0).name, "h4");
  EXPECT_TRUE(find<StartRead>(fetched)->early);
  EXPECT_EQ(find<StartRead>(fetched)->due_in, std::chrono::seconds(3));
  const auto read = bench.load(kB);
  ASSERT_NE(find<StartRead>(read), nullptr);
  EXPECT_EQ(find<StartRead>(read)->model, kB);
  EXPECT_FALSE(find<StartRead>(read)->early);
  bench.tell(ReadEnded{.model = kB});
  const auto ended = bench.tell(ReadEnded{.model = kA});
  EXPECT_EQ(find<ImageProgress>(ended)->bytes, 600U);
}

/// The model leaves the device while it is fetched: its worker gives the pages back.
auto leave(Bench& bench) {
  bench.evict(kA);
  PagesReturned returned{.model = kA};
  for (std::uint64_t i = 10; i < 14; ++i) {
    returned.pages.emplace_back(i);
  }
  bench.said(returned);
  return bench.said(ModelEvicted{.model = kA, .exchanged = true});
}

TEST(AgentCore, AFetchThatNobodyWantsIsStopped) {
  Bench bench;
  bench.tell(with_fetched());
  bench.load(kA);
  bench.tell(ReadProgress{.model = kA, .bytes = 200});
  const auto evicted = leave(bench);
  ASSERT_NE(find<CancelRead>(evicted), nullptr);
  EXPECT_EQ(find<CancelRead>(evicted)->model, kA);
  bench.tell(ReadEnded{.model = kA, .error = Error{Code::kCancelled, "stopped"}});
  const auto again = bench.load(kA);
  EXPECT_NE(find<StartRead>(again), nullptr) << "it begins anew";
}

TEST(AgentCore, AFetchThatHasAllOfAnImageEndsByItself) {
  Bench bench;
  bench.tell(with_fetched());
  bench.load(kA);
  bench.tell(ReadProgress{.model = kA, .bytes = 600});
  const auto evicted = leave(bench);
  EXPECT_EQ(find<CancelRead>(evicted), nullptr);
  bench.tell(ReadEnded{.model = kA});
  EXPECT_EQ(find<StartRead>(bench.load(kA)), nullptr) << "it is at the host";
}

}  // namespace
}  // namespace heddle::core
