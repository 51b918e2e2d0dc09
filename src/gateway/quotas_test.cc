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
  const Principal key{.tenant = "a", .requests_per_minute = 2};
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
  EXPECT_TRUE(quotas.admit({.tenant = "b", .requests_per_minute = 2}, kNow + 31s).admitted);
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

TEST(Quotas, ANewBoundBeginsFull) {
  Quotas quotas;
  EXPECT_TRUE(quotas.admit({.tenant = "a", .requests_per_minute = 1}, kNow).admitted);
  EXPECT_FALSE(quotas.admit({.tenant = "a", .requests_per_minute = 1}, kNow).admitted);
  EXPECT_TRUE(quotas.admit({.tenant = "a", .requests_per_minute = 3}, kNow).admitted);
}

}  // namespace
}  // namespace heddle::gateway
