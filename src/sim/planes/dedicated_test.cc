#include "sim/planes/dedicated.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/test_world.h"

namespace heddle::sim {
namespace {

using testing::UnorderedElementsAre;

TEST(Dedicated, EveryModelHasAGpuFromTheStart) {
  const TestRun run = run_policy("dedicated",
                                 test_cluster(1, 2),
                                 test_models(2),
                                 {row_at(1, 0, 128, 4), row_at(2, 1, 256, 4)});
  EXPECT_NEAR(run.request(0).ttft(), prefill_seconds(128), 1e-6);
  EXPECT_NEAR(run.request(1).ttft(), prefill_seconds(256), 1e-6);
  EXPECT_THAT(run.witness.acts, UnorderedElementsAre("start m0 static", "start m1 static"));
}

TEST(Dedicated, AModelWithoutAGpuIsRefused) {
  const TestRun run = run_policy("dedicated",
                                 test_cluster(1, 1),
                                 test_models(2),
                                 {row_at(1, 0, 128, 4), row_at(2, 1, 256, 4)});
  EXPECT_EQ(run.counts.completed, 1);
  EXPECT_EQ(run.counts.refused, 1);
}

}  // namespace
}  // namespace heddle::sim
