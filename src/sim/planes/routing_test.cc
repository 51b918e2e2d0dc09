#include "sim/planes/routing.h"

#include <vector>

#include <gtest/gtest.h>

namespace heddle::sim {
namespace {

std::vector<policy::InstanceView> instances_with(const std::vector<std::int64_t>& running) {
  std::vector<policy::InstanceView> result;
  for (std::size_t i = 0; i < running.size(); ++i) {
    result.push_back({.id = policy::ReplicaId(i), .running = running[i]});
  }
  return result;
}

TEST(Route, GoesToTheInstanceWithTheFewestRequests) {
  EXPECT_EQ(choose_route(instances_with({5, 3, 3}), 0, 32),
            (Route{.action = RouteAction::kSend, .instance = policy::ReplicaId(1)}));
  EXPECT_EQ(choose_route(instances_with({32, 32}), 0, 32).action, RouteAction::kStart);
  EXPECT_EQ(choose_route(instances_with({32, 32}), 1, 32).action, RouteAction::kQueue);
  EXPECT_EQ(choose_route({}, 0, 32).action, RouteAction::kStart);
}

}  // namespace
}  // namespace heddle::sim
