// How the manager treats external engines, beside models of its own.

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

using test::kA;
using test::kB;
using test::kDevice;

constexpr ModelId kOwn{3};

/// A device of 20 pages; engines a and b of 12, and a model of our own of 10.
Configure engines_and_a_model() {
  Configure configuration{.options = {.queue_per_model = 5, .drain_after = 1s, .load_attempts = 2},
                          .devices = {{.id = kDevice, .name = "d", .pages = 20}}};
  for (const ModelId id : {kA, kB}) {
    configuration.models.push_back({.id = id,
                                    .name = id == kA ? "a" : "b",
                                    .context = 1,
                                    .footprints = {{kDevice, {.image_pages = 12}}},
                                    .external = ExternalModel{.drain = 2s}});
  }
  configuration.models.push_back(
      {.id = kOwn,
       .name = "own",
       .context = 1000,
       .footprints = {{kDevice, {.image_pages = 9, .min_kv_pages = 1, .kv = test::kKv}}}});
  return configuration;
}

/// The bench, with what hosts say of engines.
struct EngineBench : test::Bench {
  EngineBench() : Bench(engines_and_a_model()) {}

  /// A request to an engine, of whose tokens nothing is known.
  std::vector<ManagerCommand> arrive(std::uint64_t id, ModelId model) {
    return tell(RequestArrived{.request = RequestId(id), .model = model});
  }
  std::vector<ManagerCommand> engine_says(ModelId model, EngineNews news, std::int64_t held = 0) {
    return tell(EngineSaid{.device = kDevice,
                           .model = model,
                           .news = news,
                           .held_pages = held,
                           .swap_out = 1s,
                           .swap_in = 1s,
                           .reason = {Code::kUnavailable, "signal 11"}});
  }
  /// With one request of id `id`, which runs.
  void run(std::uint64_t id, ModelId model) {
    arrive(id, model);
    engine_says(model, EngineNews::kServing, 12);
  }
};

TEST(ManagerEngines, ARequestIsForwardedWhenItsEngineServes) {
  EngineBench bench;
  const auto arrived = bench.arrive(1, kA);
  EXPECT_EQ(find<LoadOn>(arrived)->model, kA);
  EXPECT_NE(find<Hold>(arrived), nullptr);
  EXPECT_EQ(find<Dispatch>(bench.engine_says(kA, EngineNews::kServing, 12))->request, RequestId(1));
  EXPECT_NE(find<Dispatch>(bench.arrive(2, kA)), nullptr);
}

TEST(ManagerEngines, AForwardedRequestIsNoWorkersToCancel) {
  EngineBench bench;
  bench.run(1, kA);
  bench.arrive(2, kA);
  const auto cancelled = bench.tell(RequestCancelled{.request = RequestId(1)});
  EXPECT_EQ(find<TellWorker>(cancelled), nullptr);
  bench.finish(2);
  EXPECT_EQ(bench.core.models().at(0).requests_running, 0);
}

TEST(ManagerEngines, TheNextIsLoadedOnlyWhenTheMemoryHasComeFree) {
  EngineBench bench;
  bench.run(1, kA);
  bench.finish(1);
  bench.after(10s);
  const auto arrived = bench.arrive(2, kB);
  ASSERT_NE(find<EvictFrom>(arrived), nullptr);
  EXPECT_EQ(find<EvictFrom>(arrived)->model, kA);
  EXPECT_EQ(find<EvictFrom>(arrived)->free_pages, 4);  // 12 are wanted and 8 are free.
  EXPECT_EQ(find<LoadOn>(arrived), nullptr);
  const auto left = bench.engine_says(kA, EngineNews::kSuspended, 3);
  EXPECT_EQ(find<LoadOn>(left)->model, kB);
}

TEST(ManagerEngines, AnEngineInUseStaysForThreeTimesWhatBringingItInTakesOrUntilItIsIdle) {
  EngineBench bench;
  bench.run(1, kA);
  bench.finish(1);
  bench.after(100ms);
  bench.arrive(2, kA);
  bench.finish(2);
  EXPECT_EQ(find<EvictFrom>(bench.arrive(3, kB)), nullptr);
  EXPECT_EQ(find<EvictFrom>(bench.after(400ms)), nullptr);
  EXPECT_NE(find<EvictFrom>(bench.after(100ms)), nullptr);

  EngineBench asked;
  asked.run(1, kA);
  asked.after(100ms);
  asked.arrive(2, kA);
  asked.finish(1);
  asked.finish(2);
  asked.arrive(100, kB);
  for (std::uint64_t i = 3; i < 17; ++i) {  // Every 200 ms, up to 2.9 s.
    EXPECT_EQ(find<EvictFrom>(asked.after(200ms)), nullptr);
    asked.arrive(i, kA);
    asked.finish(i);
  }
  EXPECT_NE(find<EvictFrom>(asked.after(200ms)), nullptr);
}

