#include "twin/cluster.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "twin/test_cluster_world.h"

namespace heddle::twin {
namespace {

using namespace std::chrono_literals;

/// A host of one device, and what is said to whoever links with it.
struct HostRig {
  test::WorldOptions options{.hosts = 1, .devices = 1};
  std::map<ModelId, TwinModel> models{};
  Paths paths{};
  ClusterTimes times{};
  Agenda agenda{};
  Faults faults{FaultPlan{}};
  Pipes pipes{times, paths, agenda, faults};
  Path path{times, agenda, faults};
  std::vector<std::pair<HostNode*, core::AgentEvent>> heard{};
  HostNode node{
      test::host_of_options(options, HostId(1)),
      HostSurroundings{
          .models = models, .paths = paths, .agenda = agenda, .faults = faults, .pipes = pipes},
      times,
      [this](HostNode& to, core::AgentEvent event) { heard.emplace_back(&to, std::move(event)); }};

  /// One link, at the end of whoever made it.
  struct Link {
    std::shared_ptr<Wire> wire{};
    std::vector<Message> said{};
    bool closed = false;

    template <class T>
    [[nodiscard]] bool was_told() const {
      return std::ranges::any_of(
          said, [](const Message& message) { return std::holds_alternative<T>(message); });
    }
  };

  std::unique_ptr<Link> link() {
    auto made = std::make_unique<Link>();
    made->wire = path.connect();
    made->wire->start(
        Side::kCaller,
        {.on_message = [to = made.get()](const Message& said) { to->said.push_back(said); },
         .on_closed = [to = made.get()] { to->closed = true; }});
    return made;
  }
  std::unique_ptr<Link> lead(int name, std::uint64_t term) {
    auto made = link();
    node.take_manager(made->wire, name);
    made->wire->send(Side::kCaller, Lead{.term = term});
    run();
    return made;
  }
  void run() {
    do {
      for (const auto& [to, event] : std::exchange(heard, {})) {
        to->host().step(event);
      }
    } while (agenda.advance() || !heard.empty());
  }
};

TEST(HostNode, TheManagerOfTheHighestTermLeads) {
  HostRig rig;
  const auto first = rig.lead(0, 5);
  EXPECT_TRUE(first->was_told<HostHere>() && first->was_told<HostKnown>());
  const auto late = rig.lead(1, 4);
  EXPECT_TRUE(late->closed) << "it leads no longer";
  EXPECT_FALSE(late->was_told<HostHere>());
  EXPECT_FALSE(first->closed);
  const auto next = rig.lead(1, 6);
  EXPECT_TRUE(next->was_told<core::ManagerEvent>()) << "of the worker that is there";
  EXPECT_TRUE(first->closed);
}

TEST(HostNode, ASecondLinkOfAGatewayEndsTheFirstWithItsRequests) {
  HostRig rig;
  rig.run();
  const auto first = rig.link();
  rig.node.take_gateway(first->wire, FrontId(1));
  const WorkerEpoch epoch = rig.node.host().memory().lives().begin()->second;
  const auto submit = [&](const HostRig::Link& link, WorkerEpoch to) {
    link.wire->send(Side::kCaller,
                    core::TellWorker{.device = device_id(HostId(1), 0),
                                     .epoch = to,
                                     .message = core::Submit{.request = first_request(FrontId(1)),
                                                             .model = ModelId(1),
                                                             .choices = {{}}}});
  };
  submit(*first, epoch);
  while (rig.node.requests() == 0) {
    ASSERT_TRUE(rig.agenda.advance());
  }
  const auto second = rig.link();
  rig.node.take_gateway(second->wire, FrontId(1));
  EXPECT_EQ(rig.node.requests(), 0U);
  submit(*second, WorkerEpoch(99));
  rig.run();
  EXPECT_TRUE(first->closed);
  EXPECT_TRUE(second->was_told<Lives>());
  EXPECT_TRUE(second->was_told<LifeEnded>()) << "there is no such life";
}

TEST(Cluster, AHostThatDiesComesAgainInALaterLifeAndItsRequestsGoOn) {
  test::WorldOptions options{.seed = 3, .hosts = 2, .arrivals = 60ms, .host_deaths = 2};
  test::ClusterWorld world(options);
  world.run();
  std::map<HostId, WorkerEpoch> last;
  for (const auto& [id, node] : world.cluster().hosts()) {
    ASSERT_FALSE(node->host().lives().empty());
    const WorkerEpoch first = node->host().lives().front()->epoch();
    EXPECT_GT(first, last[id]);
    last[id] = first;
  }
  EXPECT_GE(world.cluster().hosts().size(), 3U);
  for (const Request& request : world.requests()) {
    EXPECT_EQ(request.end, Request::End::kDone) << request.error.message;
  }
}

TEST(Cluster, EqualSeedsGiveEqualAnswers) {
  const auto moments = [] {
    test::ClusterWorld world({.seed = 8,
                              .hosts = 3,
                              .deaths = 1,
                              .manager_deaths = 1,
                              .host_deaths = 1,
                              .cuts = 2,
                              .one_way_cuts = 2,
                              .resets = 2});
    world.run();
    std::vector<Instant> all;
    for (const Request& request : world.requests()) {
      all.push_back(request.last);
    }
    return all;
  };
  EXPECT_EQ(moments(), moments());
}

}  // namespace
}  // namespace heddle::twin
