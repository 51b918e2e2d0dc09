#include "twin/pipes.h"

#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace heddle::twin {
namespace {

using namespace std::chrono_literals;

/// A pipeline of two stages on two hosts, without workers.
struct PipesRig {
  ClusterTimes times{};
  Paths paths{};
  Agenda agenda{};
  Faults faults{FaultPlan{}};
  Pipes pipes{times, paths, agenda, faults};
  core::ConnectGroup group{
      .members = {{.device = device_id(HostId(1), 0)}, {.device = device_id(HostId(2), 0)}},
      .group = {.term = 1, .number = 7}};
  std::vector<std::pair<HostId, core::AgentEvent>> news{};

  PipeNo connect(HostId host) {
    return pipes.connect(host, group, {.on_news = [this, host](core::AgentEvent event) {
                           news.emplace_back(host, std::move(event));
                         }});
  }
  void run_until(Duration when) {
    bool over = false;
    agenda.at(Instant(when), [&] { over = true; });
    while (!over && agenda.advance()) {
    }
  }
  template <class Event>
  [[nodiscard]] int heard(HostId host) const {
    int count = 0;
    for (const auto& [to, event] : news) {
      count += to == host && std::holds_alternative<Event>(event) ? 1 : 0;
    }
    return count;
  }
};

constexpr HostId kOne{1};
constexpr HostId kTwo{2};

TEST(TwinPipes, HostsHearOnceTheirEdgesAreUp) {
  PipesRig rig;
  const PipeNo pipe = rig.connect(kOne);
  rig.run_until(1s);
  EXPECT_EQ(rig.news.size(), 0U) << "the other has not done its part";
  EXPECT_EQ(rig.connect(kTwo), pipe);
  rig.run_until(2s);
  EXPECT_EQ(rig.heard<core::GroupLinked>(kOne), 1);
  EXPECT_EQ(rig.heard<core::GroupLinked>(kTwo), 1);
  rig.run_until(20s);
  EXPECT_EQ(rig.news.size(), 2U) << "nothing ends by itself";
}

TEST(TwinPipes, OneThatWaitsInVainIsCut) {
  PipesRig rig;
  (void)rig.connect(kOne);
  rig.run_until(20s);
  EXPECT_EQ(rig.heard<core::GroupCut>(kOne), 1);
  EXPECT_EQ(rig.heard<core::GroupLinked>(kOne), 0);
}

TEST(TwinPipes, WhoLeavesHearsNothingAndTheOtherThatItIsCut) {
  PipesRig rig;
  (void)rig.connect(kOne);
  (void)rig.connect(kTwo);
  rig.run_until(1s);
  rig.pipes.leave(kOne, rig.group.group);
  rig.run_until(2s);
  EXPECT_EQ(rig.heard<core::GroupCut>(kOne), 0);
  EXPECT_EQ(rig.heard<core::GroupCut>(kTwo), 1);
}

TEST(TwinPipes, ACutOfTheWayEndsItForBoth) {
  PipesRig rig;
  (void)rig.connect(kOne);
  (void)rig.connect(kTwo);
  rig.run_until(1s);
  rig.pipes.between(kOne, kTwo).cut(Side::kCaller, 10s);
  rig.run_until(30s);
  EXPECT_EQ(rig.heard<core::GroupCut>(kOne), 1);
  EXPECT_EQ(rig.heard<core::GroupCut>(kTwo), 1);
}

TEST(TwinPipes, ADeadHostSaysNothingAndTheOtherNotices) {
  PipesRig rig;
  (void)rig.connect(kOne);
  (void)rig.connect(kTwo);
  rig.run_until(1s);
  rig.pipes.fall(kTwo, true);
  rig.run_until(30s);
  EXPECT_EQ(rig.heard<core::GroupCut>(kOne), 1);
  EXPECT_EQ(rig.heard<core::GroupCut>(kTwo), 0);
}

}  // namespace
}  // namespace heddle::twin
