#include "text/stop_strings.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::text {
namespace {

StopStrings stops(std::vector<std::string> strings) {
  auto made = StopStrings::make(std::move(strings));
  EXPECT_TRUE(made) << (made ? "" : made.error().message);
  return *std::move(made);
}

TEST(StopStrings, FindsOneAcrossPortions) {
  StopStrings matcher = stops({"<end>"});
  EXPECT_EQ(matcher.push("abc<e").text, "abc");
  EXPECT_EQ(matcher.push("n").text, "");
  const StopStrings::Found found = matcher.push("d>tail");
  EXPECT_EQ(found.text, "");
  EXPECT_EQ(found.stop, 0U);
}

TEST(StopStrings, HoldsBackNoMoreThanItMust) {
  StopStrings matcher = stops({"aab"});
  EXPECT_EQ(matcher.push("xa").text, "x");
  EXPECT_EQ(matcher.push("a").text, "");
  EXPECT_EQ(matcher.push("a").text, "a");  // "aaa": only the last two can still become "aab".
  EXPECT_EQ(matcher.push("c").text, "aac");
  EXPECT_EQ(matcher.push("a").text, "");
  EXPECT_EQ(matcher.flush(), "a");
}

TEST(StopStrings, OfTwoCompleteAtOnceTheLongerCounts) {
  StopStrings matcher = stops({"b", "ab"});
  const StopStrings::Found found = matcher.push("xab");
  EXPECT_EQ(found.text, "x");
  EXPECT_EQ(found.stop, 1U);
}

TEST(StopStrings, TheOneCompleteFirstCounts) {
  StopStrings matcher = stops({"abcd", "bc"});
  const StopStrings::Found found = matcher.push("xabcd");
  EXPECT_EQ(found.text, "xa");
  EXPECT_EQ(found.stop, 1U);
}

TEST(StopStrings, WithNoneEverythingPasses) {
  StopStrings matcher = stops({});
  EXPECT_EQ(matcher.push("abc").text, "abc");
  EXPECT_EQ(matcher.flush(), "");
}

TEST(StopStrings, NeverSplitsACharacter) {
  StopStrings matcher = stops({"é!"});
  EXPECT_EQ(matcher.push("xé").text, "x");
  EXPECT_EQ(matcher.push("è").text, "éè");  // The same lead byte, then another one.
}

TEST(StopStrings, RefusesEmptyAndBrokenOnes) {
  const auto empty = StopStrings::make({"a", ""});
  ASSERT_FALSE(empty);
  EXPECT_EQ(empty.error().message, "stop[1] is empty; leave it out");
  EXPECT_FALSE(StopStrings::make({"\xff"}));
}

/// The end of `text` by looking at all of it: where the first stop string is complete, the longest.
struct End {
  std::string text;
  std::optional<std::size_t> stop;
};

End search_whole(const std::string& text, const std::vector<std::string>& strings) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    End best;
    std::size_t longest = 0;
    for (std::size_t i = 0; i < strings.size(); ++i) {
      if (strings[i].size() > longest && text.substr(0, end).ends_with(strings[i])) {
        longest = strings[i].size();
        best = {text.substr(0, end - longest), i};
      }
    }
    if (best.stop) {
      return best;
    }
  }
  return {text, std::nullopt};
}

TEST(StopStrings, AnyPortionsGiveWhatAWholeSearchGives) {
  constexpr std::uint64_t kSeed = 4242;
  Rng rng(kSeed);
  int stopped = 0;
  for (int round = 0; round < 20000; ++round) {
    const auto word = [&](std::uint64_t size_max) {
      std::string out;
      for (std::uint64_t n = rng.below(size_max); n > 0; --n) {
        out += static_cast<char>('a' + rng.below(2 + static_cast<std::uint64_t>(round) % 2));
      }
      return out;
    };
    std::vector<std::string> strings(1 + rng.below(3));
    for (std::string& string : strings) {
      string = "a" + word(6);
    }
    const std::string text = word(40);
    StopStrings matcher = stops(strings);
    std::string got;
    std::optional<std::size_t> stop;
    for (std::size_t at = 0; at < text.size() && !stop;) {
      const std::size_t size = rng.below(5);
      const StopStrings::Found found = matcher.push(std::string_view(text).substr(at, size));
      at += size;
      got += found.text;
      stop = found.stop;
    }
    got += stop ? "" : matcher.flush();
    const End want = search_whole(text, strings);
    ASSERT_EQ(got, want.text) << "seed " << kSeed << " round " << round << " text " << text;
    ASSERT_EQ(stop.has_value(), want.stop.has_value());
    if (stop) {
      ASSERT_EQ(strings[*stop], strings[*want.stop]);
      ++stopped;
    }
  }
  EXPECT_GT(stopped, 5000);
}

}  // namespace
}  // namespace heddle::text
