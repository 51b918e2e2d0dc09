#include "gateway/usage_log.h"

#include <gtest/gtest.h>

namespace heddle::gateway {
namespace {

spec::KeyUsage row(std::int64_t day, const std::string& key, const std::string& model) {
  return {.day = day,
          .key = key,
          .model = model,
          .requests = 1,
          .prompt_tokens = 10,
          .cached_tokens = 2,
          .completion_tokens = 5};
}

TEST(UsageLog, RowsOfADayKeyAndModelAreOne) {
  UsageLog log;
  log.restore({row(1, "a", "m")});
  log.add(row(2, "a", "m"));
  log.add(row(2, "a", "m"));
  log.add(row(2, "b", "m"));
  ASSERT_EQ(log.since(1).size(), 3U);
  ASSERT_EQ(log.since(2).size(), 2U);
  EXPECT_EQ(log.since(2)[0].requests, 2);
  EXPECT_EQ(log.since(2)[0].prompt_tokens, 20);
  const std::vector<spec::KeyUsage> sums = summed(log.since(0));
  ASSERT_EQ(sums.size(), 2U);
  EXPECT_EQ(sums[0].key, "a");
  EXPECT_EQ(sums[0].completion_tokens, 15);
  EXPECT_EQ(sums[0].cached_tokens, 6);
}

TEST(UsageLog, WhatIsNewIsSavedOnce) {
  UsageLog log;
  log.restore({row(1, "a", "m")});
  EXPECT_TRUE(log.take_unsaved().empty());
  log.add(row(1, "a", "m"));
  ASSERT_EQ(log.take_unsaved(), std::vector<spec::KeyUsage>{row(1, "a", "m")});
  EXPECT_TRUE(log.take_unsaved().empty());
  EXPECT_EQ(log.since(1)[0].requests, 2);
}

TEST(UsageLog, BeyondItsBoundTheOldestDayGoes) {
  UsageLog log;
  log.add(row(1, "a", "m"));
  log.add(row(1, "a", "n"));
  for (std::size_t i = 0; i + 1 < UsageLog::kRowsMost; ++i) {
    log.add(row(2, "a", std::to_string(i)));
  }
  EXPECT_EQ(log.since(0).size(), UsageLog::kRowsMost - 1);
  EXPECT_EQ(log.since(0)[0].day, 2);
}

}  // namespace
}  // namespace heddle::gateway
