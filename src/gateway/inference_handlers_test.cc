#include <gmock/gmock.h>

#include "gateway/test_gateway.h"

namespace heddle::gateway {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

std::string prompt_text(const core::RequestRecord& record) {
  std::string text;
  for (const TokenId token : record.prompt) {
    text += token == FakeServing::kEos ? "<eos>" : std::string(1, static_cast<char>(token));
  }
  return text;
}

class InferenceTest : public GatewayTest {
 protected:
  json error(const std::string& path, const std::string& body, int status) {
    const TestResponse response = call("POST", path, body);
    EXPECT_EQ(response.status, status) << body << "\n" << response.body;
    return json::parse(response.body)["error"];
  }
};

TEST_F(InferenceTest, TheTemplateMakesThePromptAndTheAliasFindsTheModel) {
  serving.reply = "x";
  start();
  const TestResponse response =
      call("POST",
           "/v1/chat/completions",
           R"({"model":"alias","messages":[{"role":"system","content":"S"},{"role":"user",
               "content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}],
               "chat_template_kwargs":{"mood":"glad"},"temperature":0,"seed":9,"priority":2})");
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(json::parse(response.body)["model"], "alias");
  const core::RequestRecord& record = *serving.started.at(0);
  EXPECT_EQ(prompt_text(record), "system: S\nuser: a\nb\nglad");
  EXPECT_EQ(record.model, ModelId(1));
  EXPECT_EQ(record.choices.at(0).temperature, 0);
  EXPECT_EQ(record.choices.at(0).seed, 9U);
  EXPECT_THAT(record.choices.at(0).stop_tokens, ElementsAre(FakeServing::kEos));
  EXPECT_EQ(record.priority, 2);
  EXPECT_TRUE(record.deadline.has_value());
}

// A prompt counts once: of two answers, as cached is what neither had to compute.
TEST_F(InferenceTest, UsageSaysHowMuchOfThePromptWasCached) {
  serving.reply = "x";
  serving.cached_tokens = 5;
  start();
  const json chat = ask("POST", "/v1/chat/completions", chat_body(R"("n":2)"));
  EXPECT_EQ(chat["usage"]["prompt_tokens_details"]["cached_tokens"], 5);
  const json plain = ask("POST", "/v1/completions", R"({"model":"tiny","prompt":["aaaaaa","bb"]})");
  EXPECT_EQ(plain["usage"]["prompt_tokens_details"]["cached_tokens"], 10) << "of two prompts";
  const json response = ask("POST", "/v1/responses", R"({"model":"tiny","input":"hi"})");
  EXPECT_EQ(response["usage"]["input_tokens_details"]["cached_tokens"], 5);
  const json traces = ask("GET", "/api/requests");
  EXPECT_EQ(traces["requests"][0]["parts"][0]["cached_tokens"], 5) << traces;
}

TEST_F(InferenceTest, ARequestMayHaveASaltOfItsOwn) {
  serving.reply = "x";
  start();
  (void)call("POST", "/v1/chat/completions", chat_body());
  (void)call("POST", "/v1/chat/completions", chat_body(R"("cache_salt":"mine")"));
  EXPECT_EQ(serving.started.at(0)->cache_salt, "");
  EXPECT_EQ(serving.started.at(1)->cache_salt, "/mine");
  EXPECT_EQ(error("/v1/chat/completions", chat_body(R"("cache_salt":"")"), 400)["param"],
            "cache_salt");
}

TEST_F(InferenceTest, EveryRequestWithoutASeedGetsItsOwn) {
  serving.reply = "x";
  start();
  (void)call("POST", "/v1/chat/completions", chat_body());
  (void)call("POST", "/v1/chat/completions", chat_body());
  EXPECT_NE(serving.started.at(0)->choices[0].seed, serving.started.at(1)->choices[0].seed);
}

TEST_F(InferenceTest, CompletionsOfTextsAndTokens) {
  serving.reply = "!!";
  start();
  const json one = ask("POST", "/v1/completions", R"({"model":"tiny","prompt":"ab","echo":true})");
  EXPECT_EQ(one["object"], "text_completion");
  EXPECT_EQ(one["choices"][0]["text"], "ab!!");
  EXPECT_EQ(serving.started.at(0)->choices[0].max_tokens, 16);
  const json many = ask("POST",
                        "/v1/completions",
                        R"({"model":"tiny","prompt":[[104,105],[106]],"n":2,"echo":true})");
  ASSERT_EQ(many["choices"].size(), 4U);
  EXPECT_EQ(many["choices"][1]["text"], "hi!!");
  EXPECT_EQ(many["choices"][2]["text"], "j!!");
  EXPECT_EQ(many["choices"][3]["index"], 3);
  EXPECT_EQ(many["usage"]["prompt_tokens"], 3);
  EXPECT_EQ(many["usage"]["completion_tokens"], 12);
}

