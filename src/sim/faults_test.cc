#include "sim/faults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/test_world.h"

namespace heddle::sim {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

TEST(Faults, AScriptHasALineForEach) {
  const auto plans = parse_faults(
      "# a bad day\n90s nic 2 for 5m at 0.1\n\n2h gpu 7 for 10m  # of sixteen\n", "day", 16, 4);
  ASSERT_TRUE(plans.has_value());
  ASSERT_EQ(plans->size(), 2U);
  EXPECT_EQ((*plans)[0].fault, World::Fault::kNic);
  EXPECT_EQ((*plans)[0].target, 2U);
  EXPECT_EQ((*plans)[0].at, Instant(90s));
  EXPECT_EQ((*plans)[0].lasts, 5min);
  EXPECT_DOUBLE_EQ((*plans)[0].factor, 0.1);
  EXPECT_EQ((*plans)[1].fault, World::Fault::kGpu);
}

TEST(Faults, WhatIsWrongIsNamedWithItsLine) {
  const auto message = [](std::string_view text) {
    const auto plans = parse_faults(text, "day", 16, 4);
    return plans ? std::string("none") : plans.error().message;
  };
  EXPECT_THAT(message("1s gpu 0 for 1s\n1s gpu 16 for 1s"), HasSubstr("day, line 2"));
  EXPECT_THAT(message("1s gpu 16 for 1s"), HasSubstr("below 16"));
  EXPECT_THAT(message("1s host 4 for 1s"), HasSubstr("below 4"));
  EXPECT_THAT(message("1s fan 0 for 1s"), HasSubstr("\"fan\""));
  EXPECT_THAT(message("1s gpu 0 until 1s"), HasSubstr("\"for\""));
  EXPECT_THAT(message("soon gpu 0 for 1s"), HasSubstr("soon"));
  EXPECT_THAT(message("1s nic 0 for 1s at -1"), HasSubstr("-1"));
}

TEST(Faults, RandomOnesAreTheSameForASeedAndInRange) {
  const auto one = random_faults(Rng(7), 100, 1h, 16, 4);
  const auto two = random_faults(Rng(7), 100, 1h, 16, 4);
  ASSERT_EQ(one.size(), 100U);
  for (std::size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i].at, two[i].at);
    EXPECT_EQ(one[i].target, two[i].target);
    EXPECT_LT(one[i].at, Instant(1h));
    const bool host = one[i].fault == World::Fault::kHost || one[i].fault == World::Fault::kNic;
    EXPECT_LT(one[i].target, host ? 4U : 16U);
  }
}

constexpr int kRequests = 100;

/// Requests of three models in a minute.
std::vector<TraceRow> a_busy_minute(Rng& rng) {
  std::vector<TraceRow> rows;
  double at = 0;
  for (int i = 0; i < kRequests; ++i) {
    at += 0.1 * static_cast<double>(rng.below(12));
    rows.push_back(row_at(at,
                          rng.below(3),
                          1 + static_cast<std::int64_t>(rng.below(1500)),
                          1 + static_cast<std::int64_t>(rng.below(1500))));
  }
  return rows;
}

// Whatever breaks, and however often: at every event the books agree, and as everything is mended
// in the end, every request is served in the end. The policy sets take turns.
TEST(Faults, AThousandSchedulesLoseNoRequestAndNoPage) {
  const std::span<const PlaneEntry> planes = plane_entries();
  std::int64_t failures = 0;
  std::int64_t resubmissions = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    Rng rng(seed);
    const PlaneEntry& entry = planes[seed % planes.size()];
    const std::vector<TraceRow> rows = a_busy_minute(rng);
    const std::vector<FaultPlan> faults =
        random_faults(Rng(seed ^ 77), 1 + rng.below(8), 1min, 4, 2);
    PlaneInputs inputs{.demand = std::vector<OfflineDemand>(3, {.requests_per_second = 0.1})};
    auto plane = make_plane(entry.name, inputs);
    ASSERT_TRUE(plane.has_value());
    const TestRun run =
        run_world(test_cluster(2, 2), test_models(3), **plane, rows, [&](World& world) {
          inject(world, faults);
        });
    ASSERT_EQ(run.counts.completed, kRequests) << entry.name << ", seed " << seed;
    failures += run.counts.failures;
    resubmissions += run.counts.resubmissions;
  }
  EXPECT_GT(failures, 2000);
  EXPECT_GT(resubmissions, 300);
}

}  // namespace
}  // namespace heddle::sim
