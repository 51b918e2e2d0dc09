#include "cluster/line_splitter.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace heddle::cluster {
namespace {

TEST(LineSplitterTest, GivesTheSameLinesHoweverTheyCome) {
  const std::string text = "one\n\ntwo\nthree, not whole";
  for (std::size_t step = 1; step <= text.size(); ++step) {
    LineSplitter lines(20);
    std::vector<std::string> got;
    for (std::size_t i = 0; i < text.size(); i += step) {
      EXPECT_TRUE(lines.feed(std::string_view(text).substr(i, step), [&](std::string_view line) {
        got.emplace_back(line);
        return true;
      }));
    }
    EXPECT_EQ(got, (std::vector<std::string>{"one", "two"})) << step;
  }
}

TEST(LineSplitterTest, EndsAtALineThatIsTooLong) {
  LineSplitter lines(4);
  int told = 0;
  const auto tell = [&](std::string_view) { return ++told > 0; };
  EXPECT_TRUE(lines.feed("four\nfo", tell));
  EXPECT_FALSE(lines.feed("ur+\n", tell));
  EXPECT_FALSE(lines.feed("ok\n", tell));
  EXPECT_EQ(told, 1);
}

TEST(LineSplitterTest, EndsWhenItIsTold) {
  LineSplitter lines(9);
  int told = 0;
  EXPECT_FALSE(lines.feed("a\nb\nc\n", [&](std::string_view) { return ++told < 2; }));
  EXPECT_EQ(told, 2);
}

}  // namespace
}  // namespace heddle::cluster