TEST(ManagerEngines, AnIdleEngineThatNobodyAskedSinceItCameGoesAtOnce) {
  EngineBench bench;
  bench.run(1, kA);
  bench.finish(1);
  EXPECT_NE(find<EvictFrom>(bench.arrive(2, kB)), nullptr);
}

TEST(ManagerEngines, ABusyEngineIsFrozenWithItsRequestsAndTheyGoOnLater) {
  EngineBench bench;
  bench.run(1, kA);
  bench.arrive(2, kB);
  bench.after(1s);
  EXPECT_EQ(find<EvictFrom>(bench.after(2s)), nullptr);  // Its stay ends; it may drain for 2 s.
  EXPECT_EQ(find<Dispatch>(bench.arrive(3, kA)), nullptr);
  const auto frozen = bench.after(2s);
  ASSERT_NE(find<EvictFrom>(frozen), nullptr);
  EXPECT_EQ(find<EvictFrom>(frozen)->mode, EvictMode::kFrozen);
  EXPECT_EQ(find<LoadOn>(bench.engine_says(kA, EngineNews::kSuspended, 0))->model, kB);
  EXPECT_EQ(find<Dispatch>(bench.engine_says(kB, EngineNews::kServing, 12))->request, RequestId(2));
  // The request that stands still wants its engine back, as much as the one that waits.
  bench.finish(2);
  bench.after(3s);
  const auto back = bench.engine_says(kB, EngineNews::kSuspended, 0);
  EXPECT_EQ(find<LoadOn>(back)->model, kA);
  const auto serving = bench.engine_says(kA, EngineNews::kServing, 12);
  EXPECT_EQ(find<Dispatch>(serving)->request, RequestId(3));
  EXPECT_EQ(bench.core.models()[0].requests_running, 2);
}

// Three engines of 9 pages, of which the device holds two; which of them is frozen for the third.
TEST(ManagerEngines, TheEngineWhoseRequestsHaveRunForLongIsSparedThoughItHasFewer) {
  for (const bool old : {false, true}) {
    EngineBench bench;
    bench.configuration.models[2] = bench.configuration.models[1];
    bench.configuration.models[2].id = kOwn;
    for (ManagerModel& model : bench.configuration.models) {
      model.footprints[kDevice].image_pages = 9;
    }
    bench.tell(bench.configuration);
    for (const ModelId model : {kA, kB}) {
      bench.arrive(model.value(), model);
      bench.engine_says(model, EngineNews::kServing, 9);
    }
    bench.after(old ? 40s : 4s);
    bench.arrive(3, kB);
    if (old) {
      bench.finish(2);  // What b runs has come a moment ago.
      bench.arrive(4, kB);
    }
    bench.arrive(5, kOwn);
    bench.after(1s);
    const auto frozen = bench.after(2s);
    ASSERT_NE(find<EvictFrom>(frozen), nullptr);
    EXPECT_EQ(find<EvictFrom>(frozen)->model, old ? kB : kA);
  }
}

// Nobody waits for an engine that comes by forecast; whether one may have to wait for it is a
// matter of what is left of its start.
TEST(ManagerEngines, ARequestDoesNotWaitLongForAnEngineThatComesForNobody) {
  for (const bool soon : {false, true}) {
    EngineBench bench;
    bench.configuration.options.planner = {
        .prewarm = true, .value = true, .calendar = {.window = 10s, .windows_per_day = 8640}};
    bench.tell(bench.configuration);
    LoadRemembered remembered{.model = kA};
    for (std::int64_t window = 0; window < 10; ++window) {
      remembered.windows.push_back({window, {.mean = 0.5, .peak = 1}});
    }
    bench.tell(remembered);
    ASSERT_EQ(find<LoadOn>(bench.after(1s))->model, kA);
    bench.after(soon ? 29500ms : 5s);  // A start takes 30 s, as far as is known.
    const auto asked = bench.arrive(1, kB);
    EXPECT_EQ(find<EvictFrom>(asked) == nullptr, soon);
    const auto evicted = soon ? bench.engine_says(kA, EngineNews::kServing, 12) : asked;
    ASSERT_NE(find<EvictFrom>(evicted), nullptr) << soon;
    EXPECT_EQ(find<EvictFrom>(evicted)->model, kA);
    EXPECT_EQ(find<LoadOn>(bench.engine_says(kA, EngineNews::kEnded))->model, kB);
  }
}

TEST(ManagerEngines, ARequestWaitsForAnEngineThatSomebodyWaitsFor) {
  EngineBench bench;
  bench.arrive(1, kA);
  EXPECT_EQ(find<EvictFrom>(bench.arrive(2, kB)), nullptr);
  EXPECT_EQ(find<EvictFrom>(bench.after(5s)), nullptr);
}

