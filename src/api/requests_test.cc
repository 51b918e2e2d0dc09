#include "api/requests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::api {
namespace {

using testing::ElementsAre;

template <class T>
const T& value(const Parsed<T>& parsed) {
  const auto* error = std::get_if<ApiError>(&parsed);
  EXPECT_EQ(error, nullptr) << (error == nullptr ? "" : error->message);
  return std::get<T>(parsed);
}

template <class T>
ApiError error(const Parsed<T>& parsed) {
  const auto* found = std::get_if<ApiError>(&parsed);
  EXPECT_NE(found, nullptr);
  return found == nullptr ? ApiError{} : *found;
}

const std::string kMessages = R"("messages":[{"role":"user","content":"hi"}])";

TEST(ChatRequest, UnknownFieldsAreIgnoredAndNeutralOnesPass) {
  const auto parsed = parse_chat_request(
      R"({"model":"m","x-y":{"z":1},"tools":[],"tool_choice":"none","logprobs":false,
          "top_logprobs":0,"response_format":{"type":"text"},"modalities":["text"],"store":true,
          "metadata":{"a":"b"},)" +
      kMessages + "}");
  EXPECT_EQ(value(parsed).model, "m");
  EXPECT_EQ(value(parsed).messages.json, R"([{"role":"user","content":"hi"}])");
  EXPECT_EQ(value(parsed).template_variables, "{}");
  EXPECT_TRUE(value(parsed).add_generation_prompt);
}

TEST(ChatRequest, KnownButUnsupportedFieldsAreRefusedByName) {
  for (const char* field : {R"("functions":[{"name":"f"}])",
                            R"("audio":{"voice":"x"})",
                            R"("modalities":["text","audio"])",
                            R"("prediction":{"type":"content"})",
                            R"("chat_template":"x")",
                            R"("typical_p":0.5)",
                            R"("mirostat":2)"}) {
    const ApiError refused =
        error(parse_chat_request(R"({"model":"m",)" + std::string(field) + "," + kMessages + "}"));
    EXPECT_EQ(refused.status, 400) << field;
    EXPECT_EQ(refused.code, "not_supported") << field;
    EXPECT_TRUE(std::string(field).starts_with("\"" + refused.param + "\"")) << field;
  }
}

TEST(ChatRequest, LeastTokensAndBadWordsAreTaken) {
  const auto parsed = parse_chat_request(
      R"({"model":"m","min_tokens":3,"max_tokens":3,"bad_words":["x","yes"],)" + kMessages + "}");
  EXPECT_EQ(value(parsed).params.min_tokens, 3);
  EXPECT_THAT(value(parsed).params.bad_words, ElementsAre("x", "yes"));
  for (const char* field : {R"("min_tokens":4,"max_tokens":3)",
                            R"("min_tokens":-1)",
                            R"("bad_words":"x")",
                            R"("bad_words":[""])"}) {
    const ApiError refused =
        error(parse_chat_request(R"({"model":"m",)" + std::string(field) + "," + kMessages + "}"));
    EXPECT_EQ(refused.status, 400) << field;
    EXPECT_TRUE(std::string(field).starts_with("\"" + refused.param + "\"")) << field;
  }
}

TEST(ChatRequest, WhatAsksForNothingPasses) {
  const auto parsed = parse_chat_request(
      R"({"model":"m","user":"u","metadata":{"a":"b"},"service_tier":"auto","store":false,)"
      R"("bad_words":[],"min_tokens":0,"typical_p":1.0,"length_penalty":1,"suffix":null,)" +
      kMessages + "}");
  EXPECT_TRUE(value(parsed).params.warnings.empty());
}

