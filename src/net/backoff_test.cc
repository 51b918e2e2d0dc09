#include "net/backoff.h"

#include <vector>

#include <gtest/gtest.h>

namespace heddle::net {
namespace {

using std::chrono::milliseconds;

std::vector<Duration> pauses(std::uint64_t seed, std::size_t count) {
  Backoff backoff({.first = milliseconds(100), .most = milliseconds(450), .seed = seed});
  std::vector<Duration> all;
  for (std::size_t i = 0; i < count; ++i) {
    all.push_back(backoff.next());
  }
  return all;
}

TEST(Backoff, DoublesUpToItsBoundWithHalfOfItByChance) {
  const std::vector<Duration> longest = {milliseconds(100),
                                         milliseconds(200),
                                         milliseconds(400),
                                         milliseconds(450),
                                         milliseconds(450)};
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const std::vector<Duration> all = pauses(seed, longest.size());
    for (std::size_t i = 0; i < longest.size(); ++i) {
      EXPECT_LE(all[i], longest[i]) << "seed " << seed << ", pause " << i;
      EXPECT_GE(all[i], longest[i] / 2) << "seed " << seed << ", pause " << i;
    }
  }
}

TEST(Backoff, IsTheSameForTheSameSeedOnly) {
  EXPECT_EQ(pauses(7, 10), pauses(7, 10));
  EXPECT_NE(pauses(7, 10), pauses(8, 10));
}

TEST(Backoff, BeginsAnewWhenItHasWorked) {
  Backoff backoff({.first = milliseconds(100), .most = milliseconds(800), .seed = 1});
  for (int i = 0; i < 5; ++i) {
    (void)backoff.next();
  }
  EXPECT_GE(backoff.next(), milliseconds(400));
  backoff.reset();
  EXPECT_LE(backoff.next(), milliseconds(100));
}

}  // namespace
}  // namespace heddle::net
