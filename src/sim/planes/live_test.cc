#include "sim/planes/live.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "core/codec.h"
#include "sim/test_world.h"

namespace heddle::sim {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

constexpr double kLoadSeconds = 16.06e9 / 22.7e9;
constexpr double kAttachSeconds = 0.55;

TEST(Live, AMissIsALoadAndAHitIsNone) {
  const TestRun run = run_policy(
      "live", test_cluster(1, 1), test_models(2), {row_at(1, 0, 128, 8), row_at(9, 0, 128, 8)});
  EXPECT_NEAR(run.request(0).ttft(), kLoadSeconds + kAttachSeconds + prefill_seconds(128), 0.01);
  EXPECT_NEAR(run.request(1).ttft(), prefill_seconds(128), 1e-6);
  EXPECT_EQ(run.counts.starts, 1);
  EXPECT_EQ(run.counts.completed, 2);
}

}  // namespace
}  // namespace heddle::sim
