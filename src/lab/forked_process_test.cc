#include "lab/forked_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::lab {
namespace {

TEST(ForkedProcess, AnswersWhatItIsAsked) {
  const ForkedProcess process([](const Line& line) {
    while (const std::optional<std::string> heard = line.hear()) {
      line.say(*heard + "!");
    }
  });
  for (const char* text : {"one", "two"}) {
    const Result<std::string> answer = process.ask(text);
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_EQ(*answer, std::string(text) + "!");
  }
}

TEST(ForkedProcess, GoesOnUntilSomethingIsSaid) {
  const ForkedProcess process([](const Line& line) {
    (void)line.hear();
    line.say(line.heard() ? "told too early" : "running");
    while (!line.heard()) {
    }
    line.say("told " + line.hear().value_or("nothing"));
  });
  EXPECT_EQ(*process.ask("go"), "running");
  EXPECT_EQ(*process.ask("stop"), "told stop");
}

TEST(ForkedProcess, OneThatHasEndedIsNotWaitedFor) {
  const ForkedProcess process([](const Line& line) { (void)line.hear(); });
  const Result<std::string> answer = process.ask("go");
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Code::kUnavailable);
  EXPECT_THAT(answer.error().message, testing::HasSubstr("has ended"));
}

}  // namespace
}  // namespace heddle::lab