TEST_F(InferenceTest, LogprobsOfAChat) {
  serving.reply = "h\xc3\xa9";
  start();
  const std::string fields = R"("logprobs":true,"top_logprobs":2)";
  const json whole = ask("POST", "/v1/chat/completions", chat_body(fields));
  const json& content = whole["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 3U);
  EXPECT_EQ(content[0]["token"], "h");
  EXPECT_EQ(content[0]["logprob"], -0.5);
  EXPECT_EQ(content[0]["bytes"], json::array({104}));
  EXPECT_EQ(content[1]["bytes"], json::array({0xc3}));
  ASSERT_EQ(content[2]["top_logprobs"].size(), 2U);
  EXPECT_EQ(content[2]["top_logprobs"][1]["token"], "b");

  json streamed = json::array();
  std::string text;
  const TestResponse stream =
      call("POST", "/v1/chat/completions", chat_body(fields + R"(,"stream":true)"));
  for (const std::string& event : events_of(stream.body)) {
    if (event != "[DONE]") {
      const json chunk = json::parse(event)["choices"][0];
      text += chunk["delta"].value("content", "");
      if (!chunk["logprobs"].is_null()) {
        for (const json& one : chunk["logprobs"]["content"]) {
          streamed.push_back(one);
        }
      }
    }
  }
  EXPECT_EQ(text, "h\xc3\xa9");
  EXPECT_EQ(streamed, content);
  EXPECT_TRUE(ask("POST", "/v1/chat/completions", chat_body())["choices"][0]["logprobs"].is_null());
}

TEST_F(InferenceTest, LogprobsOfACompletion) {
  serving.reply = "x\xc3\xa9y";
  start();
  const json answer =
      ask("POST", "/v1/completions", R"({"model":"tiny","prompt":"ab","logprobs":1})");
  const json& logprobs = answer["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"], json::array({"x", "bytes:\\xc3", "bytes:\\xa9", "y"}));
  EXPECT_EQ(logprobs["token_logprobs"], json::array({-0.5, -0.5, -0.5, -0.5}));
  EXPECT_EQ(logprobs["top_logprobs"][0], json({{"a", -1.0}}));
  EXPECT_EQ(logprobs["text_offset"], json::array({0, 1, 2, 2}));
  EXPECT_EQ(error("/v1/chat/completions", chat_body(R"("top_logprobs":1)"), 400)["param"],
            "top_logprobs");
  EXPECT_EQ(
      error(
          "/v1/chat/completions", chat_body(R"("logprobs":true,"top_logprobs":21)"), 400)["param"],
      "top_logprobs");
}

