#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "core/manager/passes/passes.h"
#include "core/manager/test_state.h"

namespace heddle::core::manager {
namespace {

using namespace std::chrono_literals;
using test::kA;
using test::kB;
using test::kDevice;
using test::kEngine;
using test::kOther;
using test::TestState;

/// Pages of a device on which requests fit that do not fit on one of kPages.
constexpr std::int64_t kManyPages = 40;

/// Two workers died under it.
RequestId suspect(TestState& core, ModelId model) {
  const RequestId id = core.wait(model);
  for (std::int32_t i = 0; i < kDeathsInCompany; ++i) {
    core.queues.died(id);
  }
  return id;
}

// ---- Dispatch ----

TEST(Dispatch, RequestsGoToWhereTheirModelServesInTheOrderOfTheirQueue) {
  TestState core;
  core.serve(kA);
  const RequestId first = core.wait(kA);
  const RequestId second = core.wait(kA);
  const RequestId urgent = core.wait(kA, 8, -1);
  dispatch(core.parts);
  EXPECT_EQ(core.sent(), (std::vector{urgent, first, second}));
  EXPECT_TRUE(core.all<Hold>().empty());
}

TEST(Dispatch, ARequestIsHeldOnceWhileItsModelComesOrGoes) {
  TestState core;
  core.serve(kA);
  core.residency.drain(kDevice, kA);
  core.load(kB);
  core.commands.clear();
  core.wait(kA);
  core.wait(kB);
  dispatch(core.parts);
  dispatch(core.parts);
  EXPECT_TRUE(core.sent().empty());
  EXPECT_EQ(core.all<Hold>().size(), 2U);
}

TEST(Dispatch, ARequestGoesToTheInstanceWithTheFewest) {
  TestState core(2);
  core.serve(kA);
  core.serve(kA, kOther);
  core.run(kA);
  core.wait(kA);
  dispatch(core.parts);
  ASSERT_EQ(core.all<Dispatch>().size(), 1U);
  EXPECT_EQ(core.all<Dispatch>()[0].device, kOther);
}

/// What a device has of a model's adapters: two at most, of which that used longest ago goes.
struct TwoAdapters {
  std::vector<std::string> kept{};  ///< That used last: last.
  int loads = 0;

