// How the manager treats an external engine that several hosts have, hosts that are cut off, and
// engines that ran before it did.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "core/manager/test_bench.h"
#include "core/test_find.h"

namespace heddle::core {
namespace {

using namespace std::chrono_literals;
using test::find;
using test::kA;

constexpr HostId kFirst{1};
constexpr HostId kSecond{2};
constexpr DeviceId kHere = device_id(kFirst, 0);
constexpr DeviceId kThere = device_id(kSecond, 0);
constexpr WorkerEpoch kOnly{1};

/// One engine, which two hosts have; on the second its pages are twice as large.
Configure two_hosts() {
  return {.models = {{.id = kA,
                      .name = "a",
                      .context = 1,
                      .footprints = {{kHere, {.image_pages = 12}}, {kThere, {.image_pages = 6}}},
                      .external = ExternalModel{.drain = 2s}}},
          .devices = {{.id = kHere, .name = "h1/d", .pages = 20},
                      {.id = kThere, .name = "h2/d", .pages = 10}}};
}

struct TwoHosts : test::Bench {
  TwoHosts() : Bench(two_hosts()) {}

  std::vector<ManagerCommand> arrive(std::uint64_t id) {
    return tell(RequestArrived{.request = RequestId(id), .model = kA});
  }
  std::vector<ManagerCommand> says(DeviceId device, EngineNews news, std::int64_t held = 0) {
    return tell(EngineSaid{.device = device, .model = kA, .news = news, .held_pages = held});
  }
  /// The host is heard of again; its devices are what they were.
  void come_back(DeviceId device) {
    tell(WorkerFound{.device = device, .epoch = kOnly, .report = {}});
  }
  /// A request that its engine answers, on the first host.
  void run(std::uint64_t id) {
    arrive(id);
    says(kHere, EngineNews::kServing, 12);
  }
  [[nodiscard]] ModelStatus engine() const { return core.models().at(0); }
};

TEST(MovingEngines, OneOfTheHostsHasItAtATime) {
  TwoHosts bench;
  EXPECT_EQ(find<LoadOn>(bench.arrive(1))->device, kHere);
  EXPECT_EQ(find<LoadOn>(bench.arrive(2)), nullptr);
  const auto served = bench.says(kHere, EngineNews::kServing, 12);
  EXPECT_EQ(find<Dispatch>(served)->device, kHere);
  EXPECT_EQ(find<LoadOn>(bench.arrive(3)), nullptr);
}

TEST(MovingEngines, WithItsHostItGoesToAnotherAndWithItWhatWasNotAnswered) {
  TwoHosts bench;
  bench.run(1);
  bench.arrive(2);
  EXPECT_EQ(find<LoadOn>(bench.tell(HostLost{.host = kFirst})), nullptr)
      << "both are perhaps answered there still";
  bench.tell(RequestCancelled{.request = RequestId(2)});
  const auto gone = bench.tell(RequestUnanswered{.request = RequestId(1), .cut = true});
  EXPECT_EQ(find<LoadOn>(gone)->device, kThere);
  EXPECT_EQ(find<Dispatch>(bench.says(kThere, EngineNews::kServing, 6))->request, RequestId(1));
}

TEST(MovingEngines, AHostThatWasCutOffIsTakenUpWithItsRequests) {
  TwoHosts bench;
  bench.run(1);
  bench.tell(HostLost{.host = kFirst});
  bench.come_back(kHere);
  EXPECT_EQ(bench.engine().requests_running, 0);
  const auto heard = bench.says(kHere, EngineNews::kServing, 12);
  EXPECT_EQ(find<Dispatch>(heard), nullptr) << "it is answered there already";
  EXPECT_EQ(bench.engine().requests_running, 1);
  bench.finish(1);
  EXPECT_EQ(bench.engine().requests_running, 0);
}

TEST(MovingEngines, AHostThatCannotBeReachedIsHeldAgainstNoRequest) {
  TwoHosts bench;
  bench.run(1);
  for (int i = 0; i < 20; ++i) {
    const auto again = bench.tell(RequestUnanswered{.request = RequestId(1), .cut = true});
    EXPECT_EQ(find<FailRequest>(again), nullptr);
    EXPECT_EQ(find<Dispatch>(again), nullptr) << "the engine rests";
    EXPECT_NE(find<Dispatch>(bench.after(250ms)), nullptr);
  }
}

TEST(MovingEngines, AnEngineThatRanBeforeThisManagerIsFoundAndUsed) {
  TwoHosts bench;
  bench.says(kThere, EngineNews::kServing, 6);
  const auto arrived = bench.arrive(1);
  EXPECT_EQ(find<LoadOn>(arrived), nullptr);
  EXPECT_EQ(find<Dispatch>(arrived)->device, kThere);
}

TEST(MovingEngines, AnEngineThatStandsByComesBackWhereItIs) {
  TwoHosts bench;
  bench.says(kThere, EngineNews::kSuspended, 2);
  const auto arrived = bench.arrive(1);
  EXPECT_EQ(find<LoadOn>(arrived)->device, kThere);
}

TEST(MovingEngines, OfUnknownEnginesNothingIsFoundThatIsNotThere) {
  TwoHosts bench;
  for (const EngineNews news :
       {EngineNews::kRefused, EngineNews::kFailed, EngineNews::kEnded, EngineNews::kLost}) {
    bench.says(kThere, news);
    EXPECT_FALSE(bench.engine().device.has_value());
  }
  bench.tell(EngineSaid{.device = DeviceId(99), .model = kA, .news = EngineNews::kServing});
  EXPECT_FALSE(bench.engine().device.has_value());
}

TEST(MovingEngines, AnEngineThatNobodyHasConfiguredAnyMoreIsEnded) {
  TwoHosts bench;
  const auto found = bench.tell(EngineSaid{
      .device = kThere, .model = ModelId(77), .news = EngineNews::kSuspended, .held_pages = 2});
  const auto* const evict = find<EvictFrom>(found);
  ASSERT_NE(evict, nullptr);
  EXPECT_EQ(evict->device, kThere);
  EXPECT_EQ(evict->model, ModelId(77));
  EXPECT_EQ(evict->mode, EvictMode::kNow);
  EXPECT_EQ(evict->free_pages, INT64_MAX);
  const auto ended =
      bench.tell(EngineSaid{.device = kThere, .model = ModelId(77), .news = EngineNews::kEnded});
  EXPECT_EQ(find<EvictFrom>(ended), nullptr);
}

/// What a front says of request 1 to a manager that is new.
FrontState front_says(std::optional<DeviceId> device) {
  return {.front = FrontId(0),
          .requests = {
              {.request = {.request = RequestId(1), .model = kA}, .age = 3s, .device = device}}};
}

TEST(MovingEngines, ANewManagerTakesUpForwardedRequestsWhoeverTellsFirst) {
  for (const bool host_first : {true, false}) {
    TwoHosts bench;
    bench.tell(Settled{.settled = false});
    if (host_first) {
      bench.says(kThere, EngineNews::kServing, 6);
    }
    bench.tell(front_says(kThere));
    if (!host_first) {
      bench.says(kThere, EngineNews::kServing, 6);
    }
    const auto settled = bench.tell(Settled{.settled = true});
    EXPECT_EQ(find<Dispatch>(settled), nullptr);
    EXPECT_EQ(find<LoadOn>(settled), nullptr);
    EXPECT_EQ(bench.engine().requests_running, 1) << host_first;
    bench.tell(FrontState{.front = FrontId(0)});
    EXPECT_EQ(bench.engine().requests_running, 0) << "its front is gone";
  }
}

TEST(MovingEngines, ARequestThatStandsStillWithItsEngineHasANewManagerResumeIt) {
  TwoHosts bench;
  bench.says(kThere, EngineNews::kSuspended, 2);
  EXPECT_EQ(find<LoadOn>(bench.tell(front_says(kThere)))->device, kThere);
  const auto serves = bench.says(kThere, EngineNews::kServing, 6);
  EXPECT_EQ(find<Dispatch>(serves), nullptr) << "it was forwarded before";
  EXPECT_EQ(bench.engine().requests_running, 1);
}

TEST(MovingEngines, ARequestThatOnlyWaitsIsForwardedByANewManager) {
  TwoHosts bench;
  EXPECT_NE(find<LoadOn>(bench.tell(front_says(std::nullopt))), nullptr);
  EXPECT_NE(find<Dispatch>(bench.says(kHere, EngineNews::kServing, 12)), nullptr);
}

TEST(MovingEngines, OneThatIsAtTwoPlacesGoesFromTheIdleOne) {
  TwoHosts bench;
  bench.run(1);
  bench.tell(HostLost{.host = kFirst});
  bench.tell(RequestUnanswered{.request = RequestId(1), .cut = true});
  bench.says(kThere, EngineNews::kServing, 6);
  bench.come_back(kHere);
  const auto twice = bench.says(kHere, EngineNews::kServing, 12);
  ASSERT_NE(find<EvictFrom>(twice), nullptr);
  EXPECT_EQ(find<EvictFrom>(twice)->device, kHere);
  EXPECT_EQ(find<EvictFrom>(twice)->free_pages, INT64_MAX);
  bench.says(kHere, EngineNews::kEnded);
  EXPECT_EQ(bench.engine().device, kThere);
  EXPECT_EQ(bench.engine().requests_running, 1);
}

TEST(MovingEngines, OneThatStandsByWhereAnotherServesIsEnded) {
  TwoHosts bench;
  bench.run(1);
  const auto twice = bench.says(kThere, EngineNews::kSuspended, 2);
  ASSERT_NE(find<EvictFrom>(twice), nullptr);
  EXPECT_EQ(find<EvictFrom>(twice)->device, kThere);
  EXPECT_EQ(find<EvictFrom>(twice)->mode, EvictMode::kNow);
}

TEST(MovingEngines, BothBusyTheOneWithFewerRequestsIsSentNothingMore) {
  TwoHosts bench;
  bench.run(1);
  bench.arrive(2);
  bench.tell(
      FrontState{.front = FrontId(1),
                 .requests = {{.request = {.request = first_request(FrontId(1)), .model = kA},
                               .device = kThere}}});
  EXPECT_EQ(find<EvictFrom>(bench.says(kThere, EngineNews::kServing, 6)), nullptr);
  EXPECT_EQ(find<Dispatch>(bench.arrive(3))->device, kHere);
  const auto ended = bench.tell(RequestFinished{.request = first_request(FrontId(1))});
  EXPECT_EQ(find<EvictFrom>(ended)->device, kThere);
}

}  // namespace
}  // namespace heddle::core
