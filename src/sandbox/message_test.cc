#include "sandbox/message.h"

#include <gtest/gtest.h>

namespace heddle::sandbox {
namespace {

TEST(MessageTest, WhatIsEncodedIsDecoded) {
  const Question question{.trial = {.directory = "/models/a b",
                                    .vocab = 300,
                                    .grammar = {.kind = spec::GrammarKind::kLark,
                                                .text = std::string("start: \0\n", 9),
                                                .thought = spec::Thought::kBegun}}};
  const Result<Question> asked = decode_question(encode(question));
  ASSERT_TRUE(asked);
  EXPECT_FALSE(asked->files);
  EXPECT_EQ(asked->trial.directory, question.trial.directory);
  EXPECT_EQ(asked->trial.vocab, 300);
  EXPECT_EQ(asked->trial.grammar, question.trial.grammar);

  const Result<Answer> begun = decode_answer(encode(Answer{.begins = "tokenizer.json"}));
  ASSERT_TRUE(begun);
  EXPECT_EQ(begun->begins, "tokenizer.json");
  EXPECT_FALSE(begun->error);
  const Result<Answer> failed =
      decode_answer(encode(Answer{.error = Error{Code::kCorrupt, "broken"}}));
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->error->code, Code::kCorrupt);
  EXPECT_EQ(failed->error->message, "broken");
}

TEST(MessageTest, NothingElseIsDecoded) {
  const std::string whole = encode(Question{.files = true, .trial = {.directory = "x"}});
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(decode_question(whole.substr(0, size))) << size;
  }
  EXPECT_FALSE(decode_question(whole + "x"));
  EXPECT_FALSE(decode_answer(std::string(24, '\xFF')));
}

TEST(MessageTest, ErrorsAreShortenedToWholeCharacters) {
  std::string message = "x";
  for (int i = 0; i < 1000; ++i) {
    message += "é";
  }
  const Result<Answer> answer =
      decode_answer(encode(Answer{.error = Error{Code::kInvalidArgument, message}}));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->error->message, message.substr(0, 999));
}

}  // namespace
}  // namespace heddle::sandbox
