#include "sim/link.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::sim {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;

Instant at(Duration time) {
  return Instant(time);
}

constexpr LinkClass kCritical = LinkClass::kCritical;

TEST(Link, OneFlowHasItAll) {
  Link link(1e9, LinkService::kFairShare);
  link.add(at(1s), FlowId(1), 5e9, kCritical, {});
  EXPECT_EQ(link.next_done(), at(6s));
  EXPECT_THAT(link.take_done(at(6s)), ElementsAre(FlowId(1)));
  EXPECT_EQ(link.next_done(), std::nullopt);
  EXPECT_DOUBLE_EQ(link.bytes_moved(), 5e9);
}

// 4 GB from 0 s and 1 GB from 1 s at 1 GB/s: alone till 1 s, then halves; the short one ends at 3
// s, the long one has 3 - 1 = 2 GB left and ends at 5 s.
TEST(Link, FlowsShareEqually) {
  Link link(1e9, LinkService::kFairShare);
  link.add(at(0s), FlowId(1), 4e9, kCritical, {});
  link.add(at(1s), FlowId(2), 1e9, kCritical, {});
  EXPECT_EQ(link.next_done(), at(3s));
  EXPECT_THAT(link.take_done(at(3s)), ElementsAre(FlowId(2)));
  EXPECT_DOUBLE_EQ(link.remaining(at(4s), FlowId(1)), 1e9);
  EXPECT_EQ(link.next_done(), at(5s));
}

TEST(Link, EarliestDeadlineGoesFirst) {
  Link link(1e9, LinkService::kEarliestDeadline);
  link.add(at(0s), FlowId(1), 4e9, kCritical, at(100s));
  link.add(at(1s), FlowId(2), 1e9, kCritical, at(50s));
  EXPECT_EQ(link.next_done(), at(2s));
  EXPECT_THAT(link.take_done(at(2s)), ElementsAre(FlowId(2)));
  EXPECT_EQ(link.next_done(), at(5s));
}

TEST(Link, AClassWaitsForThoseAboveIt) {
  Link link(1e9, LinkService::kFairShare);
  link.add(at(0s), FlowId(1), 2e9, LinkClass::kPrewarm, {});
  link.add(at(1s), FlowId(2), 3e9, kCritical, {});
  EXPECT_EQ(link.next_done(), at(4s));
  EXPECT_EQ(link.flows_before(kCritical), 1U);
  EXPECT_EQ(link.flows_before(LinkClass::kPrewarm), 2U);
  EXPECT_THAT(link.take_done(at(4s)), ElementsAre(FlowId(2)));
  EXPECT_EQ(link.next_done(), at(5s));
}

TEST(Link, AFlowCanBecomeUrgent) {
  Link link(1e9, LinkService::kFairShare);
  link.add(at(0s), FlowId(1), 2e9, LinkClass::kPrewarm, {});
  link.add(at(0s), FlowId(2), 4e9, LinkClass::kKvMove, {});
  link.reclassify(at(1s), FlowId(1), kCritical);
  EXPECT_EQ(link.next_done(), at(3s));
}

TEST(Link, SpeedMayChangeAndStop) {
  Link link(1e9, LinkService::kFairShare);
  link.add(at(0s), FlowId(1), 4e9, kCritical, {});
  link.set_rate(at(1s), 0);
  EXPECT_EQ(link.next_done(), std::nullopt);
  link.set_rate(at(10s), 3e9);
  EXPECT_EQ(link.next_done(), at(11s));
}

TEST(Link, ACancelledFlowLeavesItsShare) {
  Link link(1e9, LinkService::kFairShare);
  link.add(at(0s), FlowId(1), 4e9, kCritical, {});
  link.add(at(0s), FlowId(2), 4e9, kCritical, {});
  EXPECT_DOUBLE_EQ(link.cancel(at(2s), FlowId(1)), 3e9);
  EXPECT_EQ(link.cancel(at(2s), FlowId(1)), 0);
  EXPECT_EQ(link.next_done(), at(5s));
}

/// Serves flows in small steps: slow, and plainly right.
class SlowLink {
 public:
  void add(std::size_t id, double bytes) { left_.emplace_back(id, bytes); }
  /// Serves until one is done; returns it and how long that took.
  std::pair<std::size_t, double> serve_one(double rate) {
    double least = left_.front().second;
    for (const auto& each : left_) {
      least = std::min(least, each.second);
    }
    std::size_t done = 0;
    for (auto& each : left_) {
      done = each.second == least ? each.first : done;
      each.second -= least;
    }
    const double took = least * static_cast<double>(left_.size()) / rate;
    std::erase_if(left_, [done](const auto& each) { return each.first == done; });
    return {done, took};
  }

 private:
  std::vector<std::pair<std::size_t, double>> left_{};
};

TEST(Link, VirtualClockAgreesWithServingEachFlow) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Rng rng(seed);
    Link link(1e9, LinkService::kFairShare);
    SlowLink slow;
    const std::size_t flows = 2 + rng.below(20);
    for (std::size_t i = 0; i < flows; ++i) {
      const double bytes = 1e6 * static_cast<double>(1 + rng.below(1'000'000));
      link.add(at(0s), FlowId(i), bytes, kCritical, {});
      slow.add(i, bytes);
    }
    double elapsed = 0;
    for (std::size_t i = 0; i < flows; ++i) {
      const auto [id, took] = slow.serve_one(1e9);
      elapsed += took;
      const std::optional<Instant> next = link.next_done();
      ASSERT_TRUE(next.has_value());
      ASSERT_THAT(link.take_done(*next), ElementsAre(FlowId(id))) << "seed " << seed;
      ASSERT_NEAR(static_cast<double>(next->time_since_epoch().count()), elapsed * 1e9, 100)
          << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace heddle::sim
