#include "sim/event_queue.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::sim {
namespace {

TEST(EventQueue, IsInOrderOfTimeAndThenOfScheduling) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Rng rng(seed);
    EventQueue<int> queue;
    std::vector<std::pair<Instant, int>> expected;
    for (int i = 0; i < 500; ++i) {
      const Instant at{Duration{static_cast<std::int64_t>(rng.below(40))}};
      queue.push(at, i);
      expected.emplace_back(at, i);
    }
    std::sort(expected.begin(), expected.end());  // Numbers rise in the order of pushing.
    for (const auto& [at, event] : expected) {
      ASSERT_EQ(queue.next(), at) << "seed " << seed;
      ASSERT_EQ(queue.pop().event, event) << "seed " << seed;
    }
    EXPECT_TRUE(queue.empty());
  }
}

}  // namespace
}  // namespace heddle::sim
