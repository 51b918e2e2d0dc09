#include "cli/simulate.h"

#include <gtest/gtest.h>

namespace heddle::cli {
namespace {

TEST(SplitPolicies, KeepsFlagsWithTheirPolicy) {
  EXPECT_EQ(split_policies("a,b:x=1,y=2,c"), (std::vector<std::string>{"a", "b:x=1,y=2", "c"}));
  EXPECT_EQ(split_policies("heddle"), (std::vector<std::string>{"heddle"}));
}

TEST(ParseSweep, GoesFromTheFirstRateToTheLast) {
  EXPECT_EQ(parse_sweep("rps=5..15:2.5").value(), (std::vector<double>{5, 7.5, 10, 12.5, 15}));
  EXPECT_EQ(parse_sweep("rps=5..14:5").value(), (std::vector<double>{5, 10}));
  EXPECT_EQ(parse_sweep("rps=0.5..1").value().size(), 6U);
}

TEST(ParseSweep, SaysWhatItWants) {
  for (const char* text : {"",
                           "5..30",
                           "rps=5",
                           "rps=5..",
                           "rps=30..5",
                           "rps=5..30:0",
                           "rps=5..30:x",
                           "rps=-5..30",
                           "rps=5..30 ",
                           "rps=1..1e9:1"}) {
    const auto parsed = parse_sweep(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_NE(parsed.error().message.find("rps=5..30"), std::string::npos);
  }
}

}  // namespace
}  // namespace heddle::cli