/// As harnesses for evaluations ask: how likely is this text?
TEST_F(InferenceTest, LogprobsOfAPrompt) {
  serving.reply = "xy";
  start();
  const json answer =
      ask("POST",
          "/v1/completions",
          R"({"model":"tiny","prompt":"a\u00e9","logprobs":1,"echo":true,"max_tokens":1})");
  EXPECT_EQ(answer["choices"][0]["text"], "a\xc3\xa9x");
  const json& logprobs = answer["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"], json::array({"a", "bytes:\\xc3", "bytes:\\xa9", "x"}));
  EXPECT_EQ(logprobs["token_logprobs"], json::array({nullptr, -0.25, -0.25, -0.5}));
  EXPECT_EQ(logprobs["top_logprobs"],
            json::array({nullptr, {{"z", -0.125}}, {{"z", -0.125}}, {{"a", -1.0}}}));
  EXPECT_EQ(logprobs["text_offset"], json::array({0, 1, 2, 2}));

  const json nothing =
      ask("POST",
          "/v1/completions",
          R"({"model":"tiny","prompt":[[104],[105,106]],"logprobs":0,"echo":true,"max_tokens":0})");
  EXPECT_EQ(nothing["choices"][0]["text"], "h");
  EXPECT_EQ(nothing["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(nothing["choices"][0]["logprobs"]["token_logprobs"], json::array({nullptr}));
  EXPECT_EQ(nothing["choices"][1]["logprobs"]["token_logprobs"], json::array({nullptr, -0.25}));
  EXPECT_EQ(nothing["usage"]["completion_tokens"], 0);

  EXPECT_EQ(
      error("/v1/completions", R"({"model":"tiny","prompt":"ab","max_tokens":0})", 400)["param"],
      "max_tokens")
      << "an answer of nothing";
  EXPECT_EQ(serving.started.at(1)->choices[0].prompt_logprobs, 0);
  (void)ask("POST", "/v1/completions", R"({"model":"tiny","prompt":"ab","logprobs":1})");
  EXPECT_EQ(serving.started.back()->choices[0].prompt_logprobs, -1);
}

TEST_F(InferenceTest, LogprobsOfAPromptInAStream) {
  serving.reply = "x";
  start();
  const TestResponse stream = call(
      "POST",
      "/v1/completions",
      R"({"model":"tiny","prompt":"ab","logprobs":0,"echo":true,"max_tokens":1,"stream":true})");
  std::string text;
  json values = json::array();
  for (const std::string& event : events_of(stream.body)) {
    if (event != "[DONE]") {
      const json chunk = json::parse(event)["choices"][0];
      text += chunk["text"].get<std::string>();
      if (!chunk["logprobs"].is_null()) {
        for (const json& value : chunk["logprobs"]["token_logprobs"]) {
          values.push_back(value);
        }
      }
    }
  }
  EXPECT_EQ(text, "abx");
  EXPECT_EQ(values, json::array({nullptr, -0.25, -0.5}));
}

TEST_F(InferenceTest, LogprobsOfPromptsAreBounded) {
  start();
  const auto body = [](std::size_t tokens) {
    json prompts = json::array();
    for (int i = 0; i < 128; ++i) {
      prompts.push_back(std::string(tokens, 'a'));
    }
    return json{
        {"model", "tiny"}, {"prompt", prompts}, {"logprobs", 20}, {"echo", true}, {"max_tokens", 1}}
        .dump();
  };
  EXPECT_EQ(call("POST", "/v1/completions", body(48)).status, 200);
  const json wrong = error("/v1/completions", body(49), 400);
  EXPECT_EQ(wrong["param"], "echo");
  EXPECT_NE(wrong["message"].get<std::string>().find("want at most 131072 in one request"),
            std::string::npos);
}

const std::string kTools =
    R"("tools":[{"type":"function","function":{"name":"sum","parameters":{"type":"object"}}}])";

/// The calls of a stream, put together as clients do, and how it ended.
json streamed_calls(const std::string& stream, std::string* finish) {
  json calls = json::array();
  for (const std::string& event : events_of(stream)) {
    if (event == "[DONE]") {
      continue;
    }
    const json chunk = json::parse(event)["choices"][0];
    for (const json& one : chunk["delta"].value("tool_calls", json::array())) {
      if (one.contains("id")) {
        EXPECT_EQ(one["index"], calls.size());
        calls.push_back(one);
      } else {
        json& function = calls.at(one["index"].get<std::size_t>())["function"];
        function["arguments"] = function["arguments"].get<std::string>() +
                                one["function"]["arguments"].get<std::string>();
      }
    }
    if (finish != nullptr && !chunk["finish_reason"].is_null()) {
      *finish = chunk["finish_reason"];
    }
  }
  return calls;
}

TEST_F(InferenceTest, CallsOfToolsAreFoundInTheAnswer) {
  config.models[0].tool_parser = config::ToolParser::kHermes;
  serving.reply = "Hm.\n<tool_call>\n{\"name\": \"sum\", \"arguments\": {\"a\": 1}}\n</tool_call>";
  start();
  const json whole = ask("POST", "/v1/chat/completions", chat_body(kTools));
  EXPECT_THAT(prompt_text(*serving.started.at(0)), HasSubstr("\"name\": \"sum\""));
  const json& message = whole["choices"][0]["message"];
  EXPECT_EQ(whole["choices"][0]["finish_reason"], "tool_calls");
  EXPECT_EQ(message["content"], "Hm.");
  ASSERT_EQ(message["tool_calls"].size(), 1U);
  EXPECT_EQ(message["tool_calls"][0]["function"],
            json({{"name", "sum"}, {"arguments", "{\"a\":1}"}}));
  EXPECT_THAT(message["tool_calls"][0]["id"].get<std::string>(), testing::StartsWith("call_"));

  const TestResponse stream =
      call("POST", "/v1/chat/completions", chat_body(kTools + R"(,"stream":true)"));
  std::string finish;
  const json calls = streamed_calls(stream.body, &finish);
  ASSERT_EQ(calls.size(), 1U);
  EXPECT_EQ(calls[0]["type"], "function");
  EXPECT_EQ(calls[0]["function"], json({{"name", "sum"}, {"arguments", "{\"a\":1}"}}));
  EXPECT_EQ(finish, "tool_calls");
}

TEST_F(InferenceTest, WithoutToolsOrWithNoneAnswersAreJustText) {
  config.models[0].tool_parser = config::ToolParser::kHermes;
  serving.reply = "<tool_call>{\"name\": \"sum\"}</tool_call>";
  start();
  for (const std::string& fields : {std::string(), kTools + R"(,"tool_choice":"none")"}) {
    const json answer = ask("POST", "/v1/chat/completions", chat_body(fields));
    EXPECT_EQ(answer["choices"][0]["message"]["content"], *serving.reply);
    EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
    EXPECT_THAT(prompt_text(*serving.started.back()), testing::Not(HasSubstr("sum")));
  }
}

TEST_F(InferenceTest, ForcedCallsAreAGrammar) {
  serving.reply = "x";
  config.models[0].tool_parser = config::ToolParser::kLlama3Json;
  start();
  const std::string forced = kTools + R"(,"tool_choice":"required")";
  (void)ask("POST", "/v1/chat/completions", chat_body(forced));
  const spec::Grammar& grammar = serving.started.at(0)->choices.at(0).grammar;
  EXPECT_EQ(grammar.kind, spec::GrammarKind::kLark);
  EXPECT_THAT(grammar.text, HasSubstr("sum"));
  std::string unknown = forced;
  unknown.insert(unknown.find("\"object\"") + 8, R"(,"contains":{})");
  const json refused = error("/v1/chat/completions", chat_body(unknown), 400);
  EXPECT_EQ(refused["param"], "tools[0].function.parameters");
  EXPECT_THAT(refused["message"].get<std::string>(), testing::Not(HasSubstr("call0")));
}

TEST_F(InferenceTest, ACallThatIsCutOffIsACallInPart) {
  const std::string begun = R"(<tool_call>{"name": "sum", "arguments": {"a)";
  serving.reply = begun + R"(": 1}}</tool_call>)";
  config.models[0].tool_parser = config::ToolParser::kHermes;
  start();
  const json choice =
      ask("POST",
          "/v1/chat/completions",
          chat_body(kTools + ",\"max_tokens\":" + std::to_string(begun.size())))["choices"][0];
  EXPECT_TRUE(choice["message"]["content"].is_null());
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["arguments"], "{\"a");
  EXPECT_EQ(choice["finish_reason"], "length");
}

