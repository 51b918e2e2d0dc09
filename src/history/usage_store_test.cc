#include "history/usage_store.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "base/test_directory.h"

namespace heddle::history {
namespace {

namespace fs = std::filesystem;

class UsageStoreTest : public testing::Test {
 protected:
  [[nodiscard]] std::unique_ptr<UsageStore> open() const {
    auto store = UsageStore::open((directory_.path() / "data").string());
    EXPECT_TRUE(store) << store.error().message;
    return std::move(store).value();
  }

  TempDirectory directory_{};
};

spec::KeyUsage used(std::int64_t day, const std::string& model) {
  return {.day = day,
          .key = "alice",
          .model = model,
          .requests = 1,
          .prompt_tokens = 10,
          .cached_tokens = 3,
          .completion_tokens = 5};
}

TEST_F(UsageStoreTest, AddsUpAndOutlivesTheProcess) {
  ASSERT_TRUE(open()->add({used(500, "m"), used(500, "n")}));
  ASSERT_TRUE(open()->add({used(500, "m"), used(501, "m")}));
  const auto rows = open()->since(500);
  ASSERT_TRUE(rows);
  ASSERT_EQ(rows->size(), 3U);
  EXPECT_EQ((*rows)[0].requests, 2);
  EXPECT_EQ((*rows)[0].prompt_tokens, 20);
  EXPECT_EQ((*rows)[0].cached_tokens, 6);
  EXPECT_EQ((*rows)[0].completion_tokens, 10);
  EXPECT_EQ((*rows)[1], used(500, "n"));
  EXPECT_EQ(open()->since(501)->size(), 1U);
}

TEST_F(UsageStoreTest, WhatIsOldIsForgotten) {
  const auto store = open();
  ASSERT_TRUE(store->add({used(1000, "m")}));
  ASSERT_TRUE(store->add({used(1000 + UsageStore::kDaysKept, "m")}));
  EXPECT_EQ(store->since(0)->size(), 2U);
  ASSERT_TRUE(store->add({used(1001 + UsageStore::kDaysKept, "m")}));
  EXPECT_EQ(store->since(0)->size(), 2U);
  EXPECT_EQ(store->since(0)->front().day, 1000 + UsageStore::kDaysKept);
}

TEST_F(UsageStoreTest, AFileOfALaterVersionIsLeftAlone) {
  ASSERT_TRUE(open()->add({used(1, "m")}));
  const std::filesystem::path file = directory_.path() / "data" / UsageStore::kFile;
  ASSERT_TRUE(
      Database::open(file.string(), Database::Mode::kReadWrite)->run("PRAGMA user_version = 2;"));
  const auto store = UsageStore::open((directory_.path() / "data").string());
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code, Code::kFailedPrecondition);
}

TEST_F(UsageStoreTest, WhatIsNoDatabaseIsSaid) {
  std::ofstream(directory_.path() / "usage.db") << std::string(4096, 'x');
  const auto store = UsageStore::open(directory_.path().string());
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code, Code::kCorrupt);
  EXPECT_NE(store.error().message.find("usage.db"), std::string::npos);
}

}  // namespace
}  // namespace heddle::history
