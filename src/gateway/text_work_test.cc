#include "gateway/text_work.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gateway/test_gateway.h"

namespace heddle::gateway {
namespace {

using testing::HasSubstr;

class TextWork : public GatewayTest {
 protected:
  nlohmann::json error_of(const std::string& path, const std::string& body) {
    const TestResponse response = call("POST", path, body);
    EXPECT_EQ(response.status, 400) << response.body;
    return nlohmann::json::parse(response.body)["error"];
  }
};

TEST_F(TextWork, LongBodiesAreAnsweredAsShortOnes) {
  serving.reply = "hello";
  start();
  const std::string content(150'000, 'x');
  const std::string prompt = R"({"model":"tiny","prompt":")" + content + "\"}";
  EXPECT_EQ(ask("POST", "/v1/chat/completions", chat_body({}, content))["usage"]["prompt_tokens"],
            content.size() + 7);
  EXPECT_EQ(ask("POST", "/v1/completions", prompt)["usage"]["prompt_tokens"], content.size());
  EXPECT_EQ(ask("POST", "/tokenize", prompt)["count"], content.size());
  EXPECT_THAT(error_of("/v1/chat/completions", chat_body("\"max_tokens\":-1", content))["message"],
              HasSubstr("max_tokens"));
}

TEST_F(TextWork, WhatCannotFitIsRefusedByItsBytes) {
  start();
  const std::string content(1'100'000, 'x');
  const std::string prompt = R"({"model":"tiny","prompt":")" + content + "\"}";
  const std::string input = R"({"model":"tiny","input":")" + content + "\"}";
  for (const auto& [path, body] : {std::pair("/v1/chat/completions", chat_body({}, content)),
                                   std::pair("/v1/completions", prompt),
                                   std::pair("/v1/embeddings", input),
                                   std::pair("/v1/responses", input)}) {
    const nlohmann::json error = error_of(path, body);
    EXPECT_EQ(error["code"], "context_length_exceeded") << path;
    EXPECT_THAT(error["message"], HasSubstr("1100000 bytes")) << path;
  }
}

TEST_F(TextWork, EmbeddingsOfMoreInputsThanTheQueueTakesComeInTurns) {
  config.limits.queue = 8;
  serving.reply = "x";
  start();
  std::string inputs;
  for (int i = 0; i < 2048; ++i) {
    inputs += (i == 0 ? "\"" : ",\"") + std::string(1, static_cast<char>('a' + i % 26)) + "\"";
  }
  const nlohmann::json answer =
      ask("POST", "/v1/embeddings", R"({"model":"tiny","input":[)" + inputs + "]}");
  ASSERT_TRUE(answer.contains("data")) << answer;
  EXPECT_EQ(answer["data"].size(), 2048U);
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 2048);
}

}  // namespace
}  // namespace heddle::gateway