  void use(const std::string& adapter) {
    if (std::erase(kept, adapter) == 0) {
      ++loads;
    }
    kept.push_back(adapter);
    if (kept.size() > 2) {
      kept.erase(kept.begin());
    }
  }
};

TEST(Dispatch, TwoInstancesDivideAdaptersRatherThanTakeTurnsWithThem) {
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Rng rng(seed);
  TestState core(2);
  core.serve(kA);
  core.serve(kA, kOther);
  std::map<DeviceId, TwoAdapters> devices;
  std::vector<RequestId> running;
  for (std::uint64_t number = 1; number <= 400; ++number) {
    if (running.size() == 2) {
      const auto ends = running.begin() + static_cast<std::ptrdiff_t>(rng.below(2));
      core.finish(*ends);
      running.erase(ends);
    }
    const RequestId id(number);
    core.queues.arrive({.request = id,
                        .model = kA,
                        .prompt_tokens = 4,
                        .max_tokens = 4,
                        .adapter = "adapter " + std::to_string(rng.below(4))});
    dispatch(core.parts);
    const RequestState& request = core.state.requests.at(id);
    ASSERT_TRUE(request.device.has_value());
    TwoAdapters& there = devices[*request.device];
    there.use(request.adapter);
    core.residency.observe(*request.device, {.model = kA, .adapters = there.kept});
    running.push_back(id);
  }
  EXPECT_LE(devices[kDevice].loads + devices[kOther].loads, 8) << "there are four";
  EXPECT_EQ(devices[kDevice].kept.size() + devices[kOther].kept.size(), 4U);
}

TEST(Dispatch, ARequestGoesWhereItFits) {
  TestState core(2);
  core.device(kOther).config.pages = kManyPages;
  core.serve(kA);
  core.serve(kA, kOther);
  core.run(kA, kOther);
  const RequestId fits = core.wait(kA, 96);
  const RequestId needs_more = core.wait(kA, 97);
  dispatch(core.parts);
  EXPECT_EQ(core.state.requests.at(fits).device, kDevice);
  EXPECT_EQ(core.state.requests.at(needs_more).device, kOther);
}

TEST(Dispatch, AnAnswerOfNoGivenLengthEndsWhereTheMemoryDoes) {
  TestState core;
  core.device().config.pages = kManyPages;  // 32 of them are for KV.
  core.serve(kA);
  core.queues.arrive({.request = RequestId(1),
                      .model = kA,
                      .prompt_tokens = 0,
                      .max_tokens = 900,
                      .open_ended = true});
  dispatch(core.parts);
  ASSERT_EQ(core.all<Dispatch>().size(), 1U);
  EXPECT_EQ(core.all<Dispatch>()[0].tokens, 8 * 32);
}

TEST(Dispatch, AnEngineIsNotToldHowLongAnAnswerMayBe) {
  TestState core;
  core.add_engine();
  core.serve(kEngine);
  core.queues.arrive({.request = RequestId(1),
                      .model = kEngine,
                      .prompt_tokens = 0,
                      .max_tokens = 5000,
                      .open_ended = true});
  dispatch(core.parts);
  ASSERT_EQ(core.all<Dispatch>().size(), 1U);
  EXPECT_EQ(core.all<Dispatch>()[0].tokens, 5000);
}

TEST(Dispatch, AnEngineThatDidNotTakeARequestIsSentNoneUntilItHasRested) {
  TestState core;
  core.add_engine();
  core.serve(kEngine);
  core.queues.rest(kDevice, kEngine, core.state.now + 1s);
  const RequestId id = core.wait(kEngine);
  dispatch(core.parts);
  EXPECT_TRUE(core.sent().empty());
  EXPECT_EQ(core.wake(), core.state.now + 1s);
  core.pass(1s);
  dispatch(core.parts);
  EXPECT_EQ(core.sent(), std::vector{id});
}

// ---- Who has to run alone ----

TEST(Dispatch, ARequestUnderWhichTwoWorkersDiedRunsAlone) {
  TestState core;
  core.serve(kA);
  core.serve(kB);
  const RequestId beside = core.run(kB);
  const RequestId id = suspect(core, kA);
  dispatch(core.parts);
  EXPECT_TRUE(core.sent().empty());
  EXPECT_EQ(core.device().alone, id);

  const RequestId later = core.wait(kB);
  dispatch(core.parts);
  EXPECT_TRUE(core.sent().empty()) << "the device is kept free";
  core.finish(beside);
  dispatch(core.parts);
  EXPECT_EQ(core.sent(), std::vector{id});
  core.finish(id);
  dispatch(core.parts);
  EXPECT_EQ(core.sent(), (std::vector{id, later}));
}

TEST(Dispatch, OneDeathLeavesARequestInCompany) {
  TestState core;
  core.serve(kA);
  core.run(kA);
  const RequestId id = core.wait(kA);
  core.queues.died(id);
  dispatch(core.parts);
  EXPECT_EQ(core.sent(), std::vector{id});
}

TEST(Dispatch, ARequestKeepsOneDeviceFreeAndNotAllThatItsModelHas) {
  TestState core(2);
  core.serve(kA);
  core.serve(kA, kOther);
  core.run(kA);
  core.run(kA, kOther);
  const RequestId id = suspect(core, kA);
  dispatch(core.parts);
  ASSERT_EQ(core.device().alone, id);
  core.run(kA);  // The other device has fewer requests from here on.
  dispatch(core.parts);
  EXPECT_FALSE(core.device(kOther).alone);
  const RequestId next = core.wait(kA);
  dispatch(core.parts);
  EXPECT_EQ(core.state.requests.at(next).device, kOther);
}

TEST(Dispatch, NoDeviceIsKeptFreeThatAPlanOrAnotherRequestHas) {
  TestState planned;
  planned.serve(kA);
  planned.run(kA);
  planned.plans.begin(kDevice, kB, {});
  suspect(planned, kA);
  dispatch(planned.parts);
  EXPECT_FALSE(planned.device().alone);

  TestState taken;
  taken.serve(kA);
  taken.run(kA);
  const RequestId first = suspect(taken, kA);
  suspect(taken, kA);
  dispatch(taken.parts);
  EXPECT_EQ(taken.device().alone, first);
}

TEST(Dispatch, ADeviceThatIsKeptForOneRequestIsNotTakenByAnotherThatHasToRunAlone) {
  TestState core;
  core.serve(kA);
  core.serve(kB);
  const RequestId runs = core.run(kA);
  const RequestId first = suspect(core, kB);
  dispatch(core.parts);
  ASSERT_EQ(core.device().alone, first);
  core.finish(runs);
  suspect(core, kA);
  dispatch(core.parts);
  EXPECT_EQ(core.sent(), std::vector{first});
}

TEST(Dispatch, AnEngineTakesRequestsThoughItsDeviceIsKeptFree) {
  TestState core;
  core.add_engine();
  core.serve(kEngine);
  core.serve(kA);
  core.run(kA);
  suspect(core, kA);
  const RequestId id = core.wait(kEngine);
  dispatch(core.parts);
  ASSERT_TRUE(core.device().alone);
  EXPECT_EQ(core.sent(), std::vector{id});
}

// ---- Release ----

/// The device is kept free for a request that cannot run there yet.
struct Kept : TestState {
  Kept() {
    serve(kA);
    other = run(kA);
    id = suspect(*this, kA);
    dispatch(parts);
    EXPECT_EQ(device().alone, id);
  }
  RequestId other{};
  RequestId id{};
};

TEST(Release, ADeviceIsKeptWhileTheModelServesThere) {
  Kept core;
  release(core.parts);
  EXPECT_EQ(core.device().alone, core.id);
}

TEST(Release, ADeviceIsFreeForAllWhenTheModelDoesNotServeThere) {
  Kept drained;
  drained.residency.drain(kDevice, kA);
  release(drained.parts);
  EXPECT_FALSE(drained.device().alone);

  Kept gone;
  gone.residency.lose(kDevice, kA);
  release(gone.parts);
  EXPECT_FALSE(gone.device().alone);
}

TEST(Release, WhoRunsAloneHasTheDeviceToTheEnd) {
  Kept core;
  core.finish(core.other);
  dispatch(core.parts);
  ASSERT_EQ(core.state.requests.at(core.id).device, kDevice);
  core.residency.drain(kDevice, kA);
  release(core.parts);
  EXPECT_EQ(core.device().alone, core.id);
}

}  // namespace
}  // namespace heddle::core::manager
