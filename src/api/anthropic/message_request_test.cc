#include "api/anthropic/message_request.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace heddle::api {
namespace {

using nlohmann::json;
using spec::SamplingParams;

/// A body with these fields beside those that must be there.
std::string message_with(const std::string& more) {
  return R"({"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}])" +
         (more.empty() ? "" : "," + more) + "}";
}

ChatRequest read_message(const std::string& more) {
  Parsed<ChatRequest> parsed = parse_message_request(message_with(more));
  const auto* wrong = std::get_if<ApiError>(&parsed);
  EXPECT_EQ(wrong, nullptr) << wrong->message;
  return wrong == nullptr ? std::get<0>(std::move(parsed)) : ChatRequest();
}

std::string message_fault(const std::string& body) {
  const Parsed<ChatRequest> parsed = parse_message_request(body);
  const auto* wrong = std::get_if<ApiError>(&parsed);
  return wrong == nullptr ? "" : wrong->param;
}

TEST(MessageRequest, IsAChat) {
  const ChatRequest chat = read_message(R"("temperature":0.5,"top_p":0.25,"top_k":7,"stream":true,
      "stop_sequences":["END","\n"],"metadata":{"user_id":"u"},"service_tier":"auto",
      "context_management":{"edits":[]},"cache_control":{"type":"ephemeral"})");
  EXPECT_EQ(chat.model, "m");
  EXPECT_EQ(chat.params.max_tokens, 9);
  EXPECT_EQ(chat.params.numbers[&SamplingParams::temperature], 0.5);
  EXPECT_EQ(chat.params.numbers[&SamplingParams::top_p], 0.25);
  EXPECT_EQ(chat.params.top_k, 7);
  EXPECT_TRUE(chat.params.stream);
  EXPECT_EQ(chat.params.stop, (std::vector<std::string>{"END", "\n"}));
  EXPECT_EQ(chat.params.user, "u");
  EXPECT_EQ(chat.params.choices, 1U);
}

TEST(MessageRequest, ThinksWhereItIsAskedTo) {
  const auto switch_of = [](const std::string& more) {
    return json::parse(read_message(more).template_variables);
  };
  EXPECT_EQ(switch_of(""), json::parse(R"({"enable_thinking":false,"thinking":false})"));
  EXPECT_EQ(switch_of(R"("thinking":{"type":"disabled"})"), switch_of(""));
  EXPECT_EQ(switch_of(R"("thinking":{"type":"enabled","budget_tokens":1024})"),
            json::parse(R"({"enable_thinking":true,"thinking":true})"));
  EXPECT_EQ(switch_of(R"("thinking":{"type":"adaptive"},"output_config":{"effort":"low"})"),
            json::parse(R"({"enable_thinking":true,"thinking":true,"reasoning_effort":"low"})"));
}

TEST(MessageRequest, HoldsTheAnswerToASchema) {
  const std::string format = R"({"type":"json_schema","schema":{"type":"array"}})";
  EXPECT_EQ(read_message(R"("output_config":{"format":)" + format + "}").params.grammar.text,
            R"({"type":"array"})");
  EXPECT_EQ(read_message(R"("output_format":)" + format).params.grammar.kind,
            spec::GrammarKind::kJsonSchema);
}

TEST(MessageRequest, WhatIsWrongIsNamed) {
  EXPECT_EQ(message_fault(R"({"model":"m","messages":[{"role":"user","content":"hi"}]})"),
            "max_tokens");
  EXPECT_EQ(message_fault(message_with(R"("thinking":true)")), "thinking");
  EXPECT_EQ(message_fault(message_with(R"("stop_sequences":[""])")), "stop_sequences");
  EXPECT_EQ(message_fault(message_with(R"("mcp_servers":[{"url":"x"}])")), "mcp_servers");
  EXPECT_EQ(message_fault(message_with(R"("temperature":-1)")), "temperature");
  EXPECT_EQ(message_fault(message_with(R"("output_format":{"type":"xml"})")), "output_format");
}

TEST(MessageRequest, ACountWantsNoLength) {
  const Parsed<ChatRequest> parsed =
      parse_message_count_request(R"({"model":"m","messages":[{"role":"user","content":"hi"}]})");
  EXPECT_TRUE(std::holds_alternative<ChatRequest>(parsed));
  EXPECT_TRUE(std::holds_alternative<ApiError>(parse_message_count_request(R"({"model":"m"})")));
}

}  // namespace
}  // namespace heddle::api
