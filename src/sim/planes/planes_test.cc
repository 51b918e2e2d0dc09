#include "sim/planes/planes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "sim/test_world.h"

namespace heddle::sim {
namespace {

using testing::HasSubstr;

/// A small cluster's hour in a minute: bursts of three models, some of which must wait.
std::vector<TraceRow> bursts(std::uint64_t seed) {
  Rng rng(seed);
  std::vector<TraceRow> rows;
  double at = 1;
  for (int i = 0; i < 60; ++i) {
    at += rng.below(4) == 0 ? 20.0 : 0.2 * static_cast<double>(rng.below(8));
    rows.push_back(row_at(at,
                          rng.below(6) == 0 ? 2 : rng.below(2),
                          1 + static_cast<std::int64_t>(rng.below(2000)),
                          1 + static_cast<std::int64_t>(rng.below(200))));
  }
  return rows;
}

TEST(Planes, NamesAndFlagsAreChecked) {
  EXPECT_THAT(make_plane("nosuch", {}).error().message, HasSubstr("dedicated"));
  EXPECT_THAT(make_plane("static", {.flags = {{"mog", "1"}}}).error().message, HasSubstr("mig"));
}

// Every policy set serves everything there is room for, with every invariant held at every event,
// and a second run is the first to the byte.
TEST(Planes, EachServesAllAndRepeatsItself) {
  for (const PlaneEntry& entry : plane_entries()) {
    const std::vector<TraceRow> rows = bursts(3);
    const TestRun one = run_policy(entry.name, test_cluster(3, 2), test_models(3), rows);
    const TestRun two = run_policy(entry.name, test_cluster(3, 2), test_models(3), rows);
    EXPECT_EQ(one.counts.completed, 60) << entry.name;
    EXPECT_EQ(one.digest, two.digest) << entry.name;
    EXPECT_EQ(one.witness.acts, two.witness.acts) << entry.name;
  }
}

}  // namespace
}  // namespace heddle::sim
