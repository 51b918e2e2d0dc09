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

// Two servers among many have GPUs that hold the models.
TEST(Planes, EachFindsTheGpusThatAreLargeEnough) {
  ClusterSpec cluster = test_cluster(22, 2);
  for (std::size_t i = 0; i < 20; ++i) {
    cluster.hosts[i].gpu.name = "small";
    cluster.hosts[i].gpu.memory = 12'000'000'000;
  }
  for (const Begin begin : {Begin::kEmpty, Begin::kWarm}) {
    for (const PlaneEntry& entry : plane_entries()) {
      const TestRun run =
          run_policy(entry.name,
                     cluster,
                     test_models(3),
                     {row_at(1, 0, 128, 8), row_at(2, 1, 99, 9), row_at(9, 2, 9, 9)},
                     {},
                     begin);
      EXPECT_EQ(run.counts.completed, 3) << entry.name;
    }
  }
}

// A model that no GPU holds: every run comes to an end, and says whose requests were not served.
TEST(Planes, EachEndsWhereAModelFitsNowhere) {
  ClusterSpec cluster = test_cluster(3, 2);
  std::vector<ModelSpec> models = test_models(2);
  models[1].shape.intermediate *= 16;
  models[1].tp = 2;
  for (const PlaneEntry& entry : plane_entries()) {
    const TestRun run = run_policy(entry.name,
                                   cluster,
                                   models,
                                   {row_at(1, 0, 128, 8), row_at(2, 1, 9, 9), row_at(3, 1, 9, 9)});
    EXPECT_EQ(run.counts.completed, 1) << entry.name;
    EXPECT_EQ(run.counts.refused + run.counts.unserved, 2) << entry.name;
    EXPECT_EQ(run.end.stuck(), run.counts.unserved > 0) << entry.name;
    for (const Unserved& each : run.end.unserved) {
      EXPECT_EQ(each.model, ModelId(1)) << entry.name;
      EXPECT_THAT(each.why, HasSubstr("on each of 2 GPUs, fit no server")) << entry.name;
    }
  }
}

}  // namespace
}  // namespace heddle::sim
