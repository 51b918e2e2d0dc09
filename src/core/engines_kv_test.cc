// KV of elastic engines, as their host shares it out.

#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "core/codec.h"
#include "core/engines_core.h"
#include "core/test_find.h"

namespace heddle::core {
namespace {

using namespace std::chrono_literals;
using test::find;
using testing::HasSubstr;

constexpr ModelId kA{1};
constexpr ModelId kB{2};
constexpr DeviceId kCounted{0};
constexpr DeviceId kWorkers{1};
constexpr std::int64_t kFixed = 10;
constexpr std::int64_t kLeast = 4;

/// Two elastic engines of 10 pages and 4 of KV at least, on a device of 40.
struct KvBench {
  explicit KvBench(DeviceId device = kCounted) : place(device) {
    configuration.devices = {{.id = kCounted, .pages = 40}};
    for (const ModelId id : {kA, kB}) {
      configuration.engines.push_back(
          {.model = id, .device = device, .pages = kFixed, .kv_least = kLeast});
    }
    tell(configuration);
  }

  std::vector<EnginesCommand> tell(const EnginesEvent& event) {
    std::vector<EnginesCommand> commands;
    core.step(now, event, commands);
    core.check_invariants();
    log += log_entry(now, event, commands);
    return commands;
  }
  EngineLife run(ModelId model) {
    auto commands = tell(LoadOn{.device = place, .model = model});
    if (find<Borrow>(commands) != nullptr) {
      commands = tell(LoanGranted{.model = model});
    }
    const EngineLife life = find<StartEngine>(commands)->life;
    lives[model] = life;
    tell(EngineStarted{.model = model, .life = life, .held_pages = kFixed});
    return life;
  }
  std::vector<EnginesCommand> limit(ModelId model, std::int64_t pages) {
    return tell(LimitKv{
        .device = place, .model = model, .basis = {.epoch = WorkerEpoch(1)}, .pages = pages});
  }
  std::vector<EnginesCommand> see(ModelId model,
                                  std::int64_t used,
                                  Duration later = 500ms,
                                  bool busy = true) {
    now += later;
    return tell(KvSeen{.model = model, .life = lives.at(model), .used_pages = used, .busy = busy});
  }
  [[nodiscard]] EngineStatus status(ModelId model) const {
    for (const EngineStatus& status : core.engines()) {
      if (status.model == model) {
        return status;
      }
    }
    return {};
  }
  [[nodiscard]] std::int64_t free() const { return core.usage(kCounted)->free; }

