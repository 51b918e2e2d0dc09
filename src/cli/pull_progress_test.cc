#include "cli/pull_progress.h"

#include <gtest/gtest.h>

namespace heddle::cli {
namespace {

using namespace std::chrono_literals;

PullState half_way() {
  return {.files = {{.name = "config.json",
                     .bytes = 1024,
                     .there = 1024,
                     .state = PullFile::State::kThere},
                    {.name = "model-00001-of-00002.safetensors",
                     .bytes = 4096,
                     .there = 1024,
                     .state = PullFile::State::kComes},
                    {.name = "model-00002-of-00002.safetensors", .bytes = 4096},
                    {.name = "tokenizer.json",
                     .bytes = 1024,
                     .there = 1024,
                     .state = PullFile::State::kIsChecked}},
          .bytes_per_second = 1000};
}

TEST(FormatPull, SaysHowFarItIs) {
  EXPECT_EQ(format_pull(half_way()), "3.00 KiB of 10.0 KiB, 1.00 KB/s, 7.00 s left");
  EXPECT_EQ(format_pull({}), "0 B of 0 B");
}

TEST(FormatPull, HasABarForWhatComes) {
  EXPECT_EQ(format_pull_bars(half_way(), 8),
            "  model-00001-of-00002.safetensors     [#######.......................]  25 %  "
            "1.00 KiB of 4.00 KiB\n"
            "  tokenizer.json                       [##############################] 100 %  "
            "checking\n"
            "  in all                               [#########.....................]  30 %  "
            "3.00 KiB of 10.0 KiB, 1.00 KB/s, 7.00 s left\n");
  const std::string one = format_pull_bars(half_way(), 1);
  EXPECT_EQ(std::count(one.begin(), one.end(), '\n'), 2);
}

TEST(FormatLeftOut, NamesTheLargest) {
  const std::vector<fetch::Object> objects{{.name = "a", .bytes = 1},
                                           {.name = "b.bin", .bytes = 2048},
                                           {.name = "c", .bytes = 3},
                                           {.name = "d", .bytes = 2}};
  EXPECT_EQ(format_left_out(objects),
            "left out, as heddle does not read them: b.bin (2.00 KiB), c (3 B), d (2 B), 1 more");
}

TEST(RecentRate, IsOfTheLastSeconds) {
  RecentRate rate;
  const Instant start{1h};
  EXPECT_EQ(rate.at(start), 0);
  for (int i = 0; i <= 10; ++i) {
    rate.add(100, start + i * 100ms);
  }
  EXPECT_NEAR(rate.at(start + 1s), 1100, 1);
  EXPECT_EQ(rate.at(start + 100ms), 0);
  rate.add(500, start + 1min);
  EXPECT_NEAR(rate.at(start + 1min + 5s), 100, 1);
}

}  // namespace
}  // namespace heddle::cli
