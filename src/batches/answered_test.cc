#include "batches/answered.h"

#include <gtest/gtest.h>

#include "base/test_directory.h"
#include "batches/line.h"
#include "batches/line_file.h"

namespace heddle::batches {
namespace {

TEST(AnsweredTest, WhatWasNotWrittenWholeIsTakenOff) {
  const TempDirectory directory;
  const std::string file = (directory.path() / "answers").string();
  const Result<Answered> nothing = recover_answers(file);
  ASSERT_TRUE(nothing);
  EXPECT_TRUE(nothing->lines.empty());
  const std::string first = answer_line("batch_x", 7, "a", 200, "r", "{}");
  const std::string second = answer_line("batch_x", 3, "b", 200, "r", "{}");
  ASSERT_TRUE(append_to(file, first + second + first.substr(0, 40)));
  const Result<Answered> answered = recover_answers(file);
  ASSERT_TRUE(answered);
  EXPECT_EQ(answered->lines, (std::vector<std::size_t>{7, 3}));
  EXPECT_EQ(answered->bytes, first.size() + second.size());
  // What is written next stands on a line of its own.
  ASSERT_TRUE(append_to(file, answer_line("batch_x", 5, "c", 200, "r", "{}")));
  const Result<Answered> after = recover_answers(file);
  ASSERT_TRUE(after);
  EXPECT_EQ(after->lines, (std::vector<std::size_t>{7, 3, 5}));
}

}  // namespace
}  // namespace heddle::batches
