#include "api/ollama/ollama_writer.h"

#include <chrono>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace heddle::api {
namespace {

using nlohmann::json;
using spec::FinishReason;
using std::chrono::nanoseconds;

const AnswerHead kOllamaHead{.model = "m:latest"};
const Usage kOllamaUsage{.prompt_tokens = 3,
                         .completion_tokens = 4,
                         .spent = {.total = nanoseconds(10),
                                   .load = nanoseconds(1),
                                   .prompt = nanoseconds(2),
                                   .answer = nanoseconds(7)}};

std::unique_ptr<AnswerWriter> writer_of(OllamaForm form) {
  return ollama_writer(kOllamaHead, form, [] { return std::int64_t{5'000'000'000}; });
}

std::vector<json> lines_of(const std::string& stream) {
  std::vector<json> all;
  for (std::size_t at = 0; at < stream.size();) {
    const std::size_t end = stream.find('\n', at);
    all.push_back(json::parse(stream.substr(at, end - at)));
    at = end + 1;
  }
  return all;
}

TEST(OllamaWriter, AWholeChat) {
  const json answer = json::parse(
      writer_of(OllamaForm::kChat)
          ->whole({{.reasoning = "hm",
                    .text = "yes",
                    .calls = {{.index = 0, .id = "call_1", .name = "f", .arguments = R"({"a":1})"}},
                    .finish = FinishReason::kStop,
                    .called = true}},
                  kOllamaUsage));
  EXPECT_EQ(answer, json::parse(R"({"model":"m:latest","created_at":"1970-01-01T00:00:05Z",
      "message":{"role":"assistant","content":"yes","thinking":"hm","tool_calls":[
        {"id":"call_1","function":{"index":0,"name":"f","arguments":{"a":1}}}]},
      "done":true,"done_reason":"stop","total_duration":10,"load_duration":1,
      "prompt_eval_count":3,"prompt_eval_duration":2,"eval_count":4,"eval_duration":7})"));
}

TEST(OllamaWriter, ACallThatWasCutOffHasNoArguments) {
  const json answer = json::parse(
      writer_of(OllamaForm::kChat)
          ->whole({{.calls = {{.id = "call_1", .name = "f", .arguments = R"({"a)", .whole = false}},
                    .finish = FinishReason::kLength}},
                  kOllamaUsage));
  EXPECT_EQ(answer["message"]["tool_calls"][0]["function"]["arguments"], json::object());
}

TEST(OllamaWriter, AStreamIsOfLines) {
  const auto writer = writer_of(OllamaForm::kGenerate);
  EXPECT_EQ(writer->content_type(), "application/x-ndjson");
  std::string stream = writer->begin() + writer->waiting("loading");
  stream += writer->news({.reasoning = "hm"}) + writer->news({.text = "ye"});
  stream += writer->news({.text = "s", .finish = FinishReason::kLength}) + writer->news({});
  stream += writer->end(kOllamaUsage);
  const std::vector<json> lines = lines_of(stream);
  ASSERT_EQ(lines.size(), 5U);
  EXPECT_EQ(lines[0]["response"], "");
  EXPECT_EQ(lines[1]["thinking"], "hm");
  EXPECT_EQ(lines[2], json::parse(R"({"model":"m:latest","created_at":"1970-01-01T00:00:05Z",
                                      "response":"ye","done":false})"));
  EXPECT_EQ(lines[3]["response"], "s");
  EXPECT_EQ(lines[3]["done"], false);
  EXPECT_EQ(lines[4]["done"], true);
  EXPECT_EQ(lines[4]["done_reason"], "length");
  EXPECT_EQ(lines[4]["eval_count"], 4);
}

TEST(OllamaWriter, TellsLogProbabilities) {
  const std::vector<TokenLogprobs> logprobs{
      {.token = {.bytes = "y", .logprob = -0.5F}, .top = {{.bytes = "n", .logprob = -1}}}};
  const json answer = json::parse(
      writer_of(OllamaForm::kChat)
          ->whole({{.text = "y", .finish = FinishReason::kStop, .logprobs = logprobs}}, {}));
  EXPECT_EQ(answer["logprobs"][0]["token"], "y");
  EXPECT_EQ(answer["logprobs"][0]["logprob"], -0.5);
  EXPECT_EQ(answer["logprobs"][0]["top_logprobs"][0]["token"], "n");
}

TEST(OllamaWriter, FailsInALine) {
  EXPECT_EQ(writer_of(OllamaForm::kChat)->fail({.message = "gone"}), "{\"error\":\"gone\"}\n");
}

TEST(OllamaWriter, SaysThatAModelIsLoaded) {
  EXPECT_EQ(json::parse(ollama_loaded_json("m", OllamaForm::kGenerate, 0, "load")),
            json::parse(R"({"model":"m","created_at":"1970-01-01T00:00:00Z","response":"",
                            "done":true,"done_reason":"load"})"));
  EXPECT_EQ(json::parse(ollama_loaded_json("m", OllamaForm::kChat, 0, "unload"))["message"],
            json::parse(R"({"role":"assistant","content":""})"));
}

}  // namespace
}  // namespace heddle::api
