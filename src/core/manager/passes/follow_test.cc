#include <functional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "core/manager/models.h"
#include "core/manager/passes/passes.h"
#include "core/manager/test_cuts.h"
#include "core/manager/test_state.h"
#include "core/manager/worker_events.h"

namespace heddle::core::manager {
namespace {

using namespace std::chrono_literals;
using test::FourHosts;
using test::kA;
using test::kB;
using test::kDevice;
using test::kHalves;
using test::kOther;
using test::TestState;

/// What workers were told to give up, and where.
template <class Core>
std::vector<std::pair<DeviceId, RecallRequests>> recalls(const Core& core) {
  std::vector<std::pair<DeviceId, RecallRequests>> found;
  for (const TellWorker& tell : core.template all<TellWorker>()) {
    if (const auto* recall = std::get_if<RecallRequests>(&tell.message)) {
      found.emplace_back(tell.device, *recall);
    }
  }
  return found;
}

/// A model runs two requests on a device where it is sent nothing more, and serves on another.
struct Drained : TestState {
  Drained() : TestState(2) {
    serve(kA);
    serve(kA, kOther);
    first = run(kA);
    second = run(kA);
    residency.drain(kDevice, kA);
    commands.clear();
  }
  /// The worker gives the request up.
  void give_up(RequestId id) {
    hear(parts,
         WorkerSaid{.device = kDevice,
                    .epoch = WorkerEpoch(1),
                    .report = RequestReturned{.request = id, .recalled = true}});
    commands.clear();
    dispatch(parts);
  }
  void moved(RequestId id) {
    hear(parts,
         WorkerSaid{.device = kOther,
                    .epoch = WorkerEpoch(2),
                    .report = KvMoved{.model = kA, .tokens = 20, .computed = 1, .request = id}});
  }
  RequestId first{};
  RequestId second{};
};

TEST(Follow, RequestsGoOneAfterTheOtherWithTheirKv) {
  Drained core;
  follow(core.parts);
  ASSERT_EQ(recalls(core).size(), 1U);
  EXPECT_EQ(recalls(core)[0].first, kDevice);
  EXPECT_EQ(recalls(core)[0].second, (RecallRequests{.model = kA, .most = 1, .begun = true}));
  follow(core.parts);
  EXPECT_EQ(recalls(core).size(), 1U) << "one is on its way";

  core.give_up(core.first);
  const std::vector<Dispatch> sent = core.all<Dispatch>();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].device, kOther);
  EXPECT_EQ(sent[0].kv, (std::vector<KvSource>{{.device = kDevice, .model = kA}}));
  follow(core.parts);
  EXPECT_TRUE(recalls(core).empty()) << "its KV is not there yet";

  core.moved(core.first);
  follow(core.parts);
  EXPECT_EQ(recalls(core).size(), 1U) << "the next one";
  EXPECT_EQ(core.model(kA).kv_moved_tokens, 20U);
  EXPECT_EQ(core.model(kA).recalled, 0) << "it lacked nothing";
}

TEST(Follow, WhoOwesKvStaysUntilItIsThereOrTooLate) {
  for (const bool comes : {true, false}) {
    Drained core;
    core.finish(core.second);
    follow(core.parts);
    core.give_up(core.first);
    EXPECT_TRUE(core.at(kA).in_flight.empty());
    EXPECT_FALSE(idle(core.state, core.at(kA)));
    follow(core.parts);
    const auto wake = core.wake();
    ASSERT_TRUE(wake);
    comes ? core.moved(core.first) : core.pass(*wake - core.state.now);
    EXPECT_TRUE(idle(core.state, core.at(kA)));
  }
}

TEST(Follow, WhoGivesNothingUpIsAskedAgain) {
  Drained core;
  follow(core.parts);
  core.pass(1s);
  follow(core.parts);
  EXPECT_EQ(recalls(core).size(), 2U);
}

TEST(Follow, ARequestThatEndsMeanwhileIsOwedNothing) {
  Drained core;
  core.finish(core.second);
  follow(core.parts);
  core.give_up(core.first);
  core.finish(core.first);
  EXPECT_TRUE(idle(core.state, core.at(kA)));
}