TEST(ChatRequest, FieldsThatNobodyKnowsAreWarnedOf) {
  const auto parsed =
      parse_chat_request(R"({"model":"m","max_token":5,"zebra":1,)" + kMessages + "}");
  ASSERT_EQ(value(parsed).params.warnings.size(), 2U);
  EXPECT_EQ(value(parsed).params.warnings[0],
            "max_token: is not a field of this endpoint, and was ignored; did you mean "
            "\"max_tokens\"?");
  EXPECT_EQ(value(parsed).params.warnings[1],
            "zebra: is not a field of this endpoint, and was ignored");
}

TEST(ChatRequest, OtherServersNamesAreTaken) {
  const auto parsed = parse_chat_request(
      R"({"model":"m","repeat_penalty":1.1,"n_predict":7,"include_stop_str_in_output":true,)"
      R"("allowed_token_ids":[5,9],)" +
      kMessages + "}");
  const GenerationParams& params = value(parsed).params;
  EXPECT_EQ(params.numbers[&spec::SamplingParams::repetition_penalty], 1.1);
  EXPECT_EQ(params.max_tokens, 7);
  EXPECT_TRUE(params.include_stop);
  EXPECT_EQ(params.grammar.text, "start: <[5,9]>+\n");
  EXPECT_EQ(error(parse_chat_request(R"({"model":"m","allowed_token_ids":[1],"guided_regex":"a",)" +
                                     kMessages + "}"))
                .param,
            "allowed_token_ids");
  EXPECT_EQ(
      error(parse_chat_request(R"({"model":"m","allowed_token_ids":[],)" + kMessages + "}")).param,
      "allowed_token_ids");
}

TEST(ChatRequest, TheLastMessageMayBeGoneOnWith) {
  const std::string more = R"({"model":"m","continue_final_message":true,)";
  const std::string ended =
      R"("messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b "}])";
  const auto parsed = parse_chat_request(more + R"("add_generation_prompt":false,)" + ended + "}");
  EXPECT_EQ(value(parsed).continued, "b ");
  EXPECT_EQ(error(parse_chat_request(more + ended + "}")).param, "add_generation_prompt");
  EXPECT_EQ(error(parse_chat_request(more + kMessages + "}")).param, "continue_final_message");
}

TEST(ChatRequest, TheModelMustBeNamed) {
  EXPECT_EQ(error(parse_chat_request("{}")).param, "model");
  EXPECT_EQ(error(parse_chat_request(R"({"model":5,)" + kMessages + "}")).param, "model");
  EXPECT_EQ(error(parse_chat_request(R"({"model":"",)" + kMessages + "}")).param, "model");
}

TEST(CompletionRequest, TakesTextListsAndTokens) {
  const auto prompts = [](const std::string& prompt) {
    return value(parse_completion_request(R"({"model":"m","prompt":)" + prompt + "}")).prompts;
  };
  using Ids = std::vector<TokenId>;
  EXPECT_THAT(prompts("\"x\""), ElementsAre(Prompt("x")));
  EXPECT_THAT(prompts(R"(["x","y"])"), ElementsAre(Prompt("x"), Prompt("y")));
  EXPECT_THAT(prompts("[1,2]"), ElementsAre(Prompt(Ids{1, 2})));
  EXPECT_THAT(prompts("[[1],[2,3]]"), ElementsAre(Prompt(Ids{1}), Prompt(Ids{2, 3})));
}

TEST(CompletionRequest, WrongPromptsAndFieldsAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"model":"m"})", "prompt"},
      {R"({"model":"m","prompt":5})", "prompt"},
      {R"({"model":"m","prompt":[]})", "prompt"},
      {R"({"model":"m","prompt":[1,"x"]})", "prompt"},
      {R"({"model":"m","prompt":[1,-2]})", "prompt"},
      {R"({"model":"m","prompt":[{"a":1}]})", "prompt"},
      {R"({"model":"m","prompt":"x","logprobs":true})", "logprobs"},
      {R"({"model":"m","prompt":"x","suffix":"y"})", "suffix"},
      {R"({"model":"m","prompt":"x","best_of":2})", "best_of"},
      {R"({"model":"m","prompt":["1","2","3","4","5","6","7","8","9"],"n":16})", "n"},
  };
  for (const auto& [text, param] : cases) {
    EXPECT_EQ(error(parse_completion_request(text)).param, param) << text;
  }
}