TEST_F(InferenceTest, ToolsOfAModelWithoutAKnownWayToCallAreWarnedOf) {
  start();
  const json answer = ask("POST", "/v1/chat/completions", chat_body(kTools));
  ASSERT_EQ(answer["warnings"].size(), 1U);
  EXPECT_THAT(answer["warnings"][0].get<std::string>(), HasSubstr("tool_parser"));
}

TEST_F(InferenceTest, AModelWithoutAWayToCallIsHeldToTheGenericOne) {
  serving.reply = R"([{"name": "sum", "arguments": {"a": 1}}, {"name": "sum", "arguments": {}}])";
  start();
  const std::string forced = kTools + R"(,"tool_choice":"required")";
  const json answer = ask("POST", "/v1/chat/completions", chat_body(forced));
  const json& choice = answer["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_TRUE(choice["message"]["content"].is_null());
  ASSERT_EQ(choice["message"]["tool_calls"].size(), 2U);
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["name"], "sum");
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["arguments"], R"({"a":1})");
  EXPECT_THAT(prompt_text(*serving.started.at(0)), testing::Not(HasSubstr("Answer with")))
      << "the template tells of the tools";
  EXPECT_THAT(serving.started.at(0)->choices.at(0).grammar.text, HasSubstr("(\", \" call)*"));
  (void)ask("POST", "/v1/chat/completions", chat_body(forced + R"(,"parallel_tool_calls":false)"));
  EXPECT_THAT(serving.started.at(1)->choices.at(0).grammar.text,
              testing::Not(HasSubstr("(\", \" call)*")));
  const json free = ask("POST", "/v1/chat/completions", chat_body(kTools));
  EXPECT_EQ(free["choices"][0]["message"]["content"], *serving.reply)
      << "no call is looked for where it need not be there";
}

