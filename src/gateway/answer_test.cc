#include "gateway/answer.h"

#include <gtest/gtest.h>

#include "gateway/fake_serving.h"
#include "gateway/test_model.h"

namespace heddle::gateway {
namespace {

using spec::FinishReason;

class AnswerTest : public testing::Test {
 protected:
  AnswerTest() : text_(text::TextModel::open(model_.directory()).value()) {}

  [[nodiscard]] Answer make(Answer::Options options) const {
    return Answer::make(text_, std::move(options)).value();
  }

  /// A token with its log probability, and one alternative.
  static core::TokenEvent event(TokenId token, FinishReason finish = FinishReason::kNone) {
    core::TokenEvent event{.token = token, .finish = finish};
    event.details.logprobs = {{token, -0.5F}, {'z', -0.25F}};
    return event;
  }

  /// All parts of an answer of these bytes, put together.
  static api::Choice all(Answer& answer, const std::string& bytes, FinishReason finish) {
    api::Choice whole;
    for (std::size_t i = 0; i < bytes.size() && !answer.ended(); ++i) {
      const bool last = i + 1 == bytes.size();
      api::append(whole,
                  answer.push(event(static_cast<unsigned char>(bytes[i]),
                                    last ? finish : FinishReason::kNone)));
    }
    return whole;
  }
  static std::string tokens_of(const api::Choice& choice) {
    std::string tokens;
    for (const api::TokenLogprobs& one : *choice.logprobs) {
      tokens += one.token.bytes + "|";
    }
    return tokens;
  }

