#include "gateway/quotas.h"

#include <gtest/gtest.h>

namespace heddle::gateway {
namespace {

using namespace std::chrono_literals;

constexpr Instant kNow{};

std::string header(const QuotaVerdict& verdict, const std::string& name) {
  for (const auto& [key, value] : verdict.headers) {
    if (key == name) {
      return value;
    }
  }
  return "";
}

TEST(Quotas, AKeyWithoutBoundsMayAskAtWill) {
  Quotas quotas;
  const QuotaVerdict verdict = quotas.admit({.tenant = "a"}, kNow);
  EXPECT_TRUE(verdict.admitted);
  EXPECT_TRUE(verdict.headers.empty());
}

TEST(Quotas, RequestsComeBackEvenly) {
  Quotas quotas;
  const Principal key{.tenant = "a", .key_digest = "5a", .requests_per_minute = 2};
  const QuotaVerdict first = quotas.admit(key, kNow);
  EXPECT_TRUE(first.admitted);
  EXPECT_EQ(header(first, "x-ratelimit-limit-requests"), "2");
  EXPECT_EQ(header(first, "x-ratelimit-remaining-requests"), "1");
  EXPECT_EQ(header(first, "x-ratelimit-reset-requests"), "30s");
  EXPECT_EQ(header(first, "x-ratelimit-limit-tokens"), "");
  EXPECT_TRUE(quotas.admit(key, kNow).admitted);
  const QuotaVerdict refused = quotas.admit(key, kNow + 10s);
  EXPECT_FALSE(refused.admitted);
  EXPECT_EQ(refused.retry_after, 20);
  EXPECT_EQ(refused.reason, "this key may use 2 requests a minute");
  EXPECT_TRUE(quotas.admit(key, kNow + 30s).admitted) << "the refused one took nothing";
  EXPECT_FALSE(quotas.admit(key, kNow + 31s).admitted);
  EXPECT_TRUE(
      quotas.admit({.tenant = "b", .key_digest = "5b", .requests_per_minute = 2}, kNow + 31s)
          .admitted);
}

TEST(Quotas, WhatRunningRequestsMayUseIsSetAside) {
  Quotas quotas;
  const Principal key{.tenant = "a", .tokens_per_minute = 60};
  EXPECT_EQ(quotas.reserve("a", 9, kNow).reserved, nullptr) << "no bound is known of the key";
  EXPECT_TRUE(quotas.admit(key, kNow).admitted);
  auto first = quotas.reserve("a", 40, kNow);
  ASSERT_NE(first.reserved, nullptr);
  const auto second = quotas.reserve("a", 20, kNow);
  ASSERT_NE(second.reserved, nullptr) << "it is all there";
  const auto third = quotas.reserve("a", 5, kNow);
  ASSERT_TRUE(third.refusal);
  EXPECT_EQ(third.refusal->retry_after, 5);
  EXPECT_EQ(third.refusal->reason,
            "this key may use 60 tokens a minute, of which its running requests may use 60 and "
            "this one 5");
  first.reserved.reset();
  quotas.charge("a", 10, kNow);
  EXPECT_FALSE(quotas.reserve("a", 30, kNow).refusal) << "the first used less than it might";
  EXPECT_TRUE(quotas.reserve("a", 31, kNow).refusal);
}

TEST(Quotas, ARequestThatIsAloneIsLetInHoweverLongItIs) {
  Quotas quotas;
  EXPECT_TRUE(quotas.admit({.tenant = "a", .tokens_per_minute = 60}, kNow).admitted);
  quotas.charge("a", 50, kNow);
  const auto alone = quotas.reserve("a", 1'000'000, kNow);
  EXPECT_NE(alone.reserved, nullptr);
  EXPECT_EQ(quotas.reserve("a", 1, kNow).refusal->retry_after, 51);
}

TEST(Quotas, TokensAreTakenAtTheEndAndMayBeOwed) {
  Quotas quotas;
  const Principal key{.tenant = "a", .tokens_per_minute = 60};
  EXPECT_TRUE(quotas.admit(key, kNow).admitted);
  quotas.charge("a", 90, kNow);
  const QuotaVerdict refused = quotas.admit(key, kNow);
  EXPECT_FALSE(refused.admitted);
  EXPECT_EQ(refused.retry_after, 31) << "thirty are owed, and one has to be there";
  EXPECT_EQ(header(refused, "x-ratelimit-remaining-tokens"), "0");
  EXPECT_EQ(header(refused, "x-ratelimit-reset-tokens"), "1m30s");
  EXPECT_TRUE(quotas.admit(key, kNow + 31s).admitted);
  quotas.charge("nobody", 5, kNow);
}

TEST(Quotas, GatewaysThatTellEachOtherHoldAKeyToOneBound) {
  const Principal key{
      .tenant = "a", .key_digest = "5a", .requests_per_minute = 3, .tokens_per_minute = 60};
  Principal key_there = key;
  key_there.tenant = "b";  // Each process has its own way to name it.
  Quotas here;
  Quotas there;
  EXPECT_TRUE(here.take_used().empty());
  EXPECT_TRUE(here.admit(key, kNow).admitted);
  EXPECT_TRUE(here.admit(key, kNow).admitted);
  here.charge("a", 20, kNow);
  const std::vector<core::QuotaUse> used = here.take_used();
  EXPECT_EQ(used,
            (std::vector<core::QuotaUse>{{.key = "5a",
                                          .requests = 2,
                                          .tokens = 20,
                                          .requests_per_minute = 3,
                                          .tokens_per_minute = 60}}));
  EXPECT_TRUE(here.take_used().empty()) << "it is told once";
  there.used_elsewhere(used, kNow);
  EXPECT_TRUE(there.take_used().empty()) << "nobody passes on what another has used";
  const QuotaVerdict last = there.admit(key_there, kNow);
  EXPECT_TRUE(last.admitted);
  EXPECT_EQ(header(last, "x-ratelimit-remaining-requests"), "0");
  EXPECT_EQ(header(last, "x-ratelimit-remaining-tokens"), "40");
  EXPECT_FALSE(there.admit(key_there, kNow).admitted);
  here.used_elsewhere(there.take_used(), kNow);
  EXPECT_FALSE(here.admit(key, kNow).admitted);
  EXPECT_TRUE(here.admit(key, kNow + 20s).admitted);
}

TEST(Quotas, OfWhatWasUsedWhileNobodyListenedAMinutesWorthIsTold) {
  Quotas quotas;
  const Principal key{.tenant = "a", .key_digest = "5a", .tokens_per_minute = 60};
  EXPECT_TRUE(quotas.admit(key, kNow).admitted);
  quotas.charge("a", 500, kNow);
  EXPECT_EQ(quotas.take_used().at(0).tokens, 60);
  EXPECT_TRUE(quotas.take_used().empty());
}

TEST(Quotas, ANewBoundBeginsFull) {
  Quotas quotas;
  EXPECT_TRUE(quotas.admit({.tenant = "a", .requests_per_minute = 1}, kNow).admitted);
  EXPECT_FALSE(quotas.admit({.tenant = "a", .requests_per_minute = 1}, kNow).admitted);
  EXPECT_TRUE(quotas.admit({.tenant = "a", .requests_per_minute = 3}, kNow).admitted);
}

}  // namespace
}  // namespace heddle::gateway