TEST_F(InferenceTest, ATemplateThatTellsOfNoToolsIsHelped) {
  model.write("tokenizer_config.json",
              R"({"eos_token": "<eos>", "chat_template":)"
              R"( "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"})");
  serving.reply = R"([{"name": "sum", "arguments": {}}])";
  start();
  const std::string forced = kTools + R"(,"tool_choice":"required")";
  const json answer = ask("POST", "/v1/chat/completions", chat_body(forced));
  EXPECT_EQ(answer["choices"][0]["message"]["tool_calls"].size(), 1U);
  EXPECT_THAT(prompt_text(*serving.started.at(0)),
              testing::AllOf(testing::StartsWith("system: Tools:\n{\"name\":\"sum\""),
                             testing::EndsWith("user: hi\n")));
  (void)ask("POST", "/v1/chat/completions", chat_body(kTools));
  EXPECT_EQ(prompt_text(*serving.started.at(1)), "user: hi\n");
  (void)ask("POST",
            "/v1/chat/completions",
            R"({"model":"tiny","messages":[{"role":"assistant","content":null,"tool_calls":[)"
            R"({"id":"1","type":"function","function":{"name":"sum","arguments":"{\"a\":1}"}}]},)"
            R"({"role":"tool","tool_call_id":"1","content":"3"}]})");
  EXPECT_EQ(prompt_text(*serving.started.at(2)),
            "assistant: [{\"name\":\"sum\",\"arguments\":{\"a\":1}}]\n"
            "user: Result of sum: 3\n");
}

TEST_F(InferenceTest, GenericCallsAreStreamed) {
  serving.reply = R"([{"name": "sum", "arguments": {}}, {"name": "sum", "arguments": {}}])";
  start();
  const std::string fields = kTools + R"(,"tool_choice":"required","stream":true)";
  const std::string stream = call("POST", "/v1/chat/completions", chat_body(fields)).body;
  std::string text;
  for (const std::string& event : events_of(stream)) {
    if (event != "[DONE]") {
      text += json::parse(event)["choices"][0]["delta"].value("content", "");
    }
  }
  const json calls = streamed_calls(stream, nullptr);
  ASSERT_EQ(calls.size(), 2U);
  EXPECT_EQ(calls[1]["function"], json({{"name", "sum"}, {"arguments", "{}"}}));
  EXPECT_EQ(text, "");
}

TEST_F(InferenceTest, ToolsBesideAFormatMeanEither) {
  serving.reply = R"({"a": 1})";
  config.models[0].tool_parser = config::ToolParser::kHermes;
  start();
  const std::string format =
      kTools + R"(,"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":)"
               R"({"type":"object","properties":{"a":{"type":"integer"}}}}})";
  const json answer = ask("POST", "/v1/chat/completions", chat_body(format));
  EXPECT_EQ(answer["choices"][0]["message"]["content"], *serving.reply);
  const spec::Grammar& grammar = serving.started.at(0)->choices.at(0).grammar;
  EXPECT_EQ(grammar.kind, spec::GrammarKind::kLark);
  EXPECT_THAT(grammar.text, HasSubstr("sum"));
  EXPECT_THAT(grammar.text, HasSubstr("calls | answer"));
  (void)ask("POST", "/v1/chat/completions", chat_body(format + R"(,"tool_choice":"required")"));
  EXPECT_THAT(serving.started.at(1)->choices.at(0).grammar.text,
              testing::Not(HasSubstr("| answer")));
  (void)ask("POST", "/v1/chat/completions", chat_body(kTools + R"(,"guided_regex":"a+")"));
  EXPECT_EQ(serving.started.at(2)->choices.at(0).grammar.kind, spec::GrammarKind::kRegex);
}

TEST_F(InferenceTest, ThinkingIsToldApartFromTheAnswer) {
  config.models[0].reasoning_parser = config::ReasoningParser::kThink;
  serving.reply = "<think>\nhm\n</think>\n\nyes";
  start();
  const json message = ask("POST", "/v1/chat/completions", chat_body())["choices"][0]["message"];
  EXPECT_EQ(message["reasoning_content"], "hm");
  EXPECT_EQ(message["content"], "yes");
  serving.reply = "hm</think>yes";
  const json within =
      ask("POST",
          "/v1/chat/completions",
          chat_body(R"("chat_template_kwargs":{"mood":"<think>\n"})"))["choices"][0]["message"];
  EXPECT_EQ(within["reasoning_content"], "hm") << "the template opened the thought";
  EXPECT_EQ(within["content"], "yes");
}

