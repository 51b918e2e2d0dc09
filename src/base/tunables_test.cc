#include "base/tunables.h"

#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Result<Tunables> read(const std::vector<std::string>& environment) {
  return Tunables::read(environment);
}

TEST(TunablesTest, AreInTheOrderOfTheirNumbersAndTheirUsualValuesAreAllowed) {
  std::set<std::string> names;
  std::size_t index = 0;
  for (const Tunable& each : all_tunables()) {
    EXPECT_EQ(static_cast<std::size_t>(each.which), index++) << each.name;
    EXPECT_TRUE(names.insert(each.name).second) << each.name;
    const auto set = read({std::string(each.name) + "=" + std::to_string(each.usual)});
    ASSERT_TRUE(set.has_value()) << set.error().message;
    EXPECT_EQ(set->get(each.which), each.usual) << each.name;
  }
}

TEST(TunablesTest, WhatTheEnvironmentDoesNotNameIsUsual) {
  const auto set = read({"PATH=/bin", "HEDDLE_TUNE_PIECE_MIB=128", "HEDDLE_HOST=x"});
  ASSERT_TRUE(set.has_value());
  EXPECT_EQ(set->get(Tuned::kPieceMib), 128);
  for (const Tunable& each : all_tunables()) {
    if (each.which != Tuned::kPieceMib) {
      EXPECT_EQ(set->get(each.which), each.usual) << each.name;
    }
  }
}

TEST(TunablesTest, BoundsAreValuesAndWhatIsBeyondThemIsNot) {
  for (const Tunable& each : all_tunables()) {
    const auto with = [&](std::int64_t value) {
      return read({std::string(each.name) + "=" + std::to_string(value)}).has_value();
    };
    EXPECT_TRUE(with(each.least) && with(each.most)) << each.name;
    EXPECT_FALSE(with(each.least - 1) || with(each.most + 1)) << each.name;
  }
}

TEST(TunablesTest, AWrongValueIsNamedWithWhatWouldBeRight) {
  for (const std::string text : {"", "x", "8x", "0x8", " 8", "8 ", "1e3", "33"}) {
    const auto set = read({"HEDDLE_TUNE_THIN_BEFORE_BLAS=" + text});
    ASSERT_FALSE(set.has_value()) << text;
    EXPECT_EQ(set.error().code, Code::kInvalidArgument);
    EXPECT_THAT(set.error().message,
                AllOf(HasSubstr("HEDDLE_TUNE_THIN_BEFORE_BLAS=" + text),
                      HasSubstr("an integer from 0 to 32")));
  }
  const auto odd = read({"HEDDLE_TUNE_NORM_THREADS=100"});
  ASSERT_FALSE(odd.has_value());
  EXPECT_THAT(odd.error().message, HasSubstr("a multiple of 32"));
}

TEST(TunablesTest, AWrongNameIsNamedWithTheRightOnes) {
  for (const std::string entry : {"HEDDLE_TUNE_=1", "HEDDLE_TUNE_PIECE=1", "HEDDLE_TUNE_X"}) {
    const auto set = read({entry});
    ASSERT_FALSE(set.has_value()) << entry;
    EXPECT_THAT(set.error().message,
                AllOf(HasSubstr("is no tunable"), HasSubstr("HEDDLE_TUNE_PIECE_MIB")));
  }
}

TEST(TunablesDeathTest, AProcessWithAWrongOneEnds) {
  EXPECT_EXIT(
      {
        ::setenv("HEDDLE_TUNE_PIECE_MIB", "much", 1);  // NOLINT(concurrency-mt-unsafe)
        (void)tuned(Tuned::kPieceMib);
      },
      testing::ExitedWithCode(2),
      "HEDDLE_TUNE_PIECE_MIB=much: wanted is an integer from 2 to 4096");
}

}  // namespace
}  // namespace heddle