  TestModel model_{};
  std::shared_ptr<const text::TextModel> text_;
};

TEST_F(AnswerTest, TellsALogprobForEveryTokenOfTheTextAndNoneForTheEndOfTurn) {
  Answer answer = make({.logprobs = true});
  api::Choice whole = all(answer, "ab", FinishReason::kNone);
  api::append(whole, answer.push(event(FakeServing::kEos, FinishReason::kStop)));
  EXPECT_EQ(whole.text, "ab");
  EXPECT_EQ(tokens_of(whole), "a|b|");
  EXPECT_EQ(whole.logprobs->at(1).token.logprob, -0.5F);
  ASSERT_EQ(whole.logprobs->at(1).top.size(), 1U);
  EXPECT_EQ(whole.logprobs->at(1).top[0].bytes, "z");
}

TEST_F(AnswerTest, GivesTheBytesOfTokensThatSplitACharacter) {
  Answer answer = make({.logprobs = true});
  const api::Choice whole = all(answer, "\xc3\xa9!", FinishReason::kLength);
  EXPECT_EQ(whole.text, "\xc3\xa9!");
  EXPECT_EQ(tokens_of(whole), "\xc3|\xa9|!|");
}

TEST_F(AnswerTest, TokensOfAStopStringAreNotTold) {
  Answer answer = make({.stop = {"END"}, .logprobs = true});
  api::Choice held = answer.push(event('E'));
  EXPECT_TRUE(held.logprobs->empty()) << "it may begin a stop string";
  EXPECT_EQ(tokens_of(answer.push(event('x'))), "E|x|");
  const api::Choice whole = all(answer, "yEND", FinishReason::kNone);
  EXPECT_EQ(whole.text, "y");
  EXPECT_EQ(tokens_of(whole), "y|");
  EXPECT_TRUE(answer.stopped_by_string());
}

TEST_F(AnswerTest, MessagesOfHarmonyAreTakenApart) {
  Answer answer = make({.tools = text::ToolFormat::kHarmony,
                        .reasoning = text::ReasoningFormat::kHarmony,
                        .prompt_end = "<|start|>assistant"});
  const std::string thought = "<|channel|>analysis<|message|>Hm.<|end|>";
  const api::Choice whole =
      all(answer,
          thought +
              "<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json"
              "<|message|>{\"a\": 1}",
          FinishReason::kStop);
  EXPECT_EQ(whole.reasoning, "Hm.");
  EXPECT_EQ(whole.text, "");
  ASSERT_EQ(whole.calls.size(), 1U);
  EXPECT_EQ(whole.calls[0].name, "f");
  EXPECT_EQ(whole.calls[0].arguments, "{\"a\":1}");
  EXPECT_TRUE(whole.called);
  // From the marker's last byte to that of the one that ends it.
  EXPECT_EQ(answer.reasoning_tokens(), 1 + 3 + 7);
}

TEST_F(AnswerTest, AMessageOfHarmonyThatThePromptBeganGoesOn) {
  Answer answer = make({.reasoning = text::ReasoningFormat::kHarmony,
                        .prompt_end = "<|start|>assistant<|channel|>final<|message|>"});
  EXPECT_EQ(all(answer, "yes", FinishReason::kStop).text, "yes");
}

TEST_F(AnswerTest, WhatIsNotAskedForIsNotTold) {
  Answer answer = make({});
  EXPECT_FALSE(answer.push(event('a')).logprobs.has_value());
  EXPECT_EQ(answer.tokens(), 1);
}

TEST_F(AnswerTest, APromptsTokensAreToldBeforeTheAnswers) {
  Answer answer = make({.logprobs = true, .prompt = {'x', 'y', 'z'}, .top = 1});
  core::TokenEvent first = event('a');
  first.details.prompt = {{{{'y', -1.5F}, {'q', -0.5F}}}, {{{'z', -2.5F}}}};
  const api::Choice news = answer.push(first);
  EXPECT_EQ(tokens_of(news), "x|y|z|a|");
  ASSERT_TRUE(news.logprobs.has_value());
  EXPECT_TRUE(news.logprobs->at(0).first);
  EXPECT_EQ(news.logprobs->at(1).token.logprob, -1.5F);
  EXPECT_EQ(news.logprobs->at(1).top.at(0).bytes, "q");
  EXPECT_EQ(tokens_of(answer.push(event('b'))), "b|");
}

TEST_F(AnswerTest, APromptIsScoredBesideTheAnswer) {
  Answer answer = make({.scored = {'x', 'y', 'z'}, .scored_top = 1});
  core::TokenEvent first = event('a');
  first.details.prompt = {{{{'y', -1.5F}, {'q', -0.5F}, {'y', -1.5F}}},
                          {{{'z', -0.25F}, {'z', -0.25F}}}};
  const api::Choice news = answer.push(first);
  ASSERT_TRUE(news.prompt_logprobs.has_value());
  const api::PromptLogprobs& told = *news.prompt_logprobs;
  ASSERT_EQ(told.size(), 3U);
  EXPECT_TRUE(told[0].empty());
  ASSERT_EQ(told[1].size(), 2U) << "itself, and one of the likeliest";
  EXPECT_EQ(told[1][0].rank, 0) << "it is not the likeliest, and no more were asked for";
  EXPECT_EQ(told[1][1].chance.bytes, "q");
  EXPECT_EQ(told[1][1].rank, 1);
  ASSERT_EQ(told[2].size(), 1U);
  EXPECT_EQ(told[2][0].rank, 1);
  EXPECT_FALSE(answer.push(event('b')).prompt_logprobs.has_value());
}

TEST_F(AnswerTest, OfAPromptAloneNothingIsGenerated) {
  Answer answer = make({.logprobs = true, .prompt = {'x'}, .prompt_only = true});
  const api::Choice news = answer.push(event('a'));
  EXPECT_EQ(news.text, "");
  EXPECT_EQ(tokens_of(news), "x|");
  EXPECT_EQ(news.finish, spec::FinishReason::kLength);
  EXPECT_TRUE(answer.ended());
  EXPECT_EQ(answer.tokens(), 0);
}

TEST_F(AnswerTest, CountsTheCharactersBeforeEachPart) {
  Answer answer = make({.logprobs = true, .prompt = {'x', 'y', 'z'}, .top = 1});
  EXPECT_EQ(answer.push(event('a')).text_offset, 0) << "the prompt's tokens come first";
  EXPECT_EQ(answer.push(event(0xc3)).text_offset, 4);
  EXPECT_EQ(answer.push(event(0xa9)).text_offset, 4);
  EXPECT_EQ(answer.push(event('b')).text_offset, 5);
}

}  // namespace
}  // namespace heddle::gateway