TEST_F(InferenceTest, AnAnswerThatIsHeldToAFormMayBeThoughtAboutFirst) {
  config.models[0].reasoning_parser = config::ReasoningParser::kThink;
  serving.reply = "hm</think>yes";
  start();
  const auto held = [this](const std::string& prompt_end) -> json {
    return ask("POST",
               "/v1/chat/completions",
               chat_body(R"("guided_choice":["yes"],"chat_template_kwargs":{"mood":")" +
                         prompt_end + "\"}"))["choices"][0]["message"];
  };
  const json within = held("<think>\\n");
  EXPECT_EQ(within["reasoning_content"], "hm");
  EXPECT_EQ(within["content"], "yes");
  const json after = held("<think>\\n\\n</think>\\n\\n");
  EXPECT_FALSE(after.contains("reasoning_content")) << "the template has closed the thought";
  EXPECT_EQ(after["content"], *serving.reply);
  (void)held("");
  const auto thought = [this](std::size_t request) {
    return serving.started.at(request)->choices.at(0).grammar.thought;
  };
  EXPECT_EQ(thought(0), spec::Thought::kBegun);
  EXPECT_EQ(thought(1), spec::Thought::kNone);
  EXPECT_EQ(thought(2), spec::Thought::kMay);
}

TEST_F(InferenceTest, AModelThatDoesNotMarkItsThoughtsIsHeldFromTheFirstTokenOn) {
  serving.reply = "yes";
  start();
  (void)ask("POST", "/v1/chat/completions", chat_body(R"("guided_choice":["yes"])"));
  EXPECT_EQ(serving.started.at(0)->choices.at(0).grammar.thought, spec::Thought::kNone);
}

