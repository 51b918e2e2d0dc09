#include "cli/replay.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include <unistd.h>

namespace heddle::cli {
namespace {

TEST(CheckWarmup, SomeRequestHasToCount) {
  const ReplayOptions options{.warmup = std::chrono::seconds(9)};
  EXPECT_TRUE(check_warmup(options, std::chrono::seconds(9)));
  const auto none = check_warmup(options, std::chrono::seconds(8));
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("the last request comes at 8 s"), std::string::npos);
}

TEST(MakePolicy, TakesANameAndFlags) {
  EXPECT_TRUE(make_policy("heddle:stages=1,weave=0", {}));
  for (const char* wrong : {"none", "heddle:stages", "heddle:nothing=1", "heddle:stages=x"}) {
    EXPECT_FALSE(make_policy(wrong, {})) << wrong;
  }
}

TEST(WriteReport, ToAFileOrNowhere) {
  const std::string file = testing::TempDir() + "report-" + std::to_string(::getpid());
  EXPECT_TRUE(write_report("", "lost"));
  ASSERT_TRUE(write_report(file, "kept"));
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  EXPECT_EQ(text.str(), "kept");
  EXPECT_FALSE(write_report("/nowhere/at/all", "x"));
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace heddle::cli
