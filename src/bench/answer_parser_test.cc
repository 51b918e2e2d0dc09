#include "bench/answer_parser.h"

#include <gtest/gtest.h>

namespace heddle::bench {
namespace {

TEST(AnswerParser, TellsWhatBringsContent) {
  AnswerParser parser;
  for (const char* json : {R"({"choices":[{"delta":{"content":"a"}}]})",
                           R"({"choices":[{"delta":{"reasoning_content":"a"}}]})",
                           R"({"choices":[{"delta":{"tool_calls":[{"index":0}]}}]})",
                           R"({"choices":[{"text":"a"}],"usage":null})",
                           R"({"choices":[{"message":{"content":"a"}}]})"}) {
    EXPECT_TRUE(parser.parse(json).content) << json;
  }
  for (const char* json : {R"({"choices":[{"delta":{"role":"assistant","content":""}}]})",
                           R"({"choices":[{"delta":{},"finish_reason":"stop"}]})",
                           R"({"choices":[{"text":""}]})",
                           R"({"choices":[]})",
                           "{}"}) {
    EXPECT_FALSE(parser.parse(json).content) << json;
    EXPECT_EQ(parser.parse(json).error, "") << json;
  }
}

TEST(AnswerParser, TellsTokensAndTheirLogProbabilities) {
  const AnswerNews news = AnswerParser().parse(
      R"({"choices":[{"text":"ab","logprobs":{"tokens":["a","b"],"token_logprobs":[-0.5,-1.25],)"
      R"("top_logprobs":[{"c":-0.25},{"b":-1.25}],"text_offset":[0,1]}}]})");
  EXPECT_EQ(news.scores,
            (std::vector<std::string>{"\"a\" -0.5 {\"c\":-0.25} ", "\"b\" -1.25 {\"b\":-1.25} "}));
  EXPECT_TRUE(AnswerParser().parse(R"({"choices":[{"text":"a","logprobs":null}]})").scores.empty());
}

TEST(AnswerParser, TellsUsage) {
  const AnswerNews news =
      AnswerParser().parse(R"({"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3}})");
  EXPECT_EQ(news.prompt_tokens, 7);
  EXPECT_EQ(news.completion_tokens, 3);
  const AnswerNews odd =
      AnswerParser().parse(R"({"usage":{"prompt_tokens":-7,"completion_tokens":"3"}})");
  EXPECT_FALSE(odd.prompt_tokens || odd.completion_tokens);
}

TEST(AnswerParser, TellsErrorsInWhateverFormTheyCome) {
  AnswerParser parser;
  EXPECT_EQ(parser.parse(R"({"error":{"message":"no","type":"x"}})").error, "no");
  EXPECT_EQ(parser.parse(R"({"error":"no"})").error, "no");
  EXPECT_EQ(parser.parse(R"({"error":{"code":1}})").error, R"({"code":1})");
  EXPECT_NE(parser.parse("<html>").error, "");
  EXPECT_NE(parser.parse("[1]").error, "");
}

}  // namespace
}  // namespace heddle::bench
