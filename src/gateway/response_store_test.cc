#include "gateway/response_store.h"

#include <gtest/gtest.h>

namespace heddle::gateway {
namespace {

using namespace std::chrono_literals;

constexpr Instant kNow{};

KeptResponse of(std::size_t bytes) {
  return {.body = std::string(bytes, 'x')};
}

TEST(ResponseStore, WhatWasKeptIsFoundByItsKeyAlone) {
  ResponseStore store({});
  EXPECT_TRUE(store.keep("a", "r1", of(3), kNow));
  ASSERT_NE(store.find("a", "r1", kNow), nullptr);
  EXPECT_EQ(store.find("a", "r1", kNow)->body, "xxx");
  EXPECT_EQ(store.find("b", "r1", kNow), nullptr);
  EXPECT_FALSE(store.erase("b", "r1", kNow));
  EXPECT_TRUE(store.erase("a", "r1", kNow));
  EXPECT_EQ(store.find("a", "r1", kNow), nullptr);
  EXPECT_EQ(store.bytes(), 0U);
}

TEST(ResponseStore, AKeyAtItsBoundLosesItsOldest) {
  ResponseStore store({.key_count = 2, .key_bytes = 10});
  store.keep("b", "other", of(9), kNow);
  store.keep("a", "r1", of(4), kNow);
  store.keep("a", "r2", of(4), kNow);
  store.keep("a", "r3", of(1), kNow);
  EXPECT_EQ(store.find("a", "r1", kNow), nullptr) << "the third of two";
  store.keep("a", "r4", of(10), kNow);
  EXPECT_EQ(store.find("a", "r2", kNow), nullptr);
  EXPECT_EQ(store.find("a", "r3", kNow), nullptr) << "all of the key's bytes are the last one's";
  EXPECT_NE(store.find("a", "r4", kNow), nullptr);
  EXPECT_NE(store.find("b", "other", kNow), nullptr) << "others' stay";
  EXPECT_FALSE(store.keep("a", "r5", of(11), kNow));
  EXPECT_NE(store.find("a", "r4", kNow), nullptr) << "what cannot be kept takes no place";
}

TEST(ResponseStore, WhereThereIsNoRoomTheOldestGo) {
  ResponseStore store({.count = 3, .bytes = 10});
  store.keep("a", "r1", of(2), kNow);
  store.keep("b", "r2", of(2), kNow);
  store.keep("c", "r3", of(2), kNow);
  store.keep("d", "r4", of(2), kNow);
  EXPECT_EQ(store.find("a", "r1", kNow), nullptr);
  EXPECT_EQ(store.size(), 3U);
  store.keep("e", "r5", of(8), kNow);
  EXPECT_EQ(store.size(), 2U);
  EXPECT_EQ(store.bytes(), 10U);
  EXPECT_NE(store.find("d", "r4", kNow), nullptr);
}

TEST(ResponseStore, OldOnesAreGone) {
  ResponseStore store({.age = 10s});
  store.keep("a", "r1", of(1), kNow);
  store.keep("a", "r2", of(1), kNow + 5s);
  EXPECT_NE(store.find("a", "r1", kNow + 9s), nullptr);
  EXPECT_EQ(store.find("a", "r1", kNow + 10s), nullptr);
  EXPECT_NE(store.find("a", "r2", kNow + 10s), nullptr);
  EXPECT_EQ(store.size(), 1U);
}

}  // namespace
}  // namespace heddle::gateway
