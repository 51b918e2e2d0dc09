#include "history/load_book.h"

#include <cmath>
#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::history {
namespace {

using std::chrono::minutes;
using testing::ElementsAre;

constexpr policy::Load kSmall{.mean = 0.5, .peak = 1};
constexpr policy::Load kLarge{.mean = 3, .peak = 7};

LoadBook book_of(std::int64_t keep = 10) {
  LoadBook book;
  book.begin(minutes(5), keep);
  return book;
}

TEST(LoadBook, KeepsWhatIsPutByModelAndWindow) {
  LoadBook book = book_of();
  EXPECT_TRUE(book.put("chat", 7, kSmall));
  EXPECT_TRUE(book.put("chat", 5, kLarge));
  EXPECT_TRUE(book.put("code", 7, kSmall));
  EXPECT_FALSE(book.put("chat", 7, kSmall)) << "nothing has changed";
  EXPECT_TRUE(book.put("chat", 7, kLarge));
  EXPECT_TRUE(book.put("chat", 7, kSmall)) << "what is put holds, however great";
  ASSERT_EQ(book.models().size(), 2U);
  EXPECT_THAT(book.models().at("chat").windows,
              ElementsAre(WindowLoad{5, kLarge}, WindowLoad{7, kSmall}));
  EXPECT_EQ(book.size(), 3U);
  EXPECT_EQ(book.at("code", 7), kSmall);
  EXPECT_FALSE(book.at("code", 5));
  EXPECT_FALSE(book.at("other", 7));
}

TEST(LoadBook, OfTwoRecordsTheGreaterHoldsInAnyOrder) {
  EXPECT_TRUE(greater({.mean = 1, .peak = 3}, {.mean = 1, .peak = 2}));
  EXPECT_FALSE(greater(kSmall, kSmall));
  LoadBook one = book_of();
  EXPECT_TRUE(one.merge("chat", 7, kSmall));
  EXPECT_TRUE(one.merge("chat", 7, kLarge));
  EXPECT_FALSE(one.merge("chat", 7, kSmall));
  LoadBook other = book_of();
  EXPECT_TRUE(other.merge("chat", 7, kLarge));
  EXPECT_FALSE(other.merge("chat", 7, kSmall));
  EXPECT_EQ(one.at("chat", 7), other.at("chat", 7));
  EXPECT_EQ(one.digest(), other.digest());
}

TEST(LoadBook, WhatCannotBeIsNotEntered) {
  LoadBook book = book_of();
  const double nan = std::nan("");
  const double infinite = std::numeric_limits<double>::infinity();
  for (const policy::Load& load : {policy::Load{.mean = nan, .peak = 1},
                                   policy::Load{.mean = 1, .peak = nan},
                                   policy::Load{.mean = infinite, .peak = 1},
                                   policy::Load{.mean = -1, .peak = 1},
                                   policy::Load{.mean = 1, .peak = 2e9}}) {
    EXPECT_FALSE(book.put("chat", 7, load));
    EXPECT_FALSE(book.merge("chat", 7, load));
  }
  EXPECT_FALSE(book.put("", 7, kSmall));
  EXPECT_FALSE(book.put(std::string(LoadBook::kNameMost + 1, 'x'), 7, kSmall));
  EXPECT_FALSE(book.put("chat", -1, kSmall));
  EXPECT_FALSE(book.put("chat", LoadBook::kNumberMost + 1, kSmall));
  EXPECT_EQ(book.size(), 0U);
  EXPECT_TRUE(book.models().empty());
  EXPECT_TRUE(book.put(std::string(LoadBook::kNameMost, 'x'), LoadBook::kNumberMost, kSmall));
  EXPECT_FALSE(book.merge(
      std::string(LoadBook::kNameMost, 'x'), LoadBook::kNumberMost, {.mean = nan, .peak = nan}))
      << "nor in place of something";
}

TEST(LoadBook, TheOldestWindowsOfAllModelsGoFirst) {
  LoadBook book = book_of(3);
  book.put("gone", 1, kSmall);
  book.put("chat", 1, kSmall);
  book.put("chat", 2, kSmall);
  book.put("chat", 9, kSmall);
  EXPECT_EQ(book.size(), 4U);
  book.put("code", 4, kSmall);
  EXPECT_EQ(book.size(), 3U);
  EXPECT_FALSE(book.models().contains("gone"));
  EXPECT_FALSE(book.put("chat", 1, kSmall)) << "it would go at once";
  EXPECT_FALSE(book.models().contains("gone"));
  book.begin(minutes(5), 1);
  EXPECT_EQ(book.size(), 1U);
  EXPECT_EQ(book.at("chat", 9), kSmall);
  book.begin(minutes(5), 0);
  EXPECT_EQ(book.keep(), 1) << "less is nothing to keep";
  book.begin(minutes(5), LoadBook::kWindowsMost * 2);
  EXPECT_EQ(book.keep(), LoadBook::kWindowsMost);
}

TEST(LoadBook, HasNoMoreThanItsBounds) {
  LoadBook book = book_of(LoadBook::kWindowsMost);
  for (std::size_t i = 0; i <= LoadBook::kModelsMost; ++i) {
    book.put("m" + std::to_string(i), i == 5 ? 3 : 4, kSmall);
  }
  EXPECT_EQ(book.models().size(), LoadBook::kModelsMost);
  EXPECT_FALSE(book.models().contains("m5")) << "it was silent for the longest time";
  const std::int64_t windows = static_cast<std::int64_t>(LoadBook::kLoadsMost) / 100 + 10;
  for (std::int64_t window = 0; window < windows; ++window) {
    for (int model = 0; model < 100; ++model) {
      book.put("m" + std::to_string(model), 10 + window, kSmall);
    }
  }
  EXPECT_LE(book.size(), LoadBook::kLoadsMost);
  EXPECT_GT(book.size(), LoadBook::kLoadsMost - 100);
  EXPECT_EQ(book.models().size(), 100U);
}

TEST(LoadBook, WindowsOfAnotherLengthBeginItAnew) {
  LoadBook book = book_of();
  book.put("chat", 7, kSmall);
  book.begin(minutes(5), 20);
  EXPECT_EQ(book.size(), 1U);
  book.begin(minutes(1), 20);
  EXPECT_EQ(book.size(), 0U);
  EXPECT_EQ(book.digest(), 0U);
  EXPECT_EQ(book.length(), minutes(1));
}

// What hosts and a leader are compared by. The way to a content must not show in it.
TEST(LoadBook, TheDigestIsThatOfWhatItHolds) {
  const std::uint64_t seed = 0x10ad;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Rng rng(seed);
  LoadBook walked = book_of(50);
  for (int i = 0; i < 5000; ++i) {
    walked.put("m" + std::to_string(rng.below(5)),
               static_cast<std::int64_t>(rng.below(100)),
               {.mean = static_cast<double>(rng.below(3)), .peak = 3.7});
  }
  LoadBook copied = book_of(50);
  for (const auto& [name, model] : walked.models()) {
    for (const WindowLoad& window : model.windows) {
      copied.put(name, window.window, window.load);
    }
  }
  EXPECT_EQ(copied.size(), walked.size());
  EXPECT_EQ(copied.digest(), walked.digest());
  copied.put("m1", 99, {.mean = 8, .peak = 8});
  EXPECT_NE(copied.digest(), walked.digest());
}

}  // namespace
}  // namespace heddle::history
