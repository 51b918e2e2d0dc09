#include "gateway/connection_budget.h"

#include <gtest/gtest.h>

namespace heddle::gateway {
namespace {

DescriptorNeeds needs(std::uint64_t limit) {
  return {.limit = limit, .open = 20, .processes = 2, .connections = 4096};
}

TEST(ConnectionBudget, GivesWhatIsWantedWhereItFits) {
  const std::uint64_t right = connection_budget(needs(1024)).right_limit;
  EXPECT_EQ(connection_budget(needs(right)).connections, 4096U);
  EXPECT_EQ(connection_budget(needs(right)).overflow, 64U);
  EXPECT_EQ(connection_budget(needs(UINT64_MAX)).connections, 4096U);
  EXPECT_LT(connection_budget(needs(right - 1)).connections, 4096U);
}

TEST(ConnectionBudget, LeavesAReserveBelow) {
  for (const std::uint64_t limit : {64U, 100U, 256U, 1024U, 4096U}) {
    const ConnectionBudget budget = connection_budget(needs(limit));
    EXPECT_LE(budget.connections + budget.overflow + 20 + 16 + 2 * 4, limit) << limit;
    EXPECT_GE(budget.connections, 4U);
  }
}

TEST(ConnectionBudget, AConnectionMayTakeMoreThanOne) {
  DescriptorNeeds both = needs(1024);
  both.of_a_connection = 2;
  const ConnectionBudget budget = connection_budget(both);
  EXPECT_LE(2 * (budget.connections + budget.overflow) + 20 + 16 + 2 * 4, 1024U);
}

TEST(ConnectionBudget, LeavesSomeConnectionsHoweverLowTheLimit) {
  EXPECT_EQ(connection_budget(needs(8)).connections, 4U);
  EXPECT_EQ(connection_budget(needs(0)).overflow, 2U);
}

}  // namespace
}  // namespace heddle::gateway