TEST(Follow, FromADeviceThatDiedThereIsNoKv) {
  Drained core;
  hear(core.parts,
       WorkerSaid{.device = kDevice,
                  .epoch = WorkerEpoch(1),
                  .report = RequestReturned{.request = core.first, .recalled = true}});
  core.residency.evict(kDevice, kA, EvictMode::kNow, EvictionReason::kDisplaced);
  core.commands.clear();
  dispatch(core.parts);
  ASSERT_FALSE(core.all<Dispatch>().empty());
  EXPECT_TRUE(core.all<Dispatch>()[0].kv.empty());
}

TEST(Follow, WhereItGoesBackToTheSameDeviceItFindsWhatIsThere) {
  Drained core;
  core.residency.resume(kDevice, kA);
  core.residency.drain(kOther, kA);
  core.give_up(core.first);
  ASSERT_EQ(core.all<Dispatch>().size(), 1U);
  EXPECT_EQ(core.all<Dispatch>()[0].device, kDevice);
  EXPECT_TRUE(core.all<Dispatch>()[0].kv.empty());
}

TEST(Follow, NobodyGoesWhereThereIsNoRoom) {
  const std::vector<std::function<void(Drained&)>> reasons{
      [](Drained& core) { core.residency.drain(kOther, kA); },
      [](Drained& core) { core.at(kA, kOther).complete = false; },
      [](Drained& core) { core.at(kA, kOther).moves_to = kDevice; },
      [](Drained& core) { core.device(kOther).leaving = true; },
      [](Drained& core) { core.queues.keep_alone(kOther, RequestId(1)); },
      [](Drained& core) { core.residency.resume(kDevice, kA); },
      [](Drained& core) { core.device().up = false; },
      [](Drained& core) { core.model(kA).config.external = ExternalModel{}; },
      [](Drained& core) {
        core.shortages.heard(kOther, {.short_sequences = 1, .short_pages = 1, .short_model = kA});
      },
      [](Drained& core) {
        for (int i = 0; i < 4; ++i) {
          core.run(kA, kOther);
        }
      }};
  for (std::size_t i = 0; i < reasons.size(); ++i) {
    Drained core;
    reasons[i](core);
    core.commands.clear();
    follow(core.parts);
    EXPECT_TRUE(recalls(core).empty()) << i;
  }
}

TEST(Follow, AModelThatMovesTakesItsRequestsAlong) {
  TestState core(2);
  core.serve(kA);
  core.run(kA);
  core.residency.move(kDevice, kA, kOther);
  core.load(kA, kOther);
  follow(core.parts);
  EXPECT_TRUE(recalls(core).empty()) << "it is not there yet";
  core.serve(kA, kOther);
  follow(core.parts);
  EXPECT_EQ(recalls(core).size(), 1U);
}

TEST(Follow, StagesGiveTheirLayersToTheWholeOnAnotherDevice) {
  FourHosts core;
  core.want(5s);
  const RequestId request = core.wait(kA);
  core.passes();
  core.arrive_all();
  core.passes();
  ASSERT_TRUE(core.state.requests.at(request).device);
  const ModelId cut = core.state.requests.at(request).as;
  ASSERT_NE(cut, kA);
  const DeviceId leader = *core.state.requests.at(request).device;
  const DeviceId fifth = core.add_device();
  core.serve(kA, fifth);
  core.residency.drain(leader, cut);
  core.commands.clear();
  follow(core.parts);
  ASSERT_EQ(recalls(core).size(), 1U);
  EXPECT_EQ(recalls(core)[0].second.model, cut);
  hear(core.parts,
       WorkerSaid{.device = leader,
                  .epoch = core.device(leader).epoch,
                  .report = RequestReturned{.request = request, .recalled = true}});
  core.commands.clear();
  dispatch(core.parts);
  ASSERT_EQ(core.all<Dispatch>().size(), 1U);
  const Dispatch sent = core.all<Dispatch>()[0];
  EXPECT_EQ(sent.device, fifth);
  const std::vector<ShardPlace> stages = block(core.state, cut, leader);
  ASSERT_EQ(sent.kv.size(), stages.size());
  for (std::size_t i = 0; i < stages.size(); ++i) {
    EXPECT_EQ(sent.kv[i].device, stages[i].device);
    EXPECT_EQ(sent.kv[i].model, stages[i].model);
  }
}

}  // namespace
}  // namespace heddle::core::manager
