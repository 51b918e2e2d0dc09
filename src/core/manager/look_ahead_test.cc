#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/manager/manager_core.h"
#include "core/manager/test_bench.h"
#include "core/test_find.h"
#include "policy/placement.h"

namespace heddle::core {
namespace {

using namespace std::chrono_literals;
using test::find;

using test::Bench;
using test::kA;
using test::kB;
using test::kC;
using test::kImagePages;
using test::kPageBytes;

/// A runs for half of every window, then B and C take the only device in turn.
void learn(Bench& bench, int windows) {
  for (int i = 0; i < windows; ++i) {
    bench.serve(kA, 5s);
    bench.serve(kB, 1s);
    bench.serve(kC, 1s);
    bench.wait(3s);
  }
}

TEST(ManagerPlanner, LoadsWhatTheForecastExpectsBeforeAnybodyAsks) {
  Bench bench(1, {.prewarm = true, .value = true});
  learn(bench, 8);
  EXPECT_GT(bench.status(kA).demand.expected_mean, 0.4);
  bench.die();
  ASSERT_FALSE(bench.there(kA));
  const std::uint64_t before = bench.loaded(kA, LoadReason::kForecast);
  bench.wait(6s);  // What was done before keeps its hands off for a while.
  EXPECT_TRUE(bench.there(kA));
  EXPECT_EQ(bench.loaded(kA, LoadReason::kForecast), before + 1);
  const auto why = bench.decisions(DecisionKind::kPrewarm);
  ASSERT_FALSE(why.empty());
  EXPECT_EQ(why.back().model, kA);
  EXPECT_EQ(why.back().device, DeviceId(0));
  const std::uint64_t hits = bench.starts(kA, StartKind::kHit);
  bench.serve(kA, 1s);
  EXPECT_EQ(bench.starts(kA, StartKind::kHit), hits + 1);
  bench.serve(kA, 1s);
  EXPECT_EQ(bench.starts(kA, StartKind::kHit), hits + 1) << "it has been used since it came";
  EXPECT_EQ(bench.status(kA).demand.wasted_bytes, 0U);
}

TEST(ManagerPlanner, KnowsNothingWithoutHistoryAndThenOnlyReacts) {
  Bench bench(1, {.prewarm = true, .value = true});
  bench.serve(kA, 2s);
  bench.wait(60s);
  EXPECT_EQ(bench.loaded(kA, LoadReason::kForecast), 0U);
  EXPECT_EQ(bench.starts(kA, StartKind::kMiss), 1U);
}

TEST(ManagerPlanner, TakesOverWhatWasMeasuredBefore) {
  Bench bench(1, {.prewarm = true, .value = true});
  LoadRemembered remembered{.model = kB};
  for (std::int64_t window = 0; window < 10; ++window) {
    remembered.windows.push_back({window, {.mean = 2, .peak = 3}});
  }
  bench.tell(remembered);
  bench.wait(11s);
  EXPECT_TRUE(bench.there(kB)) << "expected, though nobody has asked for it in this life";
}

// Two images of 8 pages and one of KV each, and what they share, on a device of 20.
TEST(ManagerPlanner, ModelsThatShareAWorkspaceAreExpectedBesideEachOther) {
  for (const std::int64_t workspace : {2, 3}) {
    Bench bench(1, {.prewarm = true, .value = true});
    for (ManagerModel& model : bench.configuration.models) {
      model.footprints.at(DeviceId(0)).overhead_pages = workspace;
    }
    bench.tell(bench.configuration);
    for (const ModelId model : {kA, kB}) {
      LoadRemembered remembered{.model = model};
      for (std::int64_t window = 0; window < 10; ++window) {
        remembered.windows.push_back({window, {.mean = 2, .peak = 3}});
      }
      bench.tell(remembered);
    }
    bench.wait(30s);
    EXPECT_EQ(bench.there(kA) && bench.there(kB), workspace == 2);
    EXPECT_TRUE(bench.there(kA) || bench.there(kB));
  }
}

TEST(ManagerPlanner, WhatWasUnloadedOnPurposeStaysAwayUntilSomebodyAsks) {
  Bench bench(1, {.prewarm = true, .value = true});
  learn(bench, 8);
  bench.tell(AdminUnload{.ticket = TicketId(1), .model = kA});
  bench.wait(30s);
  EXPECT_FALSE(bench.there(kA));
  bench.serve(kA, 1s);
  EXPECT_TRUE(bench.there(kA));
}

TEST(ManagerPlanner, CountsWhatWasLoadedForNobody) {
  Bench bench(1, {.prewarm = true, .value = true});
  learn(bench, 8);
  bench.die();
  bench.wait(6s);
  ASSERT_TRUE(bench.there(kA));
  bench.tell(AdminUnload{.ticket = TicketId(2), .model = kA});
  EXPECT_EQ(bench.status(kA).demand.wasted_bytes, kImagePages * kPageBytes);
}

TEST(ManagerPlanner, WhoComesOftenStaysThoughItWasUsedLongerAgo) {
  for (const bool value : {false, true}) {
    Bench bench(1, {.value = value});
    for (int i = 0; i < 20; ++i) {
      bench.serve(kA, 100ms);
      bench.wait(1s);
    }
    bench.serve(kB, 100ms);  // Once, after A.
    ASSERT_TRUE(bench.there(kA) && bench.there(kB));
    bench.serve(kC, 2s);
    EXPECT_EQ(bench.there(kA), value);
    EXPECT_EQ(bench.there(kB), !value);
  }
}

/// What the device has serves or is idle, all of it there, and requests of one of its models wait
/// for pages.
void report_shortage(Bench& bench,
                     std::int64_t sequences,
                     std::int64_t pages,
                     DeviceId device = DeviceId(0),
                     ModelId model = kA) {
  DeviceReport report{.short_sequences = sequences, .short_pages = pages, .short_model = model};
  for (const ModelId resident : bench.resident[device]) {
    report.models.push_back({.model = resident, .residency = Residency::kWarm, .complete = true});
  }
  bench.report(device, report);
}

TEST(ManagerPlanner, AnIdleModelGivesItsPagesOnceOthersHaveWaitedForAsMuchAsItIsWorth) {
  Bench bench(1, {.value = true});
  for (int i = 0; i < 20; ++i) {
    bench.serve(kB, 100ms);
    bench.wait(1s);
  }
  bench.arrive(kA);
  bench.wait(2s);
  ASSERT_TRUE(bench.there(kA) && bench.there(kB));
  report_shortage(bench, 2, 3);
  EXPECT_TRUE(bench.there(kB)) << "nobody has waited yet";
  bench.wait(5s);
  EXPECT_FALSE(bench.there(kB)) << "at most a second of waiting for its load, and two wait";
  EXPECT_TRUE(bench.there(kA));
  const auto evicted = bench.decisions(DecisionKind::kEvict);
  ASSERT_EQ(evicted.size(), 1U);
  EXPECT_EQ(evicted[0].for_model, kA);
}

TEST(ManagerPlanner, NobodyGivesPagesForAShortageThatIsOver) {
  Bench bench(1, {.value = true});
  for (int i = 0; i < 20; ++i) {
    bench.serve(kB, 100ms);
    bench.wait(1s);
  }
  bench.arrive(kA);
  bench.wait(2s);
  report_shortage(bench, 1, 3);
  bench.wait(10ms);
  report_shortage(bench, 0, 0);
  bench.wait(20s);
  EXPECT_TRUE(bench.there(kB));
}

TEST(ManagerPlanner, AShortageEndsWithItsWorker) {
  Bench bench(1, {.value = true});
  bench.arrive(kA);
  bench.wait(2s);
  report_shortage(bench, 5, 3);
  bench.die();
  bench.serve(kB, 100ms);
  bench.wait(20s);
  EXPECT_TRUE(bench.there(kB)) << "nobody of this life lacks anything";
}

TEST(ManagerPlanner, WhereWorthIsLeftOutWhatWasIdleForLongGivesItsPages) {
  Bench bench(1, {.value = false});
  bench.serve(kB, 100ms);
  bench.arrive(kA);
  bench.wait(2s);
  report_shortage(bench, 5, 3);
  bench.wait(2s);
  EXPECT_TRUE(bench.there(kB)) << "idle for less than five loads";
  bench.wait(3s);
  EXPECT_FALSE(bench.there(kB));
}

TEST(ManagerPlanner, AModelWithMoreLoadThanADeviceShouldBearGetsAnother) {
  Bench bench(2, {.replicas = true}, 4);
  for (int i = 0; i < 8; ++i) {
    bench.arrive(kA);
  }
  bench.wait(8s);
  EXPECT_TRUE(bench.there(kA, 0) && bench.there(kA, 1));
  EXPECT_EQ(bench.loaded(kA, LoadReason::kLoad), 1U);
  EXPECT_EQ(bench.sent[DeviceId(1)].size(), 0U);
  for (int i = 0; i < 4; ++i) {
    bench.arrive(kA);
  }
  EXPECT_EQ(bench.sent[DeviceId(1)].size(), 4U) << "new ones go where there are fewer";
  ASSERT_EQ(bench.decisions(DecisionKind::kAdd).size(), 1U);
  for (std::uint64_t id = 2; id <= 12; ++id) {
    bench.finish(RequestId(id));
  }
  bench.wait(40s);
  const RequestId last = bench.arrive(kA);
  EXPECT_EQ(bench.sent[DeviceId(0)].back(), last) << "the other is spared, and idle when wanted";
}

TEST(ManagerPlanner, MovesAModelToWhereThereIsMoreMemoryForItsKv) {
  Bench bench(2, {.pressure = true});
  const RequestId a = bench.arrive(kA);
  bench.tell(AdminLoad{.ticket = TicketId(1), .model = kC});
  bench.wait(2s);
  // Both of the busy models on one device, which the other's idle model leaves no choice but.
  const std::uint64_t home = bench.there(kA, 0) ? 0 : 1;
  const RequestId b = bench.arrive(kB);
  bench.wait(2s);
  const std::uint64_t second = bench.there(kB, 0) ? 0 : 1;
  EXPECT_NE(home, second) << "the second busy model goes where no busy one is";
  bench.finish(a);
  bench.finish(b);
}

TEST(ManagerPlanner, AModelMovesOffADeviceWhereRequestsWaitForMemory) {
  Bench bench(2, {.pressure = true});
  bench.arrive(kA);
  const RequestId b = bench.arrive(kB);
  bench.wait(2s);
  bench.arrive(kC);
  bench.wait(2s);
  ASSERT_TRUE(bench.there(kA, 0) && bench.there(kB, 1) && bench.there(kC, 0));
  bench.finish(b);
  bench.wait(12s);
  EXPECT_TRUE(bench.decisions(DecisionKind::kMove).empty()) << "pressure alone hurts nobody";
  for (int i = 0; i < 20; ++i) {  // Never so long that another instance would be worth it.
    report_shortage(bench, 1, 3);
    bench.wait(400ms);
    report_shortage(bench, 0, 0);
  }
  EXPECT_EQ(bench.decisions(DecisionKind::kMove).size(), 1U);
  EXPECT_TRUE(bench.there(kA, 1) || bench.there(kC, 1));
}

TEST(ManagerPlanner, WhoHasWaitedForMemoryForLongEnoughGetsAnotherDevice) {
  for (const bool pressure : {false, true}) {
    Bench bench(2, {.value = true, .pressure = pressure});
    bench.arrive(kA);
    bench.wait(10s);  // What was done a moment ago is left alone.
    ASSERT_TRUE(bench.there(kA, 0));
    report_shortage(bench, 2, 3);
    bench.wait(300ms);
    EXPECT_FALSE(bench.there(kA, 1)) << "two have waited for 0.3 s, and a load takes 1 s";
    bench.wait(300ms);
    ASSERT_EQ(bench.there(kA, 1), pressure);
    bench.wait(2s);
    const RequestId next = bench.arrive(kA);
    EXPECT_EQ(bench.sent[DeviceId(pressure ? 1 : 0)].back(), next);
  }
}

/// What was recalled from the first device.
std::vector<RecallRequests> recalls(const Bench& bench) {
  std::vector<RecallRequests> found;
  for (const ManagerCommand& command : bench.said) {
    const auto* told = std::get_if<TellWorker>(&command);
    if (told != nullptr && told->device == DeviceId(0)) {
      found.push_back(std::get<RecallRequests>(told->message));
    }
  }
  return found;
}

TEST(ManagerPlanner, RequestsThatWaitForMemoryGoToWhereTheirModelHasSome) {
  for (const bool pressure : {false, true}) {
    Bench bench(2, {.value = true, .pressure = pressure, .replicas = true}, 8);
    for (int i = 0; i < 8; ++i) {
      bench.arrive(kA);
    }
    bench.wait(20s);
    ASSERT_TRUE(bench.there(kA, 0) && bench.there(kA, 1));
    ASSERT_EQ(bench.sent[DeviceId(1)].size(), 0U);
    report_shortage(bench, 4, 12);
    ASSERT_EQ(recalls(bench).size(), pressure ? 1U : 0U);
    if (!pressure) {
      continue;
    }
    EXPECT_EQ(recalls(bench)[0].most, 3) << "11 pages are free there, and each wants 3";
    report_shortage(bench, 4, 12);
    EXPECT_EQ(recalls(bench).size(), 1U) << "what they take is to be seen before others follow";
    const RequestId moved = bench.sent[DeviceId(0)][5];
    bench.report(DeviceId(0), RequestReturned{.request = moved, .recalled = true});
    EXPECT_EQ(bench.sent[DeviceId(1)], std::vector<RequestId>{moved});
    EXPECT_EQ(bench.status(kA).recalled, 1U);
    const RequestId next = bench.arrive(kA);
    EXPECT_EQ(bench.sent[DeviceId(1)].back(), next);
    report_shortage(bench, 0, 0);
    const std::size_t before = bench.sent[DeviceId(0)].size();
    for (int i = 0; i < 8; ++i) {
      bench.arrive(kA);
    }
    EXPECT_GT(bench.sent[DeviceId(0)].size(), before) << "the model serves there as before";
  }
}

TEST(ManagerPlanner, NobodyIsRecalledToWhereMemoryIsShortToo) {
  Bench bench(2, {.value = true, .pressure = true, .replicas = true}, 8);
  for (int i = 0; i < 8; ++i) {
    bench.arrive(kA);
  }
  bench.wait(20s);
  ASSERT_TRUE(bench.there(kA, 0) && bench.there(kA, 1));
  report_shortage(bench, 1, 2, DeviceId(1), kB);
  report_shortage(bench, 4, 12);
  EXPECT_TRUE(recalls(bench).empty());
}

TEST(ManagerPlanner, WhoWaitsForMemoryOnAllDevicesOfItsModelGetsOneMore) {
  Bench bench(3, {.value = true, .pressure = true});
  bench.arrive(kA);
  bench.wait(10s);
  report_shortage(bench, 2, 3);
  bench.wait(10s);
  ASSERT_TRUE(bench.there(kA, 0) && bench.there(kA, 1));
  EXPECT_FALSE(bench.there(kA, 2)) << "the second has room";
  report_shortage(bench, 2, 3, DeviceId(1), kA);
  bench.wait(2s);
  EXPECT_TRUE(bench.there(kA, 2));
}

TEST(ManagerPlanner, WhereModelsDoNotShareOneRunsAtATime) {
  Bench bench(1, {.share = false});
  const RequestId a = bench.arrive(kA);
  bench.wait(100ms);
  const RequestId b = bench.arrive(kB);
  bench.wait(500ms);
  EXPECT_EQ(bench.sent[DeviceId(0)], std::vector{a});
  bench.finish(a);
  bench.wait(2s);
  EXPECT_EQ(bench.sent[DeviceId(0)].back(), b);
}

TEST(ManagerPlanner, WhatMayNotMakeWayStays) {
  Bench bench(1, {.evict = false});
  bench.serve(kA, 100ms);
  bench.serve(kB, 100ms);
  bench.arrive(kC);
  bench.wait(5s);
  EXPECT_TRUE(bench.there(kA) && bench.there(kB));
  EXPECT_FALSE(bench.there(kC));
}

TEST(ManagerPlanner, SaysWhyForEverythingItDoes) {
  Bench bench(1, {});
  bench.serve(kA, 100ms);
  bench.serve(kB, 100ms);
  bench.serve(kC, 100ms);
  const auto loads = bench.decisions(DecisionKind::kLoad);
  ASSERT_EQ(loads.size(), 3U);
  const auto says = [](const Decision& decision, policy::PlacementReason reason) {
    return decision.why.find(policy::reason_name(reason)) != std::string::npos;
  };
  EXPECT_EQ(loads[0].model, kA);
  EXPECT_TRUE(says(loads[0], policy::PlacementReason::kFreePages)) << loads[0].why;
  EXPECT_EQ(loads[2].model, kC);
  EXPECT_TRUE(says(loads[2], policy::PlacementReason::kIdleVictims)) << loads[2].why;
  EXPECT_EQ(bench.loaded(kC, LoadReason::kRequest), 1U);
  const auto evictions = bench.decisions(DecisionKind::kEvict);
  ASSERT_EQ(evictions.size(), 1U);
  EXPECT_EQ(evictions[0].model, kA);
  EXPECT_EQ(evictions[0].for_model, kC);
}

}  // namespace
}  // namespace heddle::core
