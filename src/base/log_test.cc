#include "base/log.h"

#include <gtest/gtest.h>

#include "base/ids.h"
#include "base/log_tail.h"

namespace heddle::log {
namespace {

constexpr std::int64_t kTime = 1'700'000'000'123;  // 2023-11-14 22:13:20.123 UTC.

TEST(LogLine, TextIsReadableAndQuotesOnlyWhatNeedsIt) {
  const std::string line =
      format_line(Level::kInfo,
                  "model loaded",
                  {{"model", "adder"}, {"path", "a b"}, {"ms", 3.25}, {"device", DeviceId{2}}},
                  Options{},
                  kTime);
  EXPECT_EQ(line,
            "2023-11-14 22:13:20.123 INFO  model loaded model=adder path=\"a b\" ms=3.25 device=2");
}

TEST(LogLine, JsonEscapesWhatWouldBreakIt) {
  const std::string line = format_line(Level::kError,
                                       "bad \"thing\"\n",
                                       {{"n", -3}, {"ok", false}, {"e", ""}},
                                       Options{.format = Format::kJson, .process = "worker 0"},
                                       kTime);
  EXPECT_EQ(line,
            R"({"time":"2023-11-14T22:13:20.123Z","level":"error","message":"bad \"thing\"\u000a",)"
            R"("process":"worker 0","n":-3,"ok":false,"e":""})");
}

TEST(LogLine, ANewlineInAMessageCannotForgeALine) {
  const std::string line = format_line(Level::kInfo, "a\nb", {{"x", "c\nd"}}, Options{}, kTime);
  EXPECT_EQ(line.find('\n'), std::string::npos);
}

TEST(Log, LevelsBelowTheConfiguredOneAreOff) {
  configure(Options{.level = Level::kWarning});
  EXPECT_FALSE(enabled(Level::kInfo));
  EXPECT_TRUE(enabled(Level::kError));
  flush();
}

TEST(Log, TheTailHoldsTheLastLines) {
  const std::vector<Line> before = tail();
  const std::uint64_t last = before.empty() ? 0 : before.back().number;
  EXPECT_TRUE(tail(last).empty());
  EXPECT_TRUE(tail(last + 100).empty());
  configure(Options{.level = Level::kWarning});
  info("not written");
  warning("one", {{"model", "adder"}, {"n", 1}});
  error(std::string(10'000, 'x'));
  const std::vector<Line> lines = tail(last);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0].model, "adder");
  EXPECT_TRUE(lines[0].text.ends_with("WARN  one model=adder n=1")) << lines[0].text;
  EXPECT_EQ(lines[1].number, last + 2);
  EXPECT_EQ(lines[1].text.size(), 4096U);
  for (int i = 0; i < 1500; ++i) {
    warning("many");
  }
  EXPECT_EQ(tail().size(), 1000U);
  EXPECT_EQ(tail().back().number, last + 1502);
  flush();
}

}  // namespace
}  // namespace heddle::log
