#include "policy/consolidation.h"

#include <gtest/gtest.h>

namespace heddle::policy {
namespace {

using namespace std::chrono_literals;

std::vector<GroupMember> members() {
  return {{.device = DeviceId(1)},
          {.device = DeviceId(2), .full = true},
          {.device = DeviceId(3), .free_bytes = 90},
          {.device = DeviceId(4), .free_bytes = 80}};
}

TEST(ChooseConsolidation, ScalesDownToTheFullMemoryMember) {
  const std::vector<GroupMember> four = members();
  const std::vector<GroupRequest> requests = {{RequestId(1), 100, Instant{2s}},
                                              {RequestId(2), 50, Instant{1s}}};
  const Consolidation plan = choose_consolidation(
      {.weights = 100, .kv_per_token = 4, .members = four, .requests = requests});
  EXPECT_EQ(plan.kind, ConsolidationKind::kScaleDown);
  ASSERT_EQ(plan.survivors.size(), 1U);
  // Three quarters of the weights, and of 150 tokens of 4 bytes.
  const Survivor expected{.device = DeviceId(2),
                          .fetch_bytes = 75,
                          .requests = {RequestId(2), RequestId(1)},
                          .gather_bytes = 450};
  EXPECT_EQ(plan.survivors.front(), expected);
  EXPECT_EQ(plan.leaving, (std::vector{DeviceId(1), DeviceId(3), DeviceId(4)}));
}

TEST(ChooseConsolidation, ScalesUpToAsManyAsWantedAndAble) {
  const std::vector<GroupMember> four = members();
  GroupView view{.weights = 100, .kv_per_token = 4, .wanted = 2, .members = four};
  EXPECT_EQ(choose_consolidation(view).survivors[1].device, DeviceId(3)) << "most free memory";
  view.wanted = 9;
  const Consolidation most = choose_consolidation(view);
  EXPECT_EQ(most.kind, ConsolidationKind::kScaleUp);
  EXPECT_EQ(most.survivors.size(), 3U) << "the first has no room for 75 more";
  EXPECT_EQ(most.leaving, std::vector{DeviceId(1)});
}

TEST(ChooseConsolidation, SpreadsTheRequestsByWhatTheyHaveToGather) {
  const std::vector<GroupMember> two = {{.device = DeviceId(1), .full = true},
                                        {.device = DeviceId(2), .full = true}};
  const std::vector<GroupRequest> requests = {{RequestId(1), 100, Instant{1s}},
                                              {RequestId(2), 60, Instant{2s}},
                                              {RequestId(3), 30, Instant{3s}}};
  const Consolidation plan = choose_consolidation(
      {.weights = 100, .kv_per_token = 2, .wanted = 2, .members = two, .requests = requests});
  EXPECT_EQ(plan.survivors[0].requests, std::vector{RequestId(1)});
  EXPECT_EQ(plan.survivors[1].requests, (std::vector{RequestId(2), RequestId(3)}));
  EXPECT_EQ(plan.survivors[1].gather_bytes, 90);
}

TEST(ChooseConsolidation, StaysWhereNobodyCanHoldTheWholeModel) {
  const std::vector<GroupMember> two = {{.device = DeviceId(1), .free_bytes = 49},
                                        {.device = DeviceId(2)}};
  const Consolidation plan = choose_consolidation({.weights = 100, .members = two});
  EXPECT_EQ(plan, Consolidation{});
  EXPECT_EQ(name(plan.kind), "stay");
}

TEST(ChooseConsolidation, AGroupOfOneHasNothingToFetch) {
  const std::vector<GroupMember> one = {{.device = DeviceId(1)}};
  const Consolidation plan = choose_consolidation({.weights = 100, .members = one});
  EXPECT_EQ(plan.survivors.front().fetch_bytes, 0);
  EXPECT_TRUE(plan.leaving.empty());
}

}  // namespace
}  // namespace heddle::policy