TEST(TokenizeRequest, WantsAPromptOrMessages) {
  const auto prompt = value(parse_tokenize_request(R"({"model":"m","prompt":""})"));
  EXPECT_EQ(prompt.prompt, "");
  EXPECT_TRUE(prompt.add_special_tokens);
  const auto chat = value(parse_tokenize_request(R"({"model":"m",)" + kMessages + "}"));
  EXPECT_FALSE(chat.prompt);
  EXPECT_FALSE(chat.add_special_tokens) << "the template writes them";
  EXPECT_EQ(error(parse_tokenize_request(R"({"model":"m"})")).status, 400);
  EXPECT_EQ(error(parse_tokenize_request(R"({"model":"m","prompt":"x",)" + kMessages + "}")).status,
            400);
}

TEST(DetokenizeRequest, WantsTokens) {
  EXPECT_THAT(value(parse_detokenize_request(R"({"model":"m","tokens":[5,6]})")).tokens,
              ElementsAre(5, 6));
  EXPECT_EQ(error(parse_detokenize_request(R"({"model":"m"})")).param, "tokens");
  EXPECT_EQ(error(parse_detokenize_request(R"({"model":"m","tokens":["a"]})")).param, "tokens");
}

TEST(AdapterRequests, AreVllms) {
  const LoadAdapterRequest load = value(parse_load_adapter_request(
      R"({"lora_name":"sql","lora_path":"/a/sql","base_model_name":"llama","load_inplace":true})"));
  EXPECT_EQ(load.name, "sql");
  EXPECT_EQ(load.path, "/a/sql");
  EXPECT_EQ(load.base, "llama");
  EXPECT_TRUE(load.in_place);
  const LoadAdapterRequest less =
      value(parse_load_adapter_request(R"({"lora_name":"sql","lora_path":"sql"})"));
  EXPECT_TRUE(less.base.empty());
  EXPECT_FALSE(less.in_place);
  EXPECT_EQ(error(parse_load_adapter_request(R"({"lora_path":"sql"})")).param, "lora_name");
  EXPECT_EQ(error(parse_load_adapter_request(R"({"lora_name":"sql"})")).param, "lora_path");
  EXPECT_EQ(error(parse_load_adapter_request(R"({"lora_name":3,"lora_path":"a"})")).status, 400);
  EXPECT_EQ(value(parse_unload_adapter_request(R"({"lora_name":"sql","lora_int_id":7})")), "sql");
  EXPECT_EQ(error(parse_unload_adapter_request("{}")).param, "lora_name");
}

TEST(ModelRequest, IsAName) {
  EXPECT_EQ(value(parse_model_request(R"({"model":"a/b:c"})")), "a/b:c");
  EXPECT_EQ(error(parse_model_request("")).status, 400);
  EXPECT_EQ(value(parse_profile_request(R"({"name":"coding"})")), "coding");
  EXPECT_EQ(value(parse_profile_request(R"({"name":null})")), "");
  EXPECT_EQ(error(parse_profile_request("{}")).param, "name");
  EXPECT_EQ(error(parse_profile_request(R"({"name":3})")).param, "name");
  EXPECT_EQ(value(parse_host_request(R"({"host":"h1"})")), "h1");
  EXPECT_EQ(error(parse_host_request("{}")).param, "host");
  const ApplyRequest apply =
      value(parse_apply_request(R"({"configuration":"models:","dry_run":true})"));
  EXPECT_EQ(apply.configuration, "models:");
  EXPECT_TRUE(apply.dry_run);
  EXPECT_EQ(error(parse_apply_request(R"({"configuration":3})")).param, "configuration");
}

}  // namespace
}  // namespace heddle::api
