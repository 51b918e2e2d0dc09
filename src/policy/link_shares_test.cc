#include "policy/link_shares.h"

#include <gtest/gtest.h>

namespace heddle::policy {
namespace {

using namespace std::chrono_literals;
using Member = LinkShares::Member;

constexpr Member kFirst{1};
constexpr Member kSecond{2};
constexpr Member kThird{3};
constexpr std::uint64_t kRate = 1'000'000;

struct Link {
  LinkShares shares{kRate};
  Instant now{std::chrono::hours(1)};

  void join(Member member, Duration due_in) {
    shares.join(member, {.due = now + due_in});
    (void)shares.may_ask(member, now);  // As it does at once.
  }
  bool may_ask(Member member) { return shares.may_ask(member, now); }
  /// Time goes by, in which so much of a member's comes.
  void pass(Member member, double part_of_link) {
    now += 250ms;
    shares.took(member, 0, now);  // A window begins.
    for (const Member other : {kFirst, kSecond, kThird}) {
      if (other != member) {
        shares.held(other);  // It asks, and waits.
      }
    }
    now += 100ms;
    shares.took(member, static_cast<std::uint64_t>(part_of_link * kRate / 4), now);
    now += 150ms;
  }
};

TEST(LinkShares, TheEarlierDeadlineHasTheLinkWhileItCanUseIt) {
  Link link;
  link.join(kFirst, 9s);
  EXPECT_TRUE(link.may_ask(kFirst));
  link.join(kSecond, 3s);
  EXPECT_FALSE(link.may_ask(kFirst));
  EXPECT_TRUE(link.may_ask(kSecond));
  EXPECT_TRUE(link.shares.goes_before(kSecond, kFirst, link.now));
  EXPECT_FALSE(link.shares.goes_before(kFirst, kSecond, link.now));
  link.pass(kSecond, 1.0);
  EXPECT_FALSE(link.may_ask(kFirst));
  link.shares.leave(kSecond);
  EXPECT_TRUE(link.may_ask(kFirst));
}

TEST(LinkShares, OneThatIsSlowAtItsSourceLeavesTheRest) {
  Link link;
  link.join(kFirst, 3s);
  link.join(kSecond, 5s);
  link.join(kThird, 7s);
  link.pass(kFirst, 0.3);
  EXPECT_TRUE(link.may_ask(kSecond));
  EXPECT_FALSE(link.may_ask(kThird)) << "what is left is the second's";
  EXPECT_TRUE(link.may_ask(kFirst));
  link.pass(kFirst, 0.95);
  EXPECT_FALSE(link.may_ask(kSecond)) << "its source is fast again";
  link.pass(kFirst, 0.0);
  EXPECT_TRUE(link.may_ask(kSecond)) << "its source stands";
  EXPECT_TRUE(link.may_ask(kFirst)) << "and may go on at any time";
}

TEST(LinkShares, WhoIsHeldUpIsNotSlow) {
  Link link;
  link.join(kFirst, 3s);
  link.join(kSecond, 5s);
  for (int i = 0; i < 3; ++i) {
    link.now += 250ms;
    link.shares.held(kFirst);
    link.shares.took(kFirst, 0, link.now);
    link.shares.held(kFirst);
  }
  EXPECT_FALSE(link.may_ask(kSecond));
}

TEST(LinkShares, WhatIsLateOrHasNoDeadlineComesBehindAndAlike) {
  Link link;
  link.join(kFirst, 1s);
  link.join(kSecond, 5s);
  link.shares.join(kThird, {});
  EXPECT_FALSE(link.may_ask(kSecond));
  EXPECT_FALSE(link.may_ask(kThird));
  link.now += 1s;
  link.shares.held(kFirst);
  link.shares.held(kSecond);
  EXPECT_TRUE(link.may_ask(kSecond)) << "the first is late, and makes nobody else late";
  EXPECT_FALSE(link.may_ask(kFirst));
  link.now += 4s;
  for (const Member member : {kFirst, kSecond, kThird}) {
    EXPECT_TRUE(link.may_ask(member)) << "all are late";
  }
  EXPECT_FALSE(link.shares.goes_before(kFirst, kSecond, link.now));
  EXPECT_FALSE(link.shares.goes_before(kSecond, kFirst, link.now));
}

TEST(LinkShares, WhatNobodyWaitsForAsksForNothingMeanwhile) {
  Link link;
  link.shares.join(kFirst, {.early = true});
  EXPECT_TRUE(link.may_ask(kFirst));
  link.join(kSecond, 5s);
  EXPECT_FALSE(link.may_ask(kFirst));
  link.pass(kSecond, 0.1);
  EXPECT_FALSE(link.may_ask(kFirst));
  link.shares.prioritise(kFirst);
  EXPECT_TRUE(link.may_ask(kFirst)) << "the other is slow";
  link.shares.prioritise(Member(9));
}

TEST(LinkShares, OfALinkThatIsNotKnownNobodyHasTheWhole) {
  LinkShares shares(0);
  const Instant now{1h};
  shares.join(kFirst, {.due = now + 1s});
  shares.join(kSecond, {.due = now + 2s});
  shares.join(kThird, {.early = true});
  EXPECT_TRUE(shares.may_ask(kFirst, now));
  EXPECT_TRUE(shares.may_ask(kSecond, now));
  EXPECT_FALSE(shares.may_ask(kThird, now));
  EXPECT_TRUE(shares.may_ask(kSecond, now + 10s));
}

}  // namespace
}  // namespace heddle::policy
