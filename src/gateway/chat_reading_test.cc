#include "gateway/chat_reading.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gateway/test_model.h"

namespace heddle::gateway {
namespace {

using testing::HasSubstr;

/// Conversations for a model whose tokens are bytes, and whose template is "role: content\n".
class ChatReadings : public testing::Test {
 protected:
  api::Parsed<std::vector<TokenId>> read(const std::string& messages,
                                         const std::string& begun = {},
                                         std::optional<std::string> continued = {}) {
    const text::Chat chat{.messages = messages};
    ChatReading reading(*text_->text,
                        chat,
                        text::SpecialTokens::kNone,
                        prompt_bounds(*text_, "messages"),
                        {},
                        begun,
                        std::move(continued));
    for (steps_ = 1; !reading.step(); ++steps_) {
    }
    auto tokens = reading.take();
    end_ = std::holds_alternative<api::ApiError>(tokens) ? "" : reading.end();
    return tokens;
  }
  [[nodiscard]] std::vector<TokenId> tokens_of(const std::string& text) const {
    return text_->text->tokenizer()->encode(text, text::SpecialTokens::kNone).value();
  }

  TestModel files_{};
  std::shared_ptr<const ModelText> text_ = open_model_text(files_.directory(), 200'000).value();
  int steps_ = 0;
  std::string end_{};
};

constexpr const char* kHello = R"([{"role": "user", "content": "Hello"}])";

TEST_F(ChatReadings, GiveTheTokensOfWhatTheTemplateMakesAndWhatIsBegun) {
  EXPECT_EQ(std::get<0>(read(kHello)), tokens_of("user: Hello\n"));
  EXPECT_EQ(std::get<0>(read(kHello, "<think>")), tokens_of("user: Hello\n<think>"));
  EXPECT_EQ(end_, "user: Hello\n<think>");
  EXPECT_EQ(steps_, 1);
}

TEST_F(ChatReadings, OfALongOneRenderingIsAStep) {
  const std::string text(10'000, 'x');
  EXPECT_EQ(std::get<0>(read(R"([{"role": "user", "content": ")" + text + "\"}]")),
            tokens_of("user: " + text + "\n"));
  EXPECT_GT(steps_, 1);
  EXPECT_EQ(end_, std::string(63, 'x') + "\n") << "its last bytes";
}

TEST_F(ChatReadings, EndWithTheMessageThatIsContinued) {
  EXPECT_EQ(std::get<0>(read(kHello, "", "Hello")), tokens_of("user: Hello"));
  EXPECT_EQ(std::get<0>(read(kHello, "", "Hello \n")), tokens_of("user: Hello"))
      << "many templates trim what they are given";
  EXPECT_THAT(std::get<api::ApiError>(read(kHello, "", "Good bye")).message,
              HasSubstr("continue_final_message: this model's template does not show"));
}

TEST_F(ChatReadings, WhatCannotBeRenderedIsTheClients) {
  const auto refused = read(R"([{"role": "bad", "content": "x"}])");
  EXPECT_EQ(std::get<api::ApiError>(refused).status, 400);
  EXPECT_THAT(std::get<api::ApiError>(refused).message, HasSubstr("no such role"));
  EXPECT_EQ(conversation_error({Code::kFailedPrecondition, "there is no template"}).status, 400);
  EXPECT_EQ(conversation_error({Code::kUnavailable, "it is away"}).status, 503);
}

}  // namespace
}  // namespace heddle::gateway
