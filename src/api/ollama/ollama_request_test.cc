#include "api/ollama/ollama_request.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace heddle::api {
namespace {

using nlohmann::json;

template <class T>
T accepted_as(Parsed<T> parsed) {
  const auto* wrong = std::get_if<ApiError>(&parsed);
  EXPECT_EQ(wrong, nullptr) << wrong->message;
  return wrong == nullptr ? std::get<0>(std::move(parsed)) : T();
}

template <class T>
std::string refused_for(const Parsed<T>& parsed) {
  const auto* wrong = std::get_if<ApiError>(&parsed);
  return wrong == nullptr ? "" : wrong->message;
}

TEST(OllamaRequest, AChatHasCallsWithoutIds) {
  const OllamaRequest request = accepted_as(parse_ollama_chat(R"({"model":"m","messages":[
      {"role":"system","content":"be brief"},{"role":"user","content":"add"},
      {"role":"assistant","content":"","thinking":"hm","tool_calls":[
        {"function":{"name":"sum","arguments":{"a":1}}},{"function":{"name":"now"}}]},
      {"role":"tool","tool_name":"sum","content":"1"},{"role":"tool","content":"noon"}]})"));
  EXPECT_FALSE(request.empty);
  EXPECT_EQ(json::parse(request.chat.messages.json), json::parse(R"([
      {"role":"system","content":"be brief"},{"role":"user","content":"add"},
      {"role":"assistant","content":"","reasoning_content":"hm","tool_calls":[
        {"id":"call00000","type":"function","function":{"name":"sum","arguments":{"a":1}}},
        {"id":"call00001","type":"function","function":{"name":"now","arguments":{}}}]},
      {"role":"tool","tool_call_id":"call00000","content":"1"},
      {"role":"tool","tool_call_id":"call00001","content":"noon"}])"));
}

TEST(OllamaRequest, TheModelGoesOnFromWhatItSaidLast) {
  const OllamaRequest request = accepted_as(parse_ollama_chat(R"({"model":"m","messages":[
      {"role":"user","content":"a"},{"role":"assistant","content":"b"},
      {"role":"user","content":"c"},{"role":"assistant","content":"It is"}]})"));
  EXPECT_EQ(json::parse(request.chat.messages.json), json::parse(R"([
      {"role":"user","content":"a"},{"role":"assistant","content":"b"},
      {"role":"user","content":"c"}])"));
  EXPECT_EQ(request.chat.answer_begins, "It is");
}

TEST(OllamaRequest, APromptIsAChatOfOneMessage) {
  const OllamaRequest request = accepted_as(parse_ollama_generate(
      R"({"model":"m","prompt":"hi","system":"be brief","raw":false,"context":[],"images":null})"));
  EXPECT_EQ(json::parse(request.chat.messages.json),
            json::parse(R"([{"role":"system","content":"be brief"},
                            {"role":"user","content":"hi"}])"));
  EXPECT_FALSE(request.empty);
}

TEST(OllamaRequest, MayAskNothing) {
  EXPECT_TRUE(accepted_as(parse_ollama_chat(R"({"model":"m"})")).empty);
  EXPECT_TRUE(accepted_as(parse_ollama_chat(R"({"model":"m","messages":[]})")).empty);
  const OllamaRequest request =
      accepted_as(parse_ollama_generate(R"({"model":"m","keep_alive":0})"));
  EXPECT_TRUE(request.empty);
  EXPECT_EQ(request.chat.params.keep_alive, Duration{});
}

TEST(OllamaRequest, ARawPromptIsTakenAsItIs) {
  const OllamaRequest request = accepted_as(parse_ollama_generate(
      R"({"model":"m","prompt":"<PRE> a <SUF> b <MID>","raw":true,"options":{"num_predict":9}})"));
  EXPECT_TRUE(request.raw);
  EXPECT_EQ(request.prompt, "<PRE> a <SUF> b <MID>");
  EXPECT_EQ(request.chat.params.max_tokens, 9);
  EXPECT_FALSE(accepted_as(parse_ollama_generate(R"({"model":"m","prompt":"x"})")).raw);
}

TEST(OllamaRequest, WhatGoesAroundTheTemplateIsRefused) {
  const auto with = [](const std::string& more) {
    return refused_for(parse_ollama_generate(R"({"model":"m","prompt":"x",)" + more + "}"));
  };
  EXPECT_NE(with(R"("raw":true,"system":"y")"), "");
  EXPECT_EQ(with(R"("suffix":"y")"), "suffix: is not supported; no model here fills in");
  EXPECT_NE(with(R"("template":"{{ .Prompt }}")"), "");
  EXPECT_NE(with(R"("context":[1])"), "");
  EXPECT_NE(with(R"("images":["AAAA"])"), "");
  EXPECT_EQ(refused_for(parse_ollama_chat(
                R"({"model":"m","messages":[{"role":"user","content":"x","images":["AA"]}]})")),
            "messages[0].images: the models here read text alone");
  EXPECT_NE(refused_for(parse_ollama_chat(R"({"model":"m","messages":[3]})")), "");
  EXPECT_NE(refused_for(parse_ollama_chat(R"({"model":"m","messages":[{"role":"user",
                                             "content":[]}]})")),
            "");
}

TEST(OllamaRequest, TextsAreEmbedded) {
  const EmbeddingRequest many =
      accepted_as(parse_ollama_embed(R"({"model":"m","input":["a","b"],"dimensions":4})"));
  EXPECT_EQ(many.inputs.size(), 2U);
  EXPECT_EQ(many.dimensions, 4);
  EXPECT_EQ(accepted_as(parse_ollama_embeddings(R"({"model":"m","prompt":"a"})")).inputs.size(),
            1U);
  EXPECT_NE(refused_for(parse_ollama_embeddings(R"({"model":"m","input":"a"})")), "");
}

TEST(OllamaRequest, AModelHasTwoNamesForItsName) {
  EXPECT_EQ(accepted_as(parse_ollama_model(R"({"model":"m","stream":false})")).model, "m");
  EXPECT_EQ(accepted_as(parse_ollama_model(R"({"name":"m"})")).model, "m");
  EXPECT_TRUE(accepted_as(parse_ollama_model(R"({"name":"m"})")).stream);
  EXPECT_NE(refused_for(parse_ollama_model("{}")), "");
}

}  // namespace
}  // namespace heddle::api
