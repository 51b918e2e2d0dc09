#include "policy/nic.h"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::policy {
namespace {

using namespace std::chrono_literals;

constexpr Instant kStart{};

Fetch fetch(std::uint64_t id, std::int64_t bytes, Duration deadline) {
  return {.id = FetchId(id), .bytes = bytes, .deadline = kStart + deadline};
}

std::vector<std::int64_t> left(const Nic& nic) {
  std::vector<std::int64_t> bytes;
  for (const Fetch& f : nic.fetches()) {
    bytes.push_back(f.bytes);
  }
  return bytes;
}

TEST(Nic, AloneAFetchNeedsTheLineRate) {
  for (const NicRule rule : {NicRule::kEqualShare, NicRule::kEarliestDeadline}) {
    const Nic nic(100, rule);
    EXPECT_TRUE(nic.admits(fetch(1, 1000, 10s)));
    EXPECT_FALSE(nic.admits(fetch(1, 1001, 10s)));
    EXPECT_FALSE(nic.admits(fetch(1, 1, 0s))) << "too late already";
    EXPECT_DOUBLE_EQ(nic.bandwidth_for(fetch(1, 1000, 10s)), 100.0);
  }
}

// Eq. 3: with one there, each has 50 bytes/s.
TEST(Nic, EqualSharesProtectTheOthers) {
  Nic nic(100, NicRule::kEqualShare);
  nic.start(fetch(1, 600, 12s));
  EXPECT_TRUE(nic.admits(fetch(2, 500, 10s)));
  EXPECT_DOUBLE_EQ(nic.bandwidth_for(fetch(2, 500, 10s)), 50.0);
  EXPECT_FALSE(nic.admits(fetch(2, 501, 10s))) << "its own deadline";
  nic.start(fetch(2, 500, 10s));
  EXPECT_FALSE(nic.admits(fetch(3, 1, 100s))) << "a third of 100 * 12 s is less than 600";
}

TEST(Nic, DeadlinesFirstAdmitsWhatEqualSharesRefuse) {
  Nic equal(100, NicRule::kEqualShare);
  Nic earliest(100, NicRule::kEarliestDeadline);
  for (Nic* nic : {&equal, &earliest}) {
    nic->start(fetch(1, 600, 7s));
  }
  EXPECT_FALSE(equal.admits(fetch(2, 400, 10s)));
  EXPECT_TRUE(earliest.admits(fetch(2, 400, 10s))) << "600 by 7 s, 1000 by 10 s";
  EXPECT_FALSE(earliest.admits(fetch(2, 401, 10s)));
  EXPECT_DOUBLE_EQ(earliest.bandwidth_for(fetch(2, 400, 10s)), 40.0) << "done after 10 s";
  EXPECT_DOUBLE_EQ(earliest.bandwidth_for(fetch(2, 100, 1s)), 100.0) << "it goes first";
}

TEST(Nic, AdvancesBySharesThatGrowAsOthersEnd) {
  Nic nic(100, NicRule::kEqualShare);
  nic.start(fetch(1, 100, 99s));
  nic.start(fetch(2, 400, 99s));
  nic.advance(kStart + 1s);
  EXPECT_EQ(left(nic), (std::vector<std::int64_t>{50, 350}));
  nic.advance(kStart + 3s);  // 1 s more until the first is done, then the second has it all.
  EXPECT_EQ(left(nic), (std::vector<std::int64_t>{200}));
  nic.advance(kStart + 5s);
  EXPECT_TRUE(nic.fetches().empty());
}

TEST(Nic, AdvancesByDeadlineWithTheLateLast) {
  Nic nic(100, NicRule::kEarliestDeadline);
  nic.start(fetch(1, 500, 2s));
  nic.start(fetch(2, 400, 99s));
  nic.advance(kStart + 2s);
  EXPECT_EQ(left(nic), (std::vector<std::int64_t>{300, 400}));
  EXPECT_TRUE(nic.admits(fetch(3, 100, 99s))) << "the late one closes the host for nobody";
  nic.advance(kStart + 7s);
  EXPECT_EQ(left(nic), (std::vector<std::int64_t>{200}));
  EXPECT_EQ(nic.fetches().front().id, FetchId(1));
}

TEST(Nic, BelievesTheEndPointerWhereTheEstimateIsFarOff) {
  Nic nic(100, NicRule::kEqualShare);
  nic.start(fetch(1, 1000, 99s));
  nic.observe(FetchId(1), 1200);
  EXPECT_EQ(left(nic), (std::vector<std::int64_t>{1000}));
  nic.observe(FetchId(1), 700);
  EXPECT_EQ(left(nic), (std::vector<std::int64_t>{700}));
  nic.observe(FetchId(7), 5);
  nic.observe(FetchId(1), 0);
  EXPECT_TRUE(nic.fetches().empty());
}

// What equal shares admit, deadlines first admit; and something more besides.
TEST(Nic, DeadlinesFirstAdmitASuperset) {
  int both = 0;
  int more = 0;
  for (std::uint64_t seed = 0; seed < 50000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    const auto line = static_cast<std::int64_t>(1 + rng.below(2'000'000'000));
    Nic equal(line, NicRule::kEqualShare);
    Nic earliest(line, NicRule::kEarliestDeadline);
    const auto draw = [&](std::uint64_t id) {
      return fetch(id,
                   1 + static_cast<std::int64_t>(rng.below(20'000'000'000)),
                   Duration(static_cast<std::int64_t>(rng.below(60'000'000'000))));
    };
    for (std::uint64_t id = 0; id < rng.below(6); ++id) {
      const Fetch existing = draw(id);
      equal.start(existing);
      earliest.start(existing);
    }
    const Fetch wanted = draw(99);
    ASSERT_TRUE(!equal.admits(wanted) || earliest.admits(wanted));
    both += equal.admits(wanted) ? 1 : 0;
    more += earliest.admits(wanted) && !equal.admits(wanted) ? 1 : 0;
  }
  EXPECT_GT(both, 500);
  EXPECT_GT(more, 500);
}

// Admission keeps its word: whatever comes later, an admitted fetch is complete by its deadline,
// to the byte that each step rounds away.
TEST(Nic, WhatIsAdmittedMeetsItsDeadline) {
  for (const NicRule rule : {NicRule::kEqualShare, NicRule::kEarliestDeadline}) {
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      Rng rng(seed);
      Nic nic(1'000'000, rule);
      Instant now = kStart;
      int admitted = 0;
      for (std::uint64_t id = 0; id < 100; ++id) {
        now += Duration(static_cast<std::int64_t>(rng.below(3'000'000'000)));
        nic.advance(now);
        for (const Fetch& f : nic.fetches()) {
          ASSERT_TRUE(f.deadline > now || f.bytes <= 200) << f.bytes << " bytes late";
        }
        std::vector<FetchId> rest;
        for (const Fetch& f : nic.fetches()) {
          if (f.bytes <= 200) {
            rest.push_back(f.id);
          }
        }
        for (const FetchId done : rest) {
          nic.end(done);
        }
        const Fetch wanted{.id = FetchId(id),
                           .bytes = 1000 + static_cast<std::int64_t>(rng.below(5'000'000)),
                           .deadline = now + 1ms * rng.below(10'000)};
        if (nic.admits(wanted)) {
          nic.start(wanted);
          ++admitted;
        }
      }
      ASSERT_GT(admitted, 5);
    }
  }
}

}  // namespace
}  // namespace heddle::policy