TEST(ManagerEngines, OneThatCannotBeFrozenIsWaitedFor) {
  EngineBench bench;
  bench.configuration.models[0].external = ExternalModel{};
  bench.tell(bench.configuration);
  bench.run(1, kA);
  bench.arrive(2, kB);
  bench.after(1s);
  bench.after(5s);
  EXPECT_EQ(find<EvictFrom>(bench.after(60s)), nullptr);
  EXPECT_EQ(find<EvictFrom>(bench.finish(1))->mode, EvictMode::kWhenIdle);
}

TEST(ManagerEngines, WhatASuspendedEngineStillHoldsIsNotFree) {
  EngineBench bench;
  bench.run(1, kA);
  bench.finish(1);
  bench.after(10s);
  bench.arrive(2, kB);
  bench.engine_says(kA, EngineNews::kSuspended, 8);
  bench.engine_says(kB, EngineNews::kServing, 12);
  bench.finish(2);
  bench.after(10s);
  // The model of our own needs 10: more than b's going frees beside what a holds? 20 - 8 = 12.
  const auto own = bench.tell(
      RequestArrived{.request = RequestId(3), .model = kOwn, .prompt_tokens = 4, .max_tokens = 4});
  ASSERT_NE(find<EvictFrom>(own), nullptr);
  EXPECT_EQ(find<EvictFrom>(own)->model, kB);
  EXPECT_EQ(find<EvictFrom>(own)->free_pages, 10);
}

TEST(ManagerEngines, RequestsOfAnEngineThatDiesAreForwardedAgainButNotForEver) {
  EngineBench bench;
  bench.run(1, kA);
  for (int i = 0; i < 2; ++i) {
    const auto lost = bench.engine_says(kA, EngineNews::kLost);
    EXPECT_EQ(find<FailRequest>(lost), nullptr);
    EXPECT_EQ(find<LoadOn>(lost)->model, kA);
    EXPECT_EQ(find<Dispatch>(bench.engine_says(kA, EngineNews::kServing, 12))->request,
              RequestId(1));
  }
  const auto last = bench.engine_says(kA, EngineNews::kLost);
  ASSERT_NE(find<FailRequest>(last), nullptr);
  EXPECT_NE(find<FailRequest>(last)->error.message.find("signal 11"), std::string::npos);
}

TEST(ManagerEngines, AnEngineThatDoesNotTakeARequestIsLeftInPeaceForAMoment) {
  EngineBench bench;
  bench.run(1, kA);
  EXPECT_EQ(find<Dispatch>(bench.tell(RequestUnanswered{.request = RequestId(1)})), nullptr);
  EXPECT_EQ(find<Dispatch>(bench.after(250ms))->request, RequestId(1));
}

TEST(ManagerEngines, AFailedStartIsTriedAgainAndThenSaidToWhoWaits) {
  EngineBench bench;
  bench.arrive(1, kA);
  EXPECT_EQ(find<FailRequest>(bench.engine_says(kA, EngineNews::kFailed)), nullptr);
  EXPECT_EQ(find<LoadOn>(bench.after(1s))->model, kA);
  const auto failed = bench.engine_says(kA, EngineNews::kFailed);
  ASSERT_NE(find<FailRequest>(failed), nullptr);
  EXPECT_NE(find<FailRequest>(failed)->error.message.find("after 2 attempts: signal 11"),
            std::string::npos);
}

TEST(ManagerEngines, AnEngineOutlivesTheWorkerOfItsDevice) {
  EngineBench bench;
  bench.run(1, kA);
  const auto down = bench.down(WorkerDown{.device = kDevice, .epoch = WorkerEpoch(1)});
  EXPECT_EQ(find<FailRequest>(down), nullptr);
  EXPECT_NE(find<Dispatch>(bench.arrive(2, kA)), nullptr);
  bench.finish(1);
  bench.tell(WorkerUp{.device = kDevice, .epoch = WorkerEpoch(2)});
  EXPECT_EQ(bench.core.models()[0].requests_running, 1);
}

/// What the worker says where the model of our own lacks pages that an engine has.
WorkerSaid lacking(std::int64_t pages) {
  return {.device = kDevice,
          .epoch = WorkerEpoch(1),
          .report = DeviceReport{.models = {{.model = kOwn, .residency = Residency::kServing}},
                                 .pages_wanted = pages,
                                 .wanted_by = kOwn}};
}

/// The device holds both; of a, two requests run, and one of ours.
struct Crowded : EngineBench {
  Crowded() {
    for (ManagerModel& model : configuration.models) {
      model.footprints[kDevice].image_pages = 9;
    }
    tell(configuration);
    arrive(1, kA);
    engine_says(kA, EngineNews::kServing, 9);
    arrive(2, kA);
    arrive(3, kOwn);
    tell(WorkerSaid{
        .device = kDevice, .epoch = WorkerEpoch(1), .report = ModelServing{.model = kOwn}});
  }
};

