#include "core/engines_core.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "core/codec.h"
#include "core/test_find.h"

namespace heddle::core {
namespace {

using namespace std::chrono_literals;
using spec::SuspendLevel;
using test::find;

constexpr ModelId kA{1};
constexpr ModelId kB{2};
constexpr DeviceId kCounted{0};
constexpr DeviceId kWorkers{1};

/// An EnginesCore with a device of 20 pages without a worker, and two engines of 12 pages.
class Bench {
 public:
  explicit Bench(std::vector<SuspendLevel> levels = {SuspendLevel::kFreeze,
                                                     SuspendLevel::kSleep,
                                                     SuspendLevel::kCheckpoint,
                                                     SuspendLevel::kStop}) {
    configuration.devices = {{.id = kCounted, .pages = 20}};
    configuration.host_pages = 15;
    for (const ModelId id : {kA, kB}) {
      configuration.engines.push_back(
          {.model = id, .device = kCounted, .pages = 12, .levels = levels});
    }
  }

  std::vector<EnginesCommand> tell(const EnginesEvent& event) {
    std::vector<EnginesCommand> commands;
    core.step(now, event, commands);
    core.check_invariants();
    log += log_entry(now, event, commands);
    return commands;
  }
  void begin() { tell(configuration); }

  std::vector<EnginesCommand> load(ModelId model, DeviceId device = kCounted) {
    return tell(LoadOn{.device = device, .model = model});
  }
  /// Loads and starts it.
  EngineLife run(ModelId model) {
    const auto start = load(model);
    const EngineLife life = find<StartEngine>(start)->life;
    now += 5s;
    tell(EngineStarted{.model = model, .life = life, .held_pages = 11});
    return life;
  }
  std::vector<EnginesCommand> evict(ModelId model,
                                    std::int64_t free_pages,
                                    EvictMode mode = EvictMode::kWhenIdle) {
    return tell(
        EvictFrom{.device = kCounted, .model = model, .mode = mode, .free_pages = free_pages});
  }
  [[nodiscard]] EngineStatus status(ModelId model) const {
    for (const EngineStatus& status : core.engines()) {
      if (status.model == model) {
        return status;
      }
    }
    return {};
  }

