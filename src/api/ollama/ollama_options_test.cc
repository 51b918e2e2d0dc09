#include "api/ollama/ollama_options.h"

#include <chrono>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace heddle::api {
namespace {

using nlohmann::json;
using spec::SamplingParams;

GenerationParams params_of(const std::string& text) {
  BodyReader body(text);
  GenerationParams params = read_ollama_params(body);
  EXPECT_TRUE(body.ok()) << body.error().message;
  return params;
}

std::string option_fault(const std::string& text) {
  BodyReader body(text);
  (void)read_ollama_params(body);
  return body.ok() ? "" : body.error().param;
}

TEST(OllamaOptions, AreParameters) {
  const GenerationParams params = params_of(
      R"({"options":{"temperature":0.5,"top_p":0.25,"min_p":0.125,"top_k":7,"repeat_penalty":1.5,
          "presence_penalty":1,"frequency_penalty":-1,"seed":3,"num_predict":9,"stop":["a","b"],
          "num_ctx":4096,"num_gpu":99,"mirostat":0,"tfs_z":1,"typical_p":1.0},
          "keep_alive":"10m","top_logprobs":2})");
  EXPECT_EQ(params.numbers[&SamplingParams::temperature], 0.5);
  EXPECT_EQ(params.numbers[&SamplingParams::top_p], 0.25);
  EXPECT_EQ(params.numbers[&SamplingParams::min_p], 0.125);
  EXPECT_EQ(params.numbers[&SamplingParams::repetition_penalty], 1.5);
  EXPECT_EQ(params.numbers[&SamplingParams::presence_penalty], 1);
  EXPECT_EQ(params.numbers[&SamplingParams::frequency_penalty], -1);
  EXPECT_EQ(params.top_k, 7);
  EXPECT_EQ(params.seed, 3U);
  EXPECT_EQ(params.max_tokens, 9);
  EXPECT_EQ(params.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(params.keep_alive, std::chrono::minutes(10));
  EXPECT_EQ(params.logprobs, 2);
  EXPECT_TRUE(params.stream) << "where nobody says otherwise";
}

TEST(OllamaOptions, MayBeForEverAndOfAnySeed) {
  const GenerationParams params =
      params_of(R"({"stream":false,"options":{"num_predict":-1,"seed":-1,"stop":"x"}})");
  EXPECT_EQ(params.max_tokens, std::nullopt);
  EXPECT_EQ(params.seed, std::nullopt);
  EXPECT_EQ(params.stop, std::vector<std::string>{"x"});
  EXPECT_FALSE(params.stream);
}

TEST(OllamaOptions, AFormatIsAGrammar) {
  EXPECT_FALSE(params_of(R"({"format":""})").grammar.constrains());
  EXPECT_EQ(params_of(R"({"format":"json"})").grammar.text, R"({"type":"object"})");
  EXPECT_EQ(params_of(R"({"format":{"type":"array"}})").grammar.text, R"({"type":"array"})");
  EXPECT_EQ(option_fault(R"({"format":"xml"})"), "format");
}

TEST(OllamaOptions, WhatIsWrongIsNamed) {
  EXPECT_EQ(option_fault(R"({"options":{"temperature":-1}})"), "options.temperature");
  EXPECT_EQ(option_fault(R"({"options":{"mirostat":2}})"), "options.mirostat");
  EXPECT_EQ(option_fault(R"({"options":{"typical_p":0.5}})"), "options.typical_p");
  EXPECT_EQ(option_fault(R"({"options":{"num_predict":0}})"), "options.num_predict");
  EXPECT_EQ(option_fault(R"({"options":[]})"), "options");
  EXPECT_EQ(option_fault(R"({"options":{"stop":[""]}})"), "options.stop");
}

TEST(OllamaOptions, ThinkingIsTheTemplatesSwitch) {
  const auto variables = [](const std::string& text) {
    BodyReader body(text);
    std::string read = read_ollama_thinking(body);
    return body.ok() ? json::parse(read) : json("refused");
  };
  EXPECT_EQ(variables("{}"), json::object()) << "as the model does where nobody says";
  EXPECT_EQ(variables(R"({"think":false})"),
            json::parse(R"({"enable_thinking":false,"thinking":false})"));
  EXPECT_EQ(variables(R"({"think":"low"})"),
            json::parse(R"({"enable_thinking":true,"thinking":true,"reasoning_effort":"low"})"));
  EXPECT_EQ(variables(R"({"think":"some"})"), "refused");
}

}  // namespace
}  // namespace heddle::api