TEST(ManagerEngines, ARequestThatLacksPagesWaitsUntilTheEngineThatHasThemIsIdle) {
  Crowded bench;
  const auto lacked = bench.tell(lacking(3));
  EXPECT_EQ(find<FailRequest>(lacked), nullptr);
  EXPECT_EQ(find<EvictFrom>(lacked), nullptr);
  EXPECT_EQ(find<Dispatch>(bench.arrive(4, kA)), nullptr);  // It is sent nothing more.
  EXPECT_EQ(find<EvictFrom>(bench.tell(lacking(3))), nullptr);
  EXPECT_EQ(find<EvictFrom>(bench.finish(1)), nullptr);
  const auto idle = bench.finish(2);
  ASSERT_NE(find<EvictFrom>(idle), nullptr);
  EXPECT_EQ(find<EvictFrom>(idle)->model, kA);
  EXPECT_EQ(find<EvictFrom>(idle)->free_pages, 3);
  EXPECT_EQ(find<FailRequest>(bench.engine_says(kA, EngineNews::kSuspended, 2)), nullptr);
  EXPECT_EQ(bench.core.models().at(2).requests_running, 1);
}

TEST(ManagerEngines, AnEngineThatWasWaitedForGoesOnWhenThePagesHaveComeFreeOtherwise) {
  Crowded bench;
  bench.tell(lacking(3));
  bench.arrive(4, kA);
  EXPECT_EQ(find<Dispatch>(bench.tell(lacking(0)))->request, RequestId(4));
  bench.tell(lacking(3));
  bench.arrive(5, kA);
  EXPECT_EQ(find<Dispatch>(bench.finish(3))->request, RequestId(5));  // Nobody lacks them any more.
}

TEST(ManagerEngines, AModelThatDisplacesAnotherMakesItGoThoughThereIsRoom) {
  EngineBench bench;
  bench.configuration.models[0].footprints[kDevice].image_pages = 5;
  bench.configuration.models[1].footprints[kDevice].image_pages = 5;
  bench.configuration.models[1].displaces = {kA};
  bench.tell(bench.configuration);
  bench.run(1, kA);
  bench.finish(1);
  bench.after(10s);
  const auto arrived = bench.arrive(2, kB);
  ASSERT_NE(find<EvictFrom>(arrived), nullptr);
  EXPECT_EQ(find<EvictFrom>(arrived)->free_pages, 0);  // It only must not run.
  EXPECT_EQ(find<LoadOn>(arrived), nullptr);
  EXPECT_EQ(find<LoadOn>(bench.engine_says(kA, EngineNews::kSuspended, 5))->model, kB);
}

TEST(ManagerEngines, ARefusedSuspensionPutsTheEngineBackToWork) {
  EngineBench bench;
  bench.run(1, kA);
  bench.arrive(2, kB);
  bench.after(3s);
  bench.after(2s);
  bench.arrive(3, kA);
  EXPECT_EQ(find<Dispatch>(bench.engine_says(kA, EngineNews::kServing, 12))->request, RequestId(3));
}

TEST(ManagerEngines, UnloadingEndsItAndIdlingSuspendsIt) {
  EngineBench bench;
  bench.run(1, kA);
  bench.finish(1);
  const auto idle =
      bench.tell(AdminUnload{.ticket = TicketId(1), .model = kA, .why = EvictionReason::kIdle});
  EXPECT_EQ(find<EvictFrom>(idle)->free_pages, 6);
  EXPECT_NE(find<AdminDone>(bench.engine_says(kA, EngineNews::kSuspended, 2)), nullptr);
  const auto ended = bench.tell(AdminUnload{.ticket = TicketId(2), .model = kA});
  EXPECT_EQ(find<EvictFrom>(ended)->free_pages, INT64_MAX);
  EXPECT_EQ(find<AdminDone>(ended), nullptr);
  EXPECT_NE(find<AdminDone>(bench.engine_says(kA, EngineNews::kEnded)), nullptr);
}

TEST(ManagerEngines, TimeIsCountedByWhatTheDeviceDid) {
  EngineBench bench;
  bench.arrive(1, kA);
  bench.now += 3s;
  bench.engine_says(kA, EngineNews::kServing, 12);
  bench.now += 7s;
  bench.finish(1);
  bench.after(50s);
  const DeviceStatus device = bench.core.devices()[0];
  EXPECT_EQ(device.switching, 3s);
  EXPECT_EQ(device.serving, 7s);
}

}  // namespace
}  // namespace heddle::core
