#include "policy/kv_pressure.h"

#include <cmath>

#include <gtest/gtest.h>

namespace heddle::policy {
namespace {

using namespace std::chrono_literals;

TEST(KvDemand, IsTokenRateTimesTokenSizeOverObjective) {
  EXPECT_DOUBLE_EQ(kv_demand(1000.0, 131072, 50ms), 1000.0 * 131072 / 0.05);
}

TEST(KvPressure, IsInfiniteWhereNothingIsLeftForKv) {
  EXPECT_DOUBLE_EQ(kv_pressure(6.0, 3), 2.0);
  EXPECT_TRUE(std::isinf(kv_pressure(6.0, 0)));
  EXPECT_TRUE(std::isinf(kv_pressure(0.0, -1)));
}

TEST(KvLoads, AddsEachPartToItsDevice) {
  const std::vector<KvModel> models = {
      {.demand = 6.0, .bytes = 20, .parts = 2, .at = {DeviceId(1), DeviceId(0)}},
      {.demand = 1.0, .bytes = 5, .at = {DeviceId(1)}},
      {.demand = 9.0, .bytes = 9}};
  const std::vector<KvDevice> devices = {{.id = DeviceId(1), .bytes = 100},
                                         {.id = DeviceId(0), .bytes = 100}};
  const std::vector<KvDevice> loads = kv_loads(models, devices);
  EXPECT_EQ(loads[0].id, DeviceId(0));
  EXPECT_DOUBLE_EQ(loads[0].demand, 3.0);
  EXPECT_EQ(loads[0].taken, 10);
  EXPECT_DOUBLE_EQ(loads[1].demand, 4.0);
  EXPECT_EQ(loads[1].taken, 15);
}

}  // namespace
}  // namespace heddle::policy