  DeviceId place;
  Instant now{100s};
  ConfigureEngines configuration{};
  EnginesCore core{};
  std::map<ModelId, EngineLife> lives{};
  std::string log{};
};

TEST(EnginesKv, AnElasticEngineBeginsWithItsLeast) {
  KvBench bench;
  const auto commands = bench.tell(LoadOn{.device = kCounted, .model = kA});
  const EngineLife life = find<StartEngine>(commands)->life;
  EXPECT_EQ(bench.free(), 40 - kFixed - kLeast);
  const auto started =
      bench.tell(EngineStarted{.model = kA, .life = life, .held_pages = kFixed + 2});
  EXPECT_EQ(find<SetKvLimit>(started)->pages, kLeast);
  EXPECT_EQ(find<EngineSaid>(started)->held_pages, kFixed + kLeast);
  EXPECT_EQ(*find<EngineKv>(started),
            (EngineKv{.device = kCounted,
                      .model = kA,
                      .firm_pages = kFixed + kLeast,
                      .fixed_pages = kFixed,
                      .least_pages = kLeast,
                      .limit_pages = kLeast,
                      .wanted_pages = kLeast}));
}

TEST(EnginesKv, GrowsByWhatIsFreeAndByTheRestWhenThatIs) {
  KvBench bench;
  bench.run(kA);
  bench.run(kB);
  EXPECT_EQ(find<SetKvLimit>(bench.limit(kA, 12))->pages, 12);
  EXPECT_EQ(bench.free(), 4);
  EXPECT_EQ(find<SetKvLimit>(bench.limit(kB, 10))->pages, 8);
  EXPECT_EQ(bench.free(), 0);
  bench.limit(kA, 8);
  EXPECT_EQ(bench.status(kA).kv_limit_pages, 12) << "it may have mapped them";
  bench.see(kA, 8);
  EXPECT_EQ(bench.free(), 4);
  EXPECT_EQ(find<SetKvLimit>(bench.see(kB, 8))->pages, 10);
}

TEST(EnginesKv, PagesAreFreeOnlyWhenTheEngineHasNoticedAndUnmappedThem) {
  KvBench bench;
  bench.run(kA);
  bench.limit(kA, 20);
  bench.see(kA, 18);
  EXPECT_EQ(bench.free(), 10);
  EXPECT_EQ(find<SetKvLimit>(bench.limit(kA, 6))->pages, 6);
  bench.see(kA, 6, 100ms);
  EXPECT_EQ(bench.free(), 10) << "what began before it noticed may still map pages";
  bench.see(kA, 9);
  EXPECT_EQ(bench.free(), 10) << "it has more than it was told";
  const auto seen = bench.see(kA, 6);
  EXPECT_EQ(bench.free(), 24);
  EXPECT_EQ(find<EngineKv>(seen)->limit_pages, 6);
}

TEST(EnginesKv, AnIdleEngineIsNudgedAndThenCountsAsOneThatDoesNotUnmap) {
  KvBench bench;
  bench.run(kA);
  bench.limit(kA, 20);
  bench.see(kA, 18);
  bench.limit(kA, 6);
  int nudges = 0;
  bool deaf = false;
  for (int i = 0; i < 12; ++i) {
    const auto seen = bench.see(kA, 18, 500ms, false);
    nudges += find<NudgeEngine>(seen) != nullptr ? 1 : 0;
    const auto* said = find<EngineKv>(seen);
    deaf = said != nullptr ? said->deaf : deaf;
  }
  EXPECT_EQ(nudges, 3);
  EXPECT_TRUE(deaf);
  EXPECT_EQ(bench.free(), 10);
  EXPECT_THAT(bench.status(kA).trouble,
              HasSubstr("does not unmap: its KV has 18 pages and was told 6"));
  const auto at_last = bench.see(kA, 6, 500ms, false);
  EXPECT_FALSE(find<EngineKv>(at_last)->deaf);
  EXPECT_EQ(find<SetKvLimit>(at_last)->pages, 6);
  EXPECT_EQ(bench.free(), 24);
  EXPECT_EQ(bench.status(kA).trouble, "");
}

TEST(EnginesKv, ABusyEngineIsNotNudged) {
  KvBench bench;
  bench.run(kA);
  bench.limit(kA, 20);
  bench.limit(kA, 6);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(find<NudgeEngine>(bench.see(kA, 18)), nullptr);
  }
}

TEST(EnginesKv, WhatItHasBeyondItsLimitIsNobodyElses) {
  KvBench bench;
  bench.run(kA);
  bench.see(kA, 9);
  EXPECT_EQ(bench.status(kA).kv_limit_pages, 9);
  EXPECT_EQ(bench.free(), 40 - kFixed - 9);
  EXPECT_THAT(bench.status(kA).trouble, HasSubstr("has 9 pages where it was allowed 4"));
  bench.see(kA, 1000);  // It lies, or the device is larger than was said.
  EXPECT_EQ(bench.free(), 0);
  EXPECT_EQ(bench.status(kA).kv_limit_pages, 30);
}

TEST(EnginesKv, OneThatCannotBeAskedKeepsItsLimit) {
  KvBench bench;
  const EngineLife life = bench.run(kA);
  bench.limit(kA, 20);
  const auto seen = bench.tell(
      KvSeen{.model = kA, .life = life, .error = Error{Code::kNotFound, "segment is missing"}});
  EXPECT_TRUE(find<EngineKv>(seen)->deaf);
  EXPECT_EQ(find<EngineKv>(seen)->firm_pages, kFixed + 20);
  EXPECT_EQ(find<SetKvLimit>(bench.limit(kA, 4)), nullptr);
  EXPECT_THAT(bench.status(kA).trouble, HasSubstr("segment is missing"));
  const auto back = bench.see(kA, 3);
  EXPECT_EQ(find<SetKvLimit>(back)->pages, 20);  // In case it has a new segment.
}

TEST(EnginesKv, AnEngineThatComesWaitsUntilOthersHaveUnmapped) {
  KvBench bench;
  bench.run(kA);
  bench.limit(kA, 28);
  EXPECT_EQ(bench.free(), 2);
  const auto waits = bench.tell(LoadOn{.device = kCounted, .model = kB});
  EXPECT_EQ(find<EngineSaid>(waits), nullptr);
  bench.limit(kA, 16);
  EXPECT_EQ(find<StartEngine>(bench.see(kA, 20)), nullptr);
  EXPECT_NE(find<StartEngine>(bench.see(kA, 15)), nullptr);
  EXPECT_EQ(bench.status(kB).state, EngineState::kStarting);
}

TEST(EnginesKv, AnEngineThatComesIsRefusedWhereOthersDoNotUnmap) {
  KvBench bench;
  bench.run(kA);
  bench.limit(kA, 28);
  bench.tell(LoadOn{.device = kCounted, .model = kB});
  const auto refused = bench.see(kA, 28, 21s);
  EXPECT_EQ(find<EngineSaid>(refused)->news, EngineNews::kRefused);
  EXPECT_THAT(find<EngineSaid>(refused)->reason.message, HasSubstr("did not unmap so much"));
  bench.tell(LoadOn{.device = kCounted, .model = kB});
  const auto evicted = bench.tell(EvictFrom{.device = kCounted, .model = kB});
  EXPECT_EQ(find<EngineSaid>(evicted)->news, EngineNews::kEnded);
}

TEST(EnginesKv, ADeathGivesAllBackAndHelpsThoseThatWait) {
  KvBench bench;
  const EngineLife life = bench.run(kA);
  bench.limit(kA, 28);
  bench.tell(LoadOn{.device = kCounted, .model = kB});
  const auto died = bench.tell(EngineExited{.model = kA, .life = life, .how = "signal 9"});
  EXPECT_NE(find<StartEngine>(died), nullptr);
  EXPECT_EQ(bench.free(), 40 - kFixed - kLeast);
  EXPECT_EQ(bench.status(kA).kv_limit_pages, 0);
}

TEST(EnginesKv, ASuspendedEngineHasNoKvOfItsOwn) {
  KvBench bench;
  bench.configuration.engines[0].levels = {spec::SuspendLevel::kSleep, spec::SuspendLevel::kStop};
  bench.tell(bench.configuration);
  const EngineLife life = bench.run(kA);
  bench.limit(kA, 20);
  bench.tell(EvictFrom{.device = kCounted, .model = kA, .free_pages = 25});
  EXPECT_TRUE(bench.see(kA, 20).empty());  // Looked at as it fell asleep.
  bench.tell(EngineSuspended{
      .model = kA, .life = life, .level = spec::SuspendLevel::kSleep, .held_pages = 2});
  EXPECT_EQ(bench.free(), 38);
  bench.tell(LoadOn{.device = kCounted, .model = kA});
  const auto back = bench.tell(EngineResumed{.model = kA, .life = life, .held_pages = 11});
  EXPECT_EQ(find<SetKvLimit>(back)->pages, kLeast);
  EXPECT_EQ(bench.free(), 40 - kFixed - kLeast);
}

TEST(EnginesKv, OfAWorkersDeviceMoreIsBorrowedAndLessRepaid) {
  KvBench bench(kWorkers);
  bench.run(kA);
  const auto asked = bench.limit(kA, 12);
  EXPECT_EQ(find<Borrow>(asked)->pages, 8);
  EXPECT_EQ(find<Borrow>(asked)->basis.epoch, WorkerEpoch(1));
  EXPECT_EQ(find<SetKvLimit>(asked), nullptr);
  EXPECT_EQ(find<SetKvLimit>(bench.tell(LoanGranted{.model = kA}))->pages, 12);
  bench.limit(kA, 20);
  const auto refused =
      bench.tell(LoanRefused{.model = kA, .reason = {Code::kResourceExhausted, "none"}});
  EXPECT_EQ(find<EngineKv>(refused)->wanted_pages, 12);
  bench.limit(kA, 5);
  const auto repaid = bench.see(kA, 5);
  EXPECT_EQ(find<Repay>(repaid)->pages, 7);
  EXPECT_EQ(find<EngineKv>(repaid), nullptr) << "they are not the worker's yet";
  EXPECT_EQ(find<EngineKv>(bench.tell(LoanRepaid{.model = kA}))->firm_pages, kFixed + 5);
}

TEST(EnginesKv, PagesThatAreLentToAnEngineThatHasDiedGoBack) {
  KvBench bench(kWorkers);
  const EngineLife life = bench.run(kA);
  bench.limit(kA, 12);
  bench.tell(EngineExited{.model = kA, .life = life, .how = "signal 9"});
  EXPECT_EQ(find<EngineSaid>(bench.tell(LoadOn{.device = kWorkers, .model = kA})), nullptr)
      << "it is said when what it gave up is with its device";
  EXPECT_EQ(find<Repay>(bench.tell(LoanGranted{.model = kA}))->pages, 8);
}

/// Engines that grow, forget, lie and die, in any order: no page is ever two's, and the log
/// replays.
TEST(EnginesKv, WhateverEnginesDoNoPageIsTwos) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    KvBench bench;
    for (int i = 0; i < 200; ++i) {
      const ModelId model = rng.below(2) == 0 ? kA : kB;
      const EngineStatus status = bench.status(model);
      const EngineLife life = bench.lives[model];
      const auto pages = static_cast<std::int64_t>(rng.below(40));
      bench.now += std::chrono::milliseconds(rng.below(900));
      switch (rng.below(8)) {
        case 0:
          if (const auto commands = bench.tell(LoadOn{.device = kCounted, .model = model});
              const auto* start = find<StartEngine>(commands)) {
            bench.lives[model] = start->life;
          }
          break;
        case 1:
          bench.tell(EngineStarted{.model = model, .life = life, .held_pages = kFixed});
          break;
        case 2:
          bench.tell(EngineExited{.model = model, .life = life, .how = "signal 9"});
          break;
        case 3:
          bench.tell(EvictFrom{.device = kCounted, .model = model});
          break;
        case 4:
        case 5:
          bench.limit(model, pages);
          break;
        default:
          bench.tell(KvSeen{.model = model,
                            .life = life,
                            .used_pages = std::min(pages, status.kv_limit_pages + 3),
                            .busy = rng.below(2) == 0});
      }
      // A life that a waiting load has begun.
      for (const EngineStatus& each : bench.core.engines()) {
        if (each.state == EngineState::kStarting) {
          bench.lives[each.model] = EngineLife(bench.status(kA).starts + bench.status(kB).starts);
        }
      }
    }
    EnginesCore again;
    EXPECT_TRUE(replay(again, bench.log).has_value());
  }
}

}  // namespace
}  // namespace heddle::core