  Instant now{100s};
  ConfigureEngines configuration{};
  EnginesCore core{};
  std::string log{};  ///< All that was heard and wanted.
};

TEST(EnginesCore, ReservesBeforeItStartsAndSaysWhenItServes) {
  Bench bench;
  bench.begin();
  const auto commands = bench.load(kA);
  const auto* start = find<StartEngine>(commands);
  ASSERT_NE(start, nullptr);
  EXPECT_EQ(bench.core.usage(kCounted)->free, 8);
  bench.now += 3s;
  const auto started =
      bench.tell(EngineStarted{.model = kA, .life = start->life, .held_pages = 10});
  EXPECT_EQ(find<EngineSaid>(started)->news, EngineNews::kServing);
  EXPECT_EQ(bench.core.usage(kCounted)->of(ledger::LeaseKind::kExternal),
            (ledger::Share{.reserved = 12, .held = 10}));
  EXPECT_EQ(bench.status(kA).costs[static_cast<std::size_t>(SuspendLevel::kStop)].in, 3s);
}

TEST(EnginesCore, DoesNotStartWhatHasNoRoom) {
  Bench bench;
  bench.begin();
  bench.run(kA);
  const auto refused = bench.load(kB);
  EXPECT_EQ(find<StartEngine>(refused), nullptr);
  EXPECT_EQ(find<EngineSaid>(refused)->news, EngineNews::kRefused);
  EXPECT_EQ(bench.status(kB).state, EngineState::kStopped);
}

TEST(EnginesCore, AFailedStartLeavesNothing) {
  Bench bench;
  bench.begin();
  const EngineLife life = find<StartEngine>(bench.load(kA))->life;
  const auto failed = bench.tell(
      EngineStarted{.model = kA, .life = life, .error = Error{Code::kUnavailable, "exit 1"}});
  EXPECT_EQ(find<EngineSaid>(failed)->news, EngineNews::kFailed);
  EXPECT_EQ(find<EngineSaid>(failed)->reason.message, "exit 1");
  EXPECT_EQ(bench.core.usage(kCounted)->free, 20);
}

TEST(EnginesCore, TakesTheCheapestLevelThatCanFreeTheMemory) {
  Bench bench;
  bench.begin();
  const EngineLife life = bench.run(kA);
  const auto suspend = bench.evict(kA, 8);
  ASSERT_NE(find<SuspendEngine>(suspend), nullptr);
  EXPECT_EQ(find<SuspendEngine>(suspend)->level, SuspendLevel::kSleep);  // Freezing frees nothing.
  bench.now += 1s;
  const auto left = bench.tell(
      EngineSuspended{.model = kA, .life = life, .level = SuspendLevel::kSleep, .held_pages = 2});
  EXPECT_EQ(find<EngineSaid>(left)->news, EngineNews::kSuspended);
  EXPECT_EQ(find<EngineSaid>(left)->held_pages, 2);
  EXPECT_EQ(bench.core.usage(kCounted)->free, 18);
  EXPECT_EQ(bench.status(kA).level, SuspendLevel::kSleep);
  EXPECT_EQ(bench.status(kA).costs[static_cast<std::size_t>(SuspendLevel::kSleep)].out, 1s);
}

TEST(EnginesCore, WhatNeedOnlyNotRunIsFrozen) {
  Bench bench;
  bench.begin();
  bench.run(kA);
  EXPECT_EQ(find<SuspendEngine>(bench.evict(kA, 0))->level, SuspendLevel::kFreeze);
}

TEST(EnginesCore, WhatHasToFreeNothingMayHoldMoreThanBefore) {
  Bench bench;
  bench.begin();
  const EngineLife life = bench.run(kA);
  ASSERT_NE(find<SuspendEngine>(bench.evict(kA, 0)), nullptr);
  const auto left = bench.tell(
      EngineSuspended{.model = kA, .life = life, .level = SuspendLevel::kFreeze, .held_pages = 13});
  ASSERT_NE(find<EngineSaid>(left), nullptr);
  EXPECT_EQ(find<EngineSaid>(left)->news, EngineNews::kSuspended);
  EXPECT_EQ(bench.status(kA).costs[static_cast<std::size_t>(SuspendLevel::kFreeze)].insufficient,
            0);
  EXPECT_EQ(bench.core.usage(kCounted)->free, 8);
}

TEST(EnginesCore, EscalatesWhenTheMemoryDidNotComeFree) {
  Bench bench;
  bench.begin();
  const EngineLife life = bench.run(kA);
  bench.evict(kA, 8);
  const auto leaked = bench.tell(
      EngineSuspended{.model = kA, .life = life, .level = SuspendLevel::kSleep, .held_pages = 9});
  EXPECT_EQ(find<SuspendEngine>(leaked)->level, SuspendLevel::kCheckpoint);
  EXPECT_EQ(bench.core.usage(kCounted)->free, 8);  // Nothing counts as free yet.
  const auto left = bench.tell(EngineSuspended{.model = kA,
                                               .life = life,
                                               .level = SuspendLevel::kCheckpoint,
                                               .held_pages = 0,
                                               .host_pages = 11});
  EXPECT_EQ(find<EngineSaid>(left)->news, EngineNews::kSuspended);
  EXPECT_EQ(bench.status(kA).host_pages, 11);
  EXPECT_FALSE(bench.status(kA).trouble.empty());
  // The next time it is known that sleeping is not enough.
  const auto resume = bench.load(kA);
  ASSERT_NE(find<ResumeEngine>(resume), nullptr);
  bench.tell(EngineResumed{.model = kA, .life = life, .held_pages = 11});
  EXPECT_EQ(bench.status(kA).host_pages, 0);
  EXPECT_EQ(find<SuspendEngine>(bench.evict(kA, 8))->level, SuspendLevel::kCheckpoint);
}

TEST(EnginesCore, ACheckpointThatTheHostCannotHoldIsNotTried) {
  Bench bench({SuspendLevel::kCheckpoint, SuspendLevel::kStop});
  bench.configuration.host_pages = 10;
  bench.begin();
  const EngineLife life = bench.run(kA);  // Holds 11.
  const auto stop = bench.evict(kA, 8);
  ASSERT_NE(find<StopEngine>(stop), nullptr);
  const auto ended = bench.tell(EngineExited{.model = kA, .life = life, .how = "signal 15"});
  EXPECT_EQ(find<EngineSaid>(ended)->news, EngineNews::kEnded);
  EXPECT_EQ(bench.core.usage(kCounted)->free, 20);
  EXPECT_EQ(bench.status(kA).deaths, 0U);
}

TEST(EnginesCore, AFailedSuspensionGoesOnToTheNextLevel) {
  Bench bench;
  bench.begin();
  const EngineLife life = bench.run(kA);
  bench.evict(kA, 8);
  const auto failed = bench.tell(EngineSuspended{.model = kA,
                                                 .life = life,
                                                 .level = SuspendLevel::kSleep,
                                                 .error = Error{Code::kUnavailable, "404"}});
  EXPECT_EQ(find<SuspendEngine>(failed)->level, SuspendLevel::kCheckpoint);
}

TEST(EnginesCore, SleepsDeeplyWhereTheHostCannotHoldWhatSleepSaves) {
  Bench bench({SuspendLevel::kSleep, SuspendLevel::kDeepSleep, SuspendLevel::kStop});
  bench.begin();  // The host has 15 pages.
  const auto suspended = [&](ModelId model, EngineLife life, SuspendLevel level, int host) {
    return bench.tell(EngineSuspended{
        .model = model, .life = life, .level = level, .held_pages = 1, .host_pages = host});
  };
  const EngineLife a = bench.run(kA);
  bench.evict(kA, 8);
  suspended(kA, a, SuspendLevel::kSleep, 9);
  EXPECT_EQ(bench.status(kA).host_pages, 9);
  const EngineLife b = bench.run(kB);
  // What sleep saves of the other is not known before it was tried.
  EXPECT_EQ(find<SuspendEngine>(bench.evict(kB, 8))->level, SuspendLevel::kSleep);
  const auto deeper = suspended(kB, b, SuspendLevel::kSleep, 9);
  ASSERT_NE(find<SuspendEngine>(deeper), nullptr);
  EXPECT_EQ(find<SuspendEngine>(deeper)->level, SuspendLevel::kDeepSleep);
  EXPECT_NE(bench.status(kB).trouble.find("9 pages to the host, where 6 were free"),
            std::string::npos)
      << bench.status(kB).trouble;
  const auto left = suspended(kB, b, SuspendLevel::kDeepSleep, 0);
  EXPECT_EQ(find<EngineSaid>(left)->news, EngineNews::kSuspended);
  EXPECT_EQ(bench.status(kB).host_pages, 0);
  // Now it is, and counts as long as the host is full.
  bench.load(kB);
  bench.tell(EngineResumed{.model = kB, .life = b, .held_pages = 11});
  EXPECT_EQ(find<SuspendEngine>(bench.evict(kB, 8))->level, SuspendLevel::kDeepSleep);
  suspended(kB, b, SuspendLevel::kDeepSleep, 0);
  bench.load(kA);
  bench.tell(EngineResumed{.model = kA, .life = a, .held_pages = 11});
  EXPECT_EQ(find<SuspendEngine>(bench.evict(kA, 8))->level, SuspendLevel::kSleep);
}

TEST(EnginesCore, OneThatGaveItsMemoryUpDoesNotWakeToSleepDeeper) {
  Bench bench({SuspendLevel::kSleep, SuspendLevel::kDeepSleep, SuspendLevel::kStop});
  bench.begin();
  const EngineLife life = bench.run(kA);
  bench.evict(kA, 8);
  bench.tell(
      EngineSuspended{.model = kA, .life = life, .level = SuspendLevel::kSleep, .held_pages = 2});
  bench.run(kB);  // The memory it would wake in is another's.
  const auto further = bench.evict(kA, 1);
  EXPECT_EQ(find<SuspendEngine>(further), nullptr);
  EXPECT_NE(find<StopEngine>(further), nullptr);
}

TEST(EnginesCore, AReloadThatFailsEndsInAStartAndAfterTwoInAnotherLevel) {
  Bench bench({SuspendLevel::kDeepSleep, SuspendLevel::kStop});
  bench.begin();
  for (int i = 0; i < 2; ++i) {
    const EngineLife life = bench.run(kA);
    EXPECT_EQ(find<SuspendEngine>(bench.evict(kA, 8))->level, SuspendLevel::kDeepSleep);
    bench.tell(EngineSuspended{
        .model = kA, .life = life, .level = SuspendLevel::kDeepSleep, .held_pages = 1});
    bench.load(kA);
    const auto failed = bench.tell(EngineResumed{
        .model = kA, .life = life, .error = Error{Code::kUnavailable, "/collective_rpc: 500"}});
    EXPECT_NE(find<StopEngine>(failed), nullptr);
    const auto lost = bench.tell(EngineExited{.model = kA, .life = life, .how = "signal 15"});
    EXPECT_EQ(find<EngineSaid>(lost)->news, EngineNews::kLost);
  }
  bench.run(kA);
  EXPECT_NE(find<StopEngine>(bench.evict(kA, 8)), nullptr);
}

TEST(EnginesCore, WithRequestsItIsOnlySuspendedByWhatKeepsThem) {
  Bench bench({SuspendLevel::kSleep, SuspendLevel::kStop});
  bench.begin();
  const EngineLife life = bench.run(kA);
  const auto kept = bench.evict(kA, 8, EvictMode::kFrozen);
  EXPECT_EQ(find<SuspendEngine>(kept), nullptr);
  EXPECT_EQ(find<StopEngine>(kept), nullptr);
  EXPECT_EQ(find<EngineSaid>(kept)->news, EngineNews::kServing);
  EXPECT_EQ(bench.status(kA).state, EngineState::kRunning);
  EXPECT_EQ(bench.core.usage(kCounted)->free, 8);
  EXPECT_NE(find<SuspendEngine>(bench.evict(kA, 8)), nullptr);
  bench.tell(EngineExited{.model = kA, .life = life, .how = "signal 9"});
}

TEST(EnginesCore, GarbageAfterAResumeEndsTheEngineAndItsRequestsWaitAgain) {
  Bench bench({SuspendLevel::kSleep, SuspendLevel::kStop});
  bench.begin();
  EngineLife life{};
  for (int i = 0; i < 2; ++i) {
    life = bench.run(kA);
    EXPECT_EQ(find<SuspendEngine>(bench.evict(kA, 8))->level, SuspendLevel::kSleep);
    bench.tell(
        EngineSuspended{.model = kA, .life = life, .level = SuspendLevel::kSleep, .held_pages = 1});
    bench.load(kA);
    const auto garbage = bench.tell(
        EngineResumed{.model = kA, .life = life, .error = Error{Code::kCorrupt, "answered '!!!'"}});
    EXPECT_NE(find<StopEngine>(garbage), nullptr);
    EXPECT_EQ(find<EngineSaid>(garbage), nullptr);
    const auto lost = bench.tell(EngineExited{.model = kA, .life = life, .how = "signal 15"});
    EXPECT_EQ(find<EngineSaid>(lost)->news, EngineNews::kLost);
  }
  // It is not put to sleep a third time.
  life = bench.run(kA);
  EXPECT_NE(find<StopEngine>(bench.evict(kA, 8)), nullptr);
}

TEST(EnginesCore, AnEngineThatDiesGivesItsMemoryBack) {
  Bench bench;
  bench.begin();
  const EngineLife life = bench.run(kA);
  const auto died = bench.tell(EngineExited{.model = kA, .life = life, .how = "signal 11"});
  EXPECT_EQ(find<EngineSaid>(died)->news, EngineNews::kLost);
  EXPECT_NE(find<EngineSaid>(died)->reason.message.find("signal 11"), std::string::npos);
  EXPECT_EQ(bench.core.usage(kCounted)->free, 20);
  EXPECT_EQ(bench.status(kA).deaths, 1U);
}

TEST(EnginesCore, AnOperatorGetsAllItsMemory) {
  Bench bench;
  bench.begin();
  const EngineLife life = bench.run(kA);
  bench.evict(kA, 8);
  bench.tell(
      EngineSuspended{.model = kA, .life = life, .level = SuspendLevel::kSleep, .held_pages = 2});
  EXPECT_NE(find<StopEngine>(bench.evict(kA, INT64_MAX, EvictMode::kNow)), nullptr);
  bench.tell(EngineExited{.model = kA, .life = life, .how = "exit status 0"});
  EXPECT_EQ(bench.core.usage(kCounted)->free, 20);
}

TEST(EnginesCore, MemoryOfAWorkersDeviceIsBorrowedAndRepaid) {
  Bench bench({SuspendLevel::kReclaim, SuspendLevel::kStop});
  bench.configuration.engines[0].device = kWorkers;
  bench.begin();
  const auto asked = bench.load(kA, kWorkers);
  ASSERT_NE(find<Borrow>(asked), nullptr);
  EXPECT_EQ(find<Borrow>(asked)->pages, 12);
  EXPECT_EQ(find<StartEngine>(asked), nullptr);
  const auto granted = bench.tell(LoanGranted{.model = kA});
  const EngineLife life = find<StartEngine>(granted)->life;
  bench.tell(EngineStarted{.model = kA, .life = life, .held_pages = 12});
  bench.tell(EvictFrom{.device = kWorkers, .model = kA, .free_pages = 5});
  const auto left = bench.tell(
      EngineSuspended{.model = kA, .life = life, .level = SuspendLevel::kReclaim, .held_pages = 4});
  EXPECT_EQ(find<Repay>(left)->pages, 8);
  EXPECT_EQ(find<EngineSaid>(left), nullptr);  // Its pages are nobody's yet.
  const auto repaid = bench.tell(LoanRepaid{.model = kA});
  EXPECT_EQ(find<EngineSaid>(repaid)->news, EngineNews::kSuspended);
  EXPECT_EQ(find<EngineSaid>(repaid)->held_pages, 4);
  EXPECT_EQ(find<Borrow>(bench.load(kA, kWorkers))->pages, 8);
  const auto refused =
      bench.tell(LoanRefused{.model = kA, .reason = {Code::kResourceExhausted, "no room"}});
  EXPECT_EQ(find<EngineSaid>(refused)->news, EngineNews::kRefused);
  EXPECT_EQ(find<EngineSaid>(refused)->held_pages, 4);
  EXPECT_EQ(bench.status(kA).state, EngineState::kSuspended);
}

TEST(EnginesCore, ALoanThatNobodyWantsAnyMoreIsRepaidAtOnce) {
  Bench bench;
  bench.configuration.engines[0].device = kWorkers;
  bench.begin();
  bench.load(kA, kWorkers);
  EXPECT_EQ(find<EngineSaid>(bench.tell(EvictFrom{.device = kWorkers, .model = kA})), nullptr);
  const auto granted = bench.tell(LoanGranted{.model = kA});
  EXPECT_EQ(find<Repay>(granted)->pages, 12);
  EXPECT_EQ(find<StartEngine>(granted), nullptr);
  EXPECT_EQ(find<EngineSaid>(bench.tell(LoanRepaid{.model = kA}))->news, EngineNews::kEnded);
}

TEST(EnginesCore, MemoryThatIsUnknownIsLearned) {
  Bench bench({SuspendLevel::kStop});
  bench.configuration.engines[0].pages = 0;
  bench.begin();
  const EngineLife life = find<StartEngine>(bench.load(kA))->life;
  bench.tell(EngineStarted{.model = kA, .life = life, .held_pages = 14});
  EXPECT_EQ(bench.core.usage(kCounted)->free, 6);
  bench.evict(kA, 5);
  bench.tell(EngineExited{.model = kA, .life = life, .how = "exit status 0"});
  bench.run(kB);
  EXPECT_EQ(find<EngineSaid>(bench.load(kA))->news, EngineNews::kRefused);  // 14 are not there.
}

TEST(EnginesCore, GrowthBeyondWhatWasReservedIsBookedAsFarAsItGoesAndSaid) {
  Bench bench;
  bench.begin();
  const EngineLife life = bench.run(kA);
  bench.tell(EngineMeasured{.model = kA, .life = life, .held_pages = 15});
  EXPECT_EQ(bench.core.usage(kCounted)->free, 5);
  EXPECT_TRUE(bench.status(kA).trouble.empty());
  bench.tell(EngineMeasured{.model = kA, .life = life, .held_pages = 30});
  EXPECT_EQ(bench.core.usage(kCounted)->free, 0);
  EXPECT_FALSE(bench.status(kA).trouble.empty());
}

TEST(EnginesCore, ARemovedEngineIsForgottenWhenItHasEnded) {
  Bench bench;
  bench.begin();
  const EngineLife life = bench.run(kA);
  bench.configuration.engines.erase(bench.configuration.engines.begin());
  bench.begin();
  EXPECT_EQ(bench.core.engines().size(), 2U);
  bench.evict(kA, INT64_MAX, EvictMode::kNow);
  bench.tell(EngineExited{.model = kA, .life = life, .how = "exit status 0"});
  EXPECT_EQ(bench.core.engines().size(), 1U);
}

/// Whatever comes in whatever order, memory is never promised twice, and the log of it replays.
TEST(EnginesCore, KeepsItsBooksWhateverHappens) {
  const std::uint64_t seed = 20261121;
  SCOPED_TRACE(seed);
  Rng rng(seed);
  for (int round = 0; round < 300; ++round) {
    Bench bench({SuspendLevel::kFreeze,
                 SuspendLevel::kSleep,
                 SuspendLevel::kDeepSleep,
                 SuspendLevel::kCheckpoint,
                 SuspendLevel::kStop});
    bench.begin();
    std::vector<EnginesCommand> open;
    for (int i = 0; i < 60; ++i) {
      bench.now += 1s;
      const ModelId model = rng.below(2) == 0 ? kA : kB;
      const EngineStatus status = bench.status(model);
      std::vector<EnginesCommand> more;
      switch (rng.below(4)) {
        case 0:
          more = bench.load(model);
          break;
        case 1:
          more = bench.evict(model,
                             static_cast<std::int64_t>(rng.below(13)),
                             rng.below(4) == 0 ? EvictMode::kFrozen : EvictMode::kWhenIdle);
          break;
        default:
          if (open.empty()) {
            break;
          }
          const EnginesCommand command = open[rng.below(open.size())];
          std::erase_if(open, [&](const auto& other) { return &other == &command; });
          const auto held = static_cast<std::int64_t>(rng.below(13));
          const auto error =
              rng.below(4) == 0 ? std::optional(Error{Code::kUnavailable, "x"}) : std::nullopt;
          if (const auto* start = std::get_if<StartEngine>(&command)) {
            more = bench.tell(EngineStarted{
                .model = start->model, .life = start->life, .held_pages = held, .error = error});
          } else if (const auto* suspend = std::get_if<SuspendEngine>(&command)) {
            more = bench.tell(EngineSuspended{.model = suspend->model,
                                              .life = suspend->life,
                                              .level = suspend->level,
                                              .held_pages = held,
                                              .host_pages = held,
                                              .error = error});
          } else if (const auto* resume = std::get_if<ResumeEngine>(&command)) {
            more = bench.tell(EngineResumed{
                .model = resume->model, .life = resume->life, .held_pages = held, .error = error});
          } else if (const auto* stop = std::get_if<StopEngine>(&command)) {
            more = bench.tell(
                EngineExited{.model = stop->model, .life = stop->life, .how = "signal 9"});
          }
      }
      for (const EnginesCommand& command : more) {
        open.push_back(command);
      }
    }
    EnginesCore again;
    const Result<std::int64_t> replayed = replay(again, bench.log);
    ASSERT_TRUE(replayed) << replayed.error().message;
  }
}

}  // namespace
}  // namespace heddle::core
