#include "config/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::config {
namespace {

using testing::ElementsAre;

TEST(CommandLine, IsSplitAsAShellDoes) {
  EXPECT_THAT(*split_command("llama-server -m 'a b.gguf' --port 5800"),
              ElementsAre("llama-server", "-m", "a b.gguf", "--port", "5800"));
  EXPECT_THAT(*split_command(R"(x "a \"b\" \n" c\ d '' e"f"'g')"),
              ElementsAre("x", R"(a "b" \n)", "c d", "", "efg"));
  EXPECT_THAT(*split_command("--json '{\"a\": [1, 2]}'"),
              ElementsAre("--json", R"({"a": [1, 2]})"));
}

TEST(CommandLine, LinesMayBeCommentsOrContinued) {
  EXPECT_THAT(
      *split_command("# the server\nllama-server \\\n  --port 1 \\   \n  # not now: -x\n-y\n"),
      ElementsAre("llama-server", "--port", "1", "-y"));
  EXPECT_THAT(*split_command("a #b c#d"), ElementsAre("a", "#b", "c#d"))
      << "only whole lines are comments";
}

TEST(CommandLine, WhatIsNoneIsRefused) {
  for (const char* bad : {"", "  \n", "# only this", "a 'b", "a \"b\\\""}) {
    EXPECT_FALSE(split_command(bad)) << bad;
  }
}

TEST(CommandLine, WhatIsJoinedSplitsAgain) {
  Rng rng(20261121);
  constexpr std::string_view kCharacters = "ab'\"\\ $#\t;-";
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::string> words(1 + rng.below(4));
    for (std::string& word : words) {
      for (auto length = rng.below(5); length > 0; --length) {
        word += kCharacters[rng.below(kCharacters.size())];
      }
    }
    const std::string line = join_command(words);
    const auto again = split_command(line);
    ASSERT_TRUE(again) << line;
    EXPECT_EQ(*again, words) << line;
  }
}

TEST(CommandLine, CommentsAreTakenOut) {
  EXPECT_EQ(without_comments("a\n  # ${nothing}\nb"), "a\nb\n");
}

}  // namespace
}  // namespace heddle::config