TEST_F(InferenceTest, AGrammarThatCannotBeIsTheClientsMistake) {
  serving.reply = "x";
  start();
  const json wrong = error("/v1/chat/completions", chat_body(R"("guided_regex":"a(")"), 400);
  EXPECT_EQ(wrong["param"], "response_format");
  (void)ask("POST", "/v1/completions", R"({"model":"tiny","prompt":"a","guided_regex":"a+"})");
  EXPECT_EQ(serving.started.at(0)->choices.at(0).grammar,
            (spec::Grammar{spec::GrammarKind::kRegex, "a+"}));
}

TEST_F(InferenceTest, TokensAndBack) {
  start();
  const json tokens =
      ask("POST", "/tokenize", R"({"model":"tiny","prompt":"hi","return_token_strs":true})");
  EXPECT_EQ(tokens["tokens"], json::array({104, 105}));
  EXPECT_EQ(tokens["count"], 2);
  EXPECT_EQ(tokens["max_model_len"], 200000);
  EXPECT_EQ(tokens["token_strs"], json::array({"h", "i"}));
  EXPECT_EQ(ask("POST",
                "/tokenize",
                R"({"model":"tiny","messages":[{"role":"u","content":"x"}]})")["count"],
            5);
  EXPECT_EQ(ask("POST", "/detokenize", R"({"model":"tiny","tokens":[104,105]})")["prompt"], "hi");
  EXPECT_EQ(error("/detokenize", R"({"model":"tiny","tokens":[99999]})", 400)["param"], "tokens");
  EXPECT_TRUE(serving.started.empty()) << "which wakes nothing";
}

TEST_F(InferenceTest, WhatIsWrongIsToldByField) {
  start();
  const std::string path = "/v1/chat/completions";
  EXPECT_EQ(error(path, "{", 400)["type"], "invalid_request_error");
  EXPECT_THAT(error(path, "{\"model\":\"\xff\xfe\"}", 400)["message"].get<std::string>(),
              HasSubstr("UTF-8"));
  EXPECT_EQ(error(path, chat_body(R"("max_tokens":-5)"), 400)["param"], "max_tokens");
  EXPECT_EQ(error(path, chat_body(R"("logit_bias":{"99999999":1})"), 400)["param"], "logit_bias");
  EXPECT_EQ(error(path, chat_body(R"("tools":[{"type":"function"}])"), 400)["param"], "tools[0]");
  const json unknown =
      error(path, R"({"model":"nobody","messages":[{"role":"user","content":"x"}]})", 404);
  EXPECT_EQ(unknown["code"], "model_not_found");
  EXPECT_THAT(unknown["message"].get<std::string>(), HasSubstr("tiny, org/name:8b"));
  EXPECT_THAT(
      error(path, R"({"model":"tiny","messages":[{"role":"bad","content":"x"}]})", 400)["message"]
          .get<std::string>(),
      HasSubstr("no such role"));
  EXPECT_EQ(error("/v1/completions", R"({"model":"tiny","prompt":""})", 400)["param"], "prompt");
  EXPECT_TRUE(serving.started.empty());
}

TEST_F(InferenceTest, AnAnswerMayGoOnWithTheLastMessage) {
  start();
  const std::string body =
      R"({"model":"tiny","add_generation_prompt":false,"continue_final_message":true,"messages":)"
      R"([{"role":"user","content":"one"},{"role":"assistant","content":"one, t"}]})";
  EXPECT_EQ(call("POST", "/v1/chat/completions", body).status, 200);
  std::string prompt;
  for (const TokenId token : serving.started.at(0)->prompt) {
    prompt += static_cast<char>(token);
  }
  EXPECT_EQ(prompt, "user: one\nassistant: one, t") << "without what the template has behind it";
}

TEST_F(InferenceTest, TyposAreTold) {
  start();
  const TestResponse whole = call("POST", "/v1/chat/completions", chat_body(R"("temprature":1)"));
  const json warnings = json::parse(whole.body)["warnings"];
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(warnings[0].get<std::string>(), HasSubstr("did you mean \"temperature\"?"));
  EXPECT_EQ(whole.headers.at("x-heddle-warnings"), warnings[0].get<std::string>());
  const TestResponse stream =
      call("POST", "/v1/chat/completions", chat_body(R"("temprature":1,"stream":true)"));
  EXPECT_EQ(stream.headers.at("x-heddle-warnings"), warnings[0].get<std::string>());
  const TestResponse silent = call("POST", "/v1/chat/completions", chat_body());
  EXPECT_FALSE(silent.headers.contains("x-heddle-warnings"));
  EXPECT_FALSE(json::parse(silent.body).contains("warnings"));
}

TEST_F(InferenceTest, APromptBeyondTheContextIsToldTheNumbers) {
  config.models[0].context = 16;
  start();
  const json wrong = error("/v1/chat/completions", chat_body("", "seventeen tokens and more"), 400);
  EXPECT_EQ(wrong["code"], "context_length_exceeded");
  EXPECT_THAT(wrong["message"].get<std::string>(), HasSubstr("16 tokens"));
}

TEST_F(InferenceTest, ABrokenModelFailsItsOwnRequestsUntilItIsMended) {
  serving.reply = "x";
  model.write("config.json", R"({"architectures":["MambaForCausalLM"]})");
  start();
  const TestResponse broken = call("POST", "/v1/chat/completions", chat_body());
  EXPECT_EQ(broken.status, 500);
  EXPECT_THAT(broken.body, HasSubstr("MambaForCausalLM"));
  EXPECT_EQ(call("GET", "/health").status, 200);
}

TEST_F(InferenceTest, OverItsLimitAModelTakesNoMore) {
  serving.reply.reset();
  config.models[0].concurrency_limit = 2;
  start();
  TestClient first(port);
  TestClient second(port);
  first.send(TestClient::request("POST", "/v1/chat/completions", chat_body()));
  second.send(TestClient::request("POST", "/v1/chat/completions", chat_body()));
  ASSERT_TRUE(serving.wait([&] { return serving.started.size() == 2; }));
  const TestResponse third = call("POST", "/v1/chat/completions", chat_body());
  EXPECT_EQ(third.status, 429);
  EXPECT_EQ(third.headers.at("retry-after"), "1");
  EXPECT_EQ(nlohmann::json::parse(third.body)["error"]["code"], "concurrency_limit");
  first.hang_up();
  ASSERT_TRUE(serving.wait([&] { return serving.cancelled.size() == 1; }));
  TestClient fourth(port);
  fourth.send(TestClient::request("POST", "/v1/chat/completions", chat_body()));
  EXPECT_TRUE(serving.wait([&] { return serving.started.size() == 3; })) << "the place is free";
}

}  // namespace
}  // namespace heddle::gateway
