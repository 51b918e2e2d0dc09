#include "cli/capacity_replay.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "sim/test_hardware.h"

namespace heddle::cli {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kModels = 12;

/// More models than the GPUs of a few servers hold, in bursts.
std::vector<sim::TraceRow> bursts(std::uint64_t seed) {
  Rng rng(seed);
  std::vector<sim::TraceRow> rows;
  Instant at{};
  for (int i = 0; i < 900; ++i) {
    at += std::chrono::milliseconds(rng.below(i % 90 < 60 ? 400 : 9000));
    rows.push_back({.arrival = at,
                    .model = ModelId(rng.below(kModels)),
                    .input_tokens = 200 + static_cast<std::int64_t>(rng.below(800)),
                    .output_tokens = 20 + static_cast<std::int64_t>(rng.below(300))});
  }
  return rows;
}

/// What replays say of one to five servers.
class CapacityReplayTest : public testing::Test {
 protected:
  CapacityReplayTest() {
    replay_.cluster = sim::test_cluster(1, 1);
    replay_.summary.models = sim::test_models(kModels);
    replay_.summary.demand.resize(kModels);
    for (std::size_t i = 0; i < kModels; ++i) {
      replay_.most_asked_first.emplace_back(i);
    }
    for (std::int64_t servers = 1; servers <= 5; ++servers) {
      clusters_.push_back({.server = replay_.cluster.hosts[0], .servers = servers});
    }
  }
  [[nodiscard]] CapacityReplays replays(double target, std::size_t threads) const {
    return CapacityReplays::make(replay_, bursts(7), {.target = target, .threads = threads})
        .value();
  }

  Replay replay_;
  std::vector<ReplayedCluster> clusters_{};
};

TEST_F(CapacityReplayTest, WhatIsStoppedWouldNotHaveReachedTheTarget) {
  for (const double target : {0.5, 0.8, 0.9, 0.97}) {
    CapacityReplays all = replays(target, 2);
    const TracePart part = whole_trace(all.rows(), 100s);
    const auto whole = all.run_whole(clusters_, part).value();
    const auto tried = all.run_to_target(clusters_, part, false).value();
    ASSERT_EQ(tried.size(), whole.size());
    for (std::size_t i = 0; i < whole.size(); ++i) {
      EXPECT_EQ(whole[i].requests, part.requests);
      EXPECT_FALSE(whole[i].stop);
      EXPECT_EQ(tried[i].stop.has_value(), whole[i].attainment() < target)
          << i + 1 << " servers, target " << target;
      if (tried[i].stop) {
        EXPECT_LT(tried[i].attainment(), target);
        EXPECT_LE(tried[i].stop->at, all.rows().back().arrival);
      } else {
        EXPECT_EQ(tried[i].met, whole[i].met);
        EXPECT_EQ(tried[i].ttft.at(0.99), whole[i].ttft.at(0.99));
        EXPECT_EQ(tried[i].interval.bounds().low, whole[i].interval.bounds().low);
      }
    }
  }
}

TEST_F(CapacityReplayTest, ThreadsChangeNothing) {
  CapacityReplays one = replays(0.9, 1);
  CapacityReplays many = replays(0.9, 7);
  const TracePart part = draw_stretches(one.rows(), 0s, 600, 1);
  ASSERT_FALSE(part.whole);
  const auto expected = one.run_to_target(clusters_, part, false).value();
  for (int again = 0; again < 5; ++again) {
    const auto found = many.run_to_target(clusters_, part, false).value();
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].requests, expected[i].requests) << i + 1 << " servers";
      EXPECT_EQ(found[i].met, expected[i].met);
      EXPECT_EQ(found[i].gpu_seconds, expected[i].gpu_seconds);
      EXPECT_EQ(found[i].stop.has_value(), expected[i].stop.has_value());
      if (found[i].stop) {
        EXPECT_EQ(found[i].stop->at, expected[i].stop->at);
        EXPECT_EQ(found[i].stop->stretch, expected[i].stop->stretch);
      }
    }
  }
}

TEST_F(CapacityReplayTest, ClustersBehindTheFirstThatIsEnoughMayBeLeftOut) {
  for (const std::size_t threads : {1U, 3U, 8U}) {
    CapacityReplays all = replays(0.8, threads);
    const TracePart part = whole_trace(all.rows(), 0s);
    const auto whole = all.run_whole(clusters_, part).value();
    std::size_t enough = 0;
    while (enough < whole.size() && whole[enough].attainment() < 0.8) {
      ++enough;
    }
    ASSERT_LT(enough + 1, whole.size()) << "the test is of a workload for which fewer are enough";
    EXPECT_EQ(all.run_to_target(clusters_, part, true).value().size(), enough + 1);
  }
}

TEST_F(CapacityReplayTest, APolicyThatThereIsNotIsAnError) {
  EXPECT_FALSE(CapacityReplays::make(replay_, bursts(7), {.policy = "none"}));
}

TEST(Tally, OthersAreAddedUp) {
  const auto of = [](std::int64_t met, Duration best) {
    Tally tally{.requests = 10,
                .met = met,
                .interval = sim::AttainmentInterval(Instant{}, 100s),
                .models = {{.requests = 10, .met = met, .ttft = best}},
                .unserved = {{.why = "a", .requests = 1, .models = {"m"}}}};
    return tally;
  };
  Tally sum = of(9, 3s);
  Tally other = of(5, 2s);
  other.unserved.push_back({.why = "b", .requests = 5, .models = {"n"}});
  sum.add(std::move(other));
  EXPECT_EQ(sum.attainment(), 0.7);
  EXPECT_EQ(sum.models[0].ttft, 2s);
  ASSERT_EQ(sum.unserved.size(), 2U);
  EXPECT_EQ(sum.unserved[0].why, "b");
  EXPECT_EQ(sum.unserved[1].requests, 2);
  EXPECT_EQ(sum.unserved[1].models.size(), 1U);
}

}  // namespace
}  // namespace heddle::cli
