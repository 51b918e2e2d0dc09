#include "core/manager/manager_core.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/check.h"
#include "core/manager/test_bench.h"
#include "core/test_find.h"

namespace heddle::core {
namespace {

using namespace std::chrono_literals;
using test::find;

using test::Bench;
using test::kA;
using test::kB;
using test::kDevice;

/// One device of 20 pages, on which only one of two models of 12 pages fits.
Configure one_device() {
  Configure configuration{.options = {.queue_per_model = 3, .drain_after = 1s, .load_attempts = 2},
                          .devices = {{.id = kDevice, .name = "d", .pages = 20}}};
  for (const ModelId id : {kA, kB}) {
    configuration.models.push_back(
        {.id = id,
         .name = id == kA ? "a" : "b",
         .context = 1000,
         .min_residence = 3s,
         .footprints = {{kDevice, {.image_pages = 12, .min_kv_pages = 1, .kv = test::kKv}}}});
  }
  return configuration;
}

TEST(ManagerCore, HoldsARequestUntilItsModelServes) {
  Bench bench(one_device());
  const auto arrived = bench.ask(1, kA);
  EXPECT_NE(find<Hold>(arrived), nullptr);
  EXPECT_EQ(find<LoadOn>(arrived)->model, kA);
  EXPECT_EQ(find<Dispatch>(bench.report(ModelServing{.model = kA}))->request, RequestId(1));
  EXPECT_NE(find<Dispatch>(bench.ask(2, kA)), nullptr);
}

TEST(ManagerCore, AnIdleModelGoesAtOnceInOneRoundTrip) {
  Bench bench(one_device());
  bench.ask(1, kA);
  bench.report(ModelServing{.model = kA});
  bench.finish(1);
  const auto commands = bench.ask(2, kB);
  EXPECT_EQ(find<EvictFrom>(commands)->model, kA);
  EXPECT_EQ(find<LoadOn>(commands)->model, kB);
}

// Of two models of 5 pages and 1 of KV, with these workspaces, whether the second has room beside
// the first on a device of so many pages.
bool fits_beside(std::int64_t first, std::int64_t second, std::int64_t pages) {
  Bench bench(one_device());
  bench.configuration.devices[0].pages = pages;
  for (std::size_t i = 0; i < 2; ++i) {
    bench.configuration.models[i].footprints.at(kDevice).image_pages = 5;
    bench.configuration.models[i].footprints.at(kDevice).overhead_pages = i == 0 ? first : second;
  }
  bench.tell(bench.configuration);
  bench.ask(1, kA);
  bench.report(ModelServing{.model = kA});
  bench.finish(1);
  const auto commands = bench.ask(2, kB);
  HEDDLE_CHECK(find<LoadOn>(commands) != nullptr);
  return find<EvictFrom>(commands) == nullptr;
}

TEST(ManagerCore, ModelsOfADeviceShareTheLargestWorkspace) {
  for (const auto& [first, second] :
       {std::pair{4, 4}, std::pair{4, 2}, std::pair{1, 4}, std::pair{4, 0}}) {
    EXPECT_TRUE(fits_beside(first, second, 5 + 5 + 2 + 4));
    EXPECT_FALSE(fits_beside(first, second, 5 + 5 + 2 + 3));
  }
}

TEST(ManagerCore, ABusyModelIsDrainedWhenTheOtherHasWaitedAndItHasStayedLongEnough) {
  Bench bench(one_device());
  bench.ask(1, kA);
  bench.report(ModelServing{.model = kA});
  const auto waits = bench.ask(2, kB);
  EXPECT_EQ(find<WakeAt>(waits)->at, bench.now + 1s);
  bench.now += 1s;
  EXPECT_EQ(find<WakeAt>(bench.tell(Tick{}))->at, bench.now + 2s);  // Its minimum residence.
  EXPECT_NE(find<Dispatch>(bench.ask(3, kA)), nullptr);
  bench.now += 2s;
  bench.tell(Tick{});
  EXPECT_EQ(find<Dispatch>(bench.ask(4, kA)), nullptr);  // It is sent nothing more.
  EXPECT_EQ(find<EvictFrom>(bench.finish(1)), nullptr);
  const auto idle = bench.finish(3);
  EXPECT_EQ(find<EvictFrom>(idle)->model, kA);
  EXPECT_EQ(find<LoadOn>(idle)->model, kB);
}

TEST(ManagerCore, ADrainEndsWhenEnoughWasGivenBack) {
  Bench bench(one_device());
  bench.configuration.devices[0].pages = 30;
  bench.tell(bench.configuration);
  const auto holds = [&bench](std::int64_t pages) {
    return bench.report(DeviceReport{
        .models = {{.model = kA, .residency = Residency::kServing, .kv_pages = pages}}});
  };
  bench.ask(1, kA);
  bench.report(ModelServing{.model = kA});
  holds(10);
  bench.ask(2, kB);
  bench.now += 10s;
  bench.tell(Tick{});
  EXPECT_EQ(find<Dispatch>(bench.ask(3, kA)), nullptr) << "it is drained";
  EXPECT_EQ(find<LoadOn>(holds(6)), nullptr) << "12 pages each, 1 of KV and these: 31";
  const auto enough = holds(5);
  EXPECT_EQ(find<LoadOn>(enough)->model, kB);
  EXPECT_EQ(find<EvictFrom>(enough), nullptr) << "nobody has to go";
  EXPECT_NE(find<Dispatch>(bench.ask(4, kA)), nullptr);
}

TEST(ManagerCore, ADrainIsCalledOffWhenNobodyWantsItAnyMore) {
  Bench bench(one_device());
  bench.ask(1, kA);
  bench.report(ModelServing{.model = kA});
  bench.ask(2, kB);
  bench.now += 10s;
  bench.tell(Tick{});
  bench.ask(3, kA);
  EXPECT_EQ(find<Dispatch>(bench.tell(RequestCancelled{.request = RequestId(2)}))->request,
            RequestId(3));
}

TEST(ManagerCore, TellsWhenTheFirstTokenIsDueByTheObjectiveOfItsModel) {
  Bench bench(one_device());
  bench.configuration.models[0].slo = {.ttft = 700ms};
  bench.tell(bench.configuration);
  bench.ask(1, kA);
  bench.now += 300ms;
  EXPECT_EQ(find<Dispatch>(bench.report(ModelServing{.model = kA}))->due, 400ms);
  EXPECT_EQ(bench.core.models()[0].objectives,
            (policy::Objectives{.ttft = 700ms, .tpot = policy::kUnmeasured.tpot}));
}

// Only answers that had the warm model and its device to themselves say how fast it is.
TEST(ManagerCore, DerivesObjectivesFromAnswersThatNobodyDisturbed) {
  Bench bench(one_device());
  const auto ends = [&bench](std::uint64_t id) {
    bench.tell(RequestFinished{.request = RequestId(id), .ttft = 40ms, .tpot = 5ms});
    return bench.core.models()[0].objectives;
  };
  bench.ask(1, kA);
  bench.report(ModelServing{.model = kA});
  EXPECT_EQ(ends(1), policy::kUnmeasured) << "it waited for the load";
  bench.ask(2, kA);
  bench.ask(3, kA);
  EXPECT_EQ(ends(2), policy::kUnmeasured) << "another came while it ran";
  EXPECT_EQ(ends(3), policy::kUnmeasured) << "another ran when it came";
  bench.ask(4, kA);
  EXPECT_EQ(ends(4), (policy::Objectives{.ttft = 200ms, .tpot = 10ms}));
}

TEST(ManagerCore, APinnedModelStays) {
  Bench bench(one_device());
  bench.configuration.models[0].pin = true;
  bench.tell(bench.configuration);
  bench.ask(1, kA);
  bench.report(ModelServing{.model = kA});
  bench.finish(1);
  const auto commands = bench.ask(2, kB);
  EXPECT_EQ(find<EvictFrom>(commands), nullptr);
  EXPECT_NE(find<FailRequest>(commands)->error.message.find("pinned"), std::string::npos);
}

TEST(ManagerCore, RefusesTheRequestBeyondTheQueue) {
  Bench bench(one_device());
  bench.ask(1, kA);
  bench.ask(2, kA);
  bench.ask(3, kA);
  const auto commands = bench.ask(4, kA);
  EXPECT_EQ(find<FailRequest>(commands)->error.code, Code::kResourceExhausted);
}

TEST(ManagerCore, RefusesWhatCanNeverFitWithTheNumbers) {
  Bench bench(one_device());
  EXPECT_EQ(bench.core.tokens_max(kA), 64);  // 8 pages of 8 tokens.
  const auto commands = bench.tell(
      RequestArrived{.request = RequestId(1), .model = kA, .prompt_tokens = 60, .max_tokens = 5});
  EXPECT_EQ(find<FailRequest>(commands)->error.code, Code::kInvalidArgument);
  EXPECT_NE(find<FailRequest>(commands)->error.message.find("64"), std::string::npos);
  EXPECT_EQ(find<FailRequest>(bench.ask(2, ModelId(9)))->error.code, Code::kNotFound);
}

constexpr DeviceId kLarge{1};

/// Two devices: one on which a model has 64 tokens, and one with 384.
Configure uneven_devices() {
  Configure configuration = one_device();
  configuration.devices.push_back({.id = kLarge, .name = "large", .pages = 60});
  for (ManagerModel& model : configuration.models) {
    model.footprints[kLarge] = model.footprints.at(kDevice);
  }
  return configuration;
}

/// The larger device is down at first.
struct UnevenBench : Bench {
  UnevenBench() : Bench(uneven_devices()) { down(kLarge); }
  std::vector<ManagerCommand> ask_for(std::uint64_t id,
                                      std::int64_t max_tokens,
                                      bool open = false) {
    return tell(RequestArrived{.request = RequestId(id),
                               .model = kA,
                               .prompt_tokens = 10,
                               .max_tokens = max_tokens,
                               .open_ended = open});
  }
};

TEST(ManagerCore, ARequestThatDoesNotFitWhereItsModelServesTakesTheModelElsewhere) {
  UnevenBench bench;
  bench.ask_for(1, 50);
  bench.report(ModelServing{.model = kA});
  bench.come_up(kLarge);
  const auto longer = bench.ask_for(2, 90);
  EXPECT_EQ(find<Dispatch>(longer), nullptr);
  EXPECT_EQ(find<LoadOn>(longer)->device, kLarge);
  EXPECT_EQ(find<Dispatch>(bench.ask_for(3, 5)), nullptr) << "it is about to go";
  const auto idle = bench.finish(1);
  EXPECT_EQ(find<EvictFrom>(idle)->device, kDevice);
}

TEST(ManagerCore, AModelStaysWhenTheRequestThatDidNotFitIsGone) {
  UnevenBench bench;
  bench.ask_for(1, 50);
  bench.report(ModelServing{.model = kA});
  bench.ask_for(2, 90);
  bench.ask_for(3, 5);
  const auto cancelled = bench.tell(RequestCancelled{.request = RequestId(2)});
  EXPECT_EQ(find<Dispatch>(cancelled)->request, RequestId(3));
}

TEST(ManagerCore, AnAnswerOfNoGivenLengthEndsWhereTheMemoryDoes) {
  UnevenBench bench;
  bench.down(kDevice);
  bench.come_up(kLarge);
  EXPECT_EQ(find<FailRequest>(bench.ask_for(1, 374, true)), nullptr);
  const auto served = bench.report(kLarge, ModelServing{.model = kA});
  EXPECT_EQ(find<Dispatch>(served)->tokens, 384);
  EXPECT_EQ(find<FailRequest>(bench.ask_for(2, 375, true))->error.code, Code::kInvalidArgument);
}

TEST(ManagerCore, PrioritiesGoFirstThenArrival) {
  Bench bench(one_device());
  bench.ask(1, kA);
  bench.ask(2, kA);
  bench.tell(RequestArrived{.request = RequestId(3), .model = kA, .priority = -1, .max_tokens = 1});
  std::vector<RequestId> order;
  for (const ManagerCommand& command : bench.report(ModelServing{.model = kA})) {
    if (const auto* dispatch = std::get_if<Dispatch>(&command)) {
      order.push_back(dispatch->request);
    }
  }
  EXPECT_EQ(order, (std::vector{RequestId(3), RequestId(1), RequestId(2)}));
}

TEST(ManagerCore, ARequestThatOutlivesTwoWorkersRunsAloneOnceThenFails) {
  Bench bench(one_device());
  const auto serve = [&] { return bench.report(ModelServing{.model = kA}); };
  bench.ask(1, kA);
  bench.ask(2, kA);
  for (int death = 0; death < 2; ++death) {
    serve();
    bench.die();
  }
  bench.finish(2);
  bench.ask(3, kA);
  const auto alone = serve();
  EXPECT_EQ(find<Dispatch>(alone)->request, RequestId(1));
  EXPECT_EQ(std::count_if(alone.begin(),
                          alone.end(),
                          [](const auto& c) { return std::holds_alternative<Dispatch>(c); }),
            1);
  const auto failed = bench.down(kDevice);
  EXPECT_EQ(find<FailRequest>(failed)->request, RequestId(1));
  EXPECT_EQ(find<FailRequest>(failed)->error.code, Code::kUnavailable);
}

TEST(ManagerCore, ARequestThatGetsOnOutlivesAnyNumberOfWorkersThatAreKilled) {
  Bench bench(one_device());
  bench.ask(1, kA);
  for (int death = 0; death < 100; ++death) {
    EXPECT_EQ(find<Dispatch>(bench.report(ModelServing{.model = kA}))->request, RequestId(1));
    bench.die({.device = kDevice, .epoch = bench.epochs.at(kDevice), .killed = true},
              {RequestId(1)});
  }
  EXPECT_NE(find<Dispatch>(bench.report(ModelServing{.model = kA})), nullptr);
}

TEST(ManagerCore, ARequestUnderWhichWorkersAreKilledAtOncePlaceRunsAloneAndThenFails) {
  Bench bench(one_device());
  const auto kill = [&] {
    return bench.down(
        WorkerDown{.device = kDevice, .epoch = bench.epochs.at(kDevice), .killed = true});
  };
  bench.ask(1, kA);  // It has the kernel kill the worker for want of memory.
  for (int death = 0; death < 2; ++death) {
    bench.report(ModelServing{.model = kA});
    bench.die({.device = kDevice, .epoch = bench.epochs.at(kDevice), .killed = true});
  }
  bench.ask(2, kA);
  const auto alone = bench.report(ModelServing{.model = kA});
  EXPECT_EQ(find<Dispatch>(alone)->request, RequestId(1));
  EXPECT_EQ(find<FailRequest>(kill())->request, RequestId(1));
}

TEST(ManagerCore, WorkersThatAreKilledUnderALoadDoNotFailItAtOnce) {
  Bench bench(one_device());
  bench.ask(1, kA);
  for (int kills = 0; kills < 5; ++kills) {
    const auto down = bench.down(
        WorkerDown{.device = kDevice, .epoch = bench.epochs.at(kDevice), .killed = true});
    EXPECT_EQ(find<FailRequest>(down), nullptr) << kills;
    const auto up = bench.come_up(kDevice);
    bench.now += 10s;
    const auto later = bench.tell(Tick{});
    EXPECT_TRUE(find<LoadOn>(up) != nullptr || find<LoadOn>(later) != nullptr) << kills;
  }
  const auto last =
      bench.down(WorkerDown{.device = kDevice, .epoch = bench.epochs.at(kDevice), .killed = true});
  EXPECT_NE(find<FailRequest>(last), nullptr) << "that load is not to be had";
}

TEST(ManagerCore, AFailedLoadIsTriedAgainAfterAPauseThenItsRequestsFail) {
  Bench bench(one_device());
  bench.ask(1, kA);
  const ImageFailed failure{.device = kDevice,
                            .epoch = bench.epochs.at(kDevice),
                            .model = kA,
                            .reason = {Code::kUnavailable, "no route to the store"}};
  const auto first = bench.tell(failure);
  EXPECT_EQ(find<LoadOn>(first), nullptr);
  EXPECT_EQ(find<WakeAt>(first)->at, bench.now + 100ms);
  bench.now += 100ms;
  EXPECT_NE(find<LoadOn>(bench.tell(Tick{})), nullptr);
  const auto second = bench.tell(failure);
  EXPECT_NE(find<FailRequest>(second)->error.message.find("no route to the store"),
            std::string::npos);
  EXPECT_NE(find<FailRequest>(bench.ask(2, kA)), nullptr);  // It cools down.
  bench.now += 10s;
  EXPECT_NE(find<LoadOn>(bench.ask(3, kA)), nullptr);
}

TEST(ManagerCore, ARefusedLoadIsPlannedAgainOnTheNewVersion) {
  Bench bench(one_device());
  bench.ask(1, kA);
  const auto refused = bench.report(
      LoadRefused{.model = kA, .version = 4, .reason = {Code::kFailedPrecondition, "stale"}});
  EXPECT_EQ(find<LoadOn>(refused), nullptr);  // Not in a hot loop.
  bench.now = find<WakeAt>(refused)->at;
  EXPECT_EQ(find<LoadOn>(bench.tell(Tick{}))->basis.version, 4U);
}

TEST(ManagerCore, DeadlinesEndRequestsWhereverTheyAre) {
  Bench bench(one_device());
  bench.tell(RequestArrived{.request = RequestId(1), .model = kA, .max_tokens = 1, .patience = 5s});
  bench.report(ModelServing{.model = kA});
  bench.now += 5s;
  const auto commands = bench.tell(Tick{});
  EXPECT_EQ(find<FailRequest>(commands)->error.code, Code::kDeadlineExceeded);
}

TEST(ManagerCore, AReloadLetsRunningRequestsEndAndFailsTheWaiting) {
  Bench bench(one_device());
  bench.ask(1, kA);
  bench.report(ModelServing{.model = kA});
  bench.ask(2, kB);
  bench.configuration.models.clear();
  const auto reloaded = bench.tell(bench.configuration);
  EXPECT_EQ(find<FailRequest>(reloaded)->request, RequestId(2));
  EXPECT_EQ(find<EvictFrom>(reloaded), nullptr);
  EXPECT_EQ(find<EvictFrom>(bench.finish(1))->model, kA);
  bench.report(ModelEvicted{.model = kA});
  EXPECT_TRUE(bench.core.models().empty());
}

TEST(ManagerCore, OperatorsLoadAndUnload) {
  Bench bench(one_device());
  EXPECT_NE(find<LoadOn>(bench.tell(AdminLoad{.ticket = TicketId(1), .model = kA})), nullptr);
  const auto serving = bench.report(ModelServing{.model = kA});
  EXPECT_EQ(find<AdminDone>(serving)->ticket, TicketId(1));
  EXPECT_FALSE(find<AdminDone>(serving)->error);
  EXPECT_NE(find<EvictFrom>(bench.tell(AdminUnload{.ticket = TicketId(2), .model = kA})), nullptr);
  EXPECT_EQ(find<AdminDone>(bench.report(ModelEvicted{.model = kA}))->ticket, TicketId(2));
  EXPECT_TRUE(
      find<AdminDone>(bench.tell(AdminLoad{.ticket = TicketId(3), .model = ModelId(9)}))->error);
}

/// Where the models of a Bench with a second device go that are asked for before any is up.
std::map<ModelId, DeviceId> preloaded(Duration second_comes_after) {
  Configure configuration = one_device();
  configuration.devices.push_back({.id = DeviceId(1), .name = "e", .pages = 40});
  for (ManagerModel& model : configuration.models) {
    model.footprints[DeviceId(1)] = model.footprints.at(kDevice);
  }
  configuration.devices[0].pages = 40;
  ManagerCore core;
  Instant now{100s};
  std::map<ModelId, DeviceId> places;
  const auto tell = [&](const ManagerEvent& event) {
    std::vector<ManagerCommand> commands;
    core.step(now, event, commands);
    core.check_invariants();
    for (const ManagerCommand& command : commands) {
      if (const auto* load = std::get_if<LoadOn>(&command)) {
        places[load->model] = load->device;
      }
    }
  };
  tell(configuration);
  tell(AdminLoad{.ticket = TicketId(1), .model = kA});
  tell(AdminLoad{.ticket = TicketId(2), .model = kB});
  tell(WorkerUp{.device = kDevice, .epoch = WorkerEpoch(1)});
  EXPECT_TRUE(places.empty());
  now += second_comes_after;
  tell(Tick{});
  tell(WorkerUp{.device = DeviceId(1), .epoch = WorkerEpoch(2)});
  return places;
}

TEST(ManagerCore, WhatIsPreloadedWaitsForAllDevices) {
  const std::map<ModelId, DeviceId> places = preloaded(1s);
  ASSERT_EQ(places.size(), 2U);
  EXPECT_NE(places.at(kA), places.at(kB));
}

TEST(ManagerCore, WhatIsPreloadedDoesNotWaitForADeviceThatDoesNotStart) {
  EXPECT_EQ(preloaded(10s), (std::map<ModelId, DeviceId>{{kA, kDevice}, {kB, kDevice}}));
}

TEST(ManagerCore, CountsLoadsAndEvictionsByReason) {
  Bench bench(one_device());
  const auto loads = [&](ModelId model, LoadReason why) {
    return bench.core.models().at(model == kA ? 0 : 1).loads[static_cast<std::size_t>(why)];
  };
  const auto evictions = [&](ModelId model, EvictionReason why) {
    return bench.core.models().at(model == kA ? 0 : 1).evictions[static_cast<std::size_t>(why)];
  };
  bench.ask(1, kA);
  bench.report(ModelServing{.model = kA});
  bench.finish(1);
  bench.tell(AdminLoad{.ticket = TicketId(1), .model = kB});
  bench.report(ModelEvicted{.model = kA});
  bench.report(ModelServing{.model = kB});
  EXPECT_EQ(loads(kA, LoadReason::kRequest), 1U);
  EXPECT_EQ(loads(kB, LoadReason::kOperator), 1U);
  EXPECT_EQ(loads(kB, LoadReason::kRequest), 0U);
  EXPECT_EQ(evictions(kA, EvictionReason::kDisplaced), 1U);

  bench.tell(AdminUnload{.ticket = TicketId(2), .model = kB, .why = EvictionReason::kIdle});
  EXPECT_EQ(evictions(kB, EvictionReason::kIdle), 0U) << "not gone yet";
  bench.report(ModelEvicted{.model = kB});
  EXPECT_EQ(evictions(kB, EvictionReason::kIdle), 1U);

  bench.ask(2, kA);
  bench.report(LoadFailed{.model = kA, .version = 1, .reason = {Code::kUnavailable, "disk"}});
  bench.report(ModelEvicted{.model = kA});
  EXPECT_EQ(evictions(kA, EvictionReason::kFailed), 1U);
  EXPECT_EQ(loads(kA, LoadReason::kRequest), 2U);
}

TEST(ManagerCore, DrainsAndAtTheDeadlineEndsWhatIsLeft) {
  Bench bench(one_device());
  bench.ask(1, kA);
  bench.tell(DrainManager{.deadline = bench.now + 5s});
  EXPECT_EQ(find<FailRequest>(bench.ask(2, kA))->error.code, Code::kUnavailable);
  bench.now += 5s;
  const auto commands = bench.tell(Tick{});
  EXPECT_EQ(find<FailRequest>(commands)->request, RequestId(1));
  EXPECT_NE(find<Drained>(commands), nullptr);
}

TEST(ManagerCore, TellsWhoseThePagesOfADeviceAre) {
  Bench bench(one_device());
  bench.ask(1, kA);
  bench.report(ModelServing{.model = kA});
  bench.report(
      DeviceReport{.models = {{.model = kA, .residency = Residency::kServing, .kv_pages = 4}}});
  const std::vector<DeviceStatus> devices = bench.core.devices();
  ASSERT_EQ(devices.at(0).residents.size(), 1U);
  const ResidentStatus& resident = devices[0].residents[0];
  EXPECT_EQ(resident.model, "a");
  EXPECT_EQ(resident.residency, Residency::kServing);
  EXPECT_EQ(resident.weights_pages, 12);
  EXPECT_EQ(resident.kv_pages, 4);
  EXPECT_EQ(resident.requests_running, 1);
}

TEST(ManagerCore, FindsPagesForARequestThatOutgrewItsShare) {
  Bench bench(one_device());
  for (ManagerModel& model : bench.configuration.models) {
    model.footprints.at(kDevice).image_pages = 8;
  }
  bench.tell(bench.configuration);
  bench.ask(1, kA);
  bench.ask(2, kB);
  bench.report(ModelServing{.model = kA});
  bench.report(ModelServing{.model = kB});
  DeviceReport report{.pages_wanted = 3, .wanted_by = kA};
  report.models = {{.model = kA, .residency = Residency::kServing, .kv_pages = 4},
                   {.model = kB, .residency = Residency::kServing}};
  const auto commands = bench.report(report);
  ASSERT_NE(find<EvictFrom>(commands), nullptr);
  EXPECT_EQ(find<EvictFrom>(commands)->model, kB);
  EXPECT_EQ(find<EvictFrom>(commands)->mode, EvictMode::kNow);
}

TEST(ManagerCore, AWorkerIsToldWhenOnlyPinnedModelsHaveThePagesThatItLacks) {
  Bench bench(one_device());
  for (ManagerModel& model : bench.configuration.models) {
    model.footprints.at(kDevice).image_pages = 8;
    model.pin = model.id == kB;
  }
  bench.tell(bench.configuration);
  bench.ask(2, kB);
  bench.report(ModelServing{.model = kB});
  bench.ask(1, kA);
  bench.report(ModelServing{.model = kA});
  DeviceReport report{.pages_wanted = 3, .wanted_by = kA};
  report.models = {{.model = kA, .residency = Residency::kServing, .kv_pages = 4},
                   {.model = kB, .residency = Residency::kWarm}};
  const auto commands = bench.report(report);
  EXPECT_EQ(find<EvictFrom>(commands), nullptr);
  EXPECT_EQ(find<FailRequest>(commands), nullptr);
  ASSERT_NE(find<TellWorker>(commands), nullptr);
  EXPECT_EQ(find<TellWorker>(commands)->device, kDevice);
  EXPECT_TRUE(std::holds_alternative<NoPages>(find<TellWorker>(commands)->message));
}

TEST(ManagerCoreSettling, RequestsAreJudgedWhenItIsKnownWhatThereIs) {
  test::Bench bench(1, {});
  const Configure all = bench.configuration;
  Configure nothing = all;
  nothing.models.clear();
  bench = test::Bench(nothing);
  bench.tell(Settled{.settled = false});
  bench.said.clear();
  bench.ask(1, test::kA);
  bench.ask(2, test::kA);
  bench.tell(FrontState{
      .front = front_of(RequestId(1)),
      .requests = {{.request = {.request = RequestId(2), .model = test::kA, .max_tokens = 4}}}});
  EXPECT_TRUE(bench.said.empty()) << "hosts have not told of their models yet";
  bench.tell(all);
  const std::vector<ManagerCommand> then = bench.tell(Settled{});
  EXPECT_TRUE(std::ranges::none_of(then, [](const ManagerCommand& command) {
    return std::holds_alternative<FailRequest>(command);
  }));
  const auto load = std::ranges::find_if(
      then, [](const ManagerCommand& command) { return std::holds_alternative<LoadOn>(command); });
  ASSERT_NE(load, then.end());
  EXPECT_EQ(std::get<LoadOn>(*load).model, test::kA);
  EXPECT_EQ(bench.status(test::kA).requests_waiting, 1) << "the first had ended";
}

}  // namespace
}  // namespace heddle::core
