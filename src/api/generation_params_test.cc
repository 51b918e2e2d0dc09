#include "api/generation_params.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/messages.h"

namespace heddle::api {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

TEST(GenerationParams, ReadsEveryField) {
  BodyReader body(R"({"temperature":5,"top_p":0.9,"top_k":-1,"min_p":0.1,"presence_penalty":-2,
      "frequency_penalty":2,"repetition_penalty":1.1,"logit_bias":{"7":-100,"3":1.5},"seed":-1,
      "max_tokens":5,"max_completion_tokens":6,"stop":["a","b"],"stop_token_ids":[1,2],
      "ignore_eos":true,"n":16,"priority":-3,"stream":true,
      "stream_options":{"include_usage":true},"user":"u"})");
  const GenerationParams params = read_generation_params(body);
  ASSERT_TRUE(body.ok()) << body.error().message;
  EXPECT_EQ(params.numbers[&spec::SamplingParams::temperature], 5);
  EXPECT_EQ(params.numbers[&spec::SamplingParams::top_p], 0.9);
  EXPECT_EQ(params.top_k, 0);
  EXPECT_EQ(params.numbers[&spec::SamplingParams::min_p], 0.1);
  EXPECT_EQ(params.numbers[&spec::SamplingParams::presence_penalty], -2);
  EXPECT_EQ(params.numbers[&spec::SamplingParams::repetition_penalty], 1.1);
  EXPECT_THAT(params.logit_bias, ElementsAre(Pair(3, 1.5F), Pair(7, -100.0F)));
  EXPECT_EQ(params.seed, UINT64_MAX);
  EXPECT_EQ(params.max_tokens, 6) << "the newer name wins";
  EXPECT_THAT(params.stop, ElementsAre("a", "b"));
  EXPECT_THAT(params.stop_token_ids, ElementsAre(1, 2));
  EXPECT_TRUE(params.ignore_eos);
  EXPECT_EQ(params.choices, 16U);
  EXPECT_EQ(params.priority, -3);
  EXPECT_TRUE(params.stream);
  EXPECT_TRUE(params.include_usage);
  EXPECT_FALSE(params.continuous_usage);
}

TEST(GenerationParams, UsageInEveryChunkIsBesideThatOfTheEnd) {
  BodyReader both(
      R"({"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}})");
  EXPECT_TRUE(read_generation_params(both).continuous_usage);
  BodyReader alone(R"({"stream":true,"stream_options":{"continuous_usage_stats":true}})");
  EXPECT_FALSE(read_generation_params(alone).continuous_usage);
  EXPECT_TRUE(alone.ok());
}

TEST(GenerationParams, AbsentMeansTheModelsDefault) {
  BodyReader body(R"({"temperature":null})");
  const GenerationParams params = read_generation_params(body);
  EXPECT_TRUE(body.ok());
  EXPECT_FALSE(params.numbers[&spec::SamplingParams::temperature]);
  EXPECT_FALSE(params.max_tokens);
  EXPECT_EQ(params.choices, 1U);
}

TEST(GenerationParams, AStringStopIsAListOfOne) {
  BodyReader body(R"({"stop":"\n"})");
  EXPECT_THAT(read_generation_params(body).stop, ElementsAre("\n"));
}

TEST(GenerationParams, AnEmptyNucleusIsGreedy) {
  BodyReader body(R"({"top_p":0,"top_k":50})");
  const GenerationParams params = read_generation_params(body);
  EXPECT_EQ(params.top_k, 1);
  EXPECT_FALSE(params.numbers[&spec::SamplingParams::top_p]);
}

TEST(GenerationParams, EachFieldIsCheckedAndNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"temperature":-1})", "temperature"},
      {R"({"temperature":"warm"})", "temperature"},
      {R"({"top_p":3})", "top_p"},
      {R"({"top_k":-7})", "top_k"},
      {R"({"min_p":-0.1})", "min_p"},
      {R"({"presence_penalty":2.5})", "presence_penalty"},
      {R"({"repetition_penalty":0})", "repetition_penalty"},
      {R"({"max_tokens":-5})", "max_tokens"},
      {R"({"max_tokens":1e30})", "max_tokens"},
      {R"({"max_tokens":0})", "max_tokens"},
      {R"({"n":0})", "n"},
      {R"({"n":100000})", "n"},
      {R"({"stop":5})", "stop"},
      {R"({"stop":[""]})", "stop"},
      {R"({"stop":["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"]})",
       "stop"},
      {R"({"logit_bias":[1]})", "logit_bias"},
      {R"({"logit_bias":{"x":1}})", "logit_bias"},
      {R"({"logit_bias":{"-1":1}})", "logit_bias"},
      {R"({"logit_bias":{"1":101}})", "logit_bias"},
      {R"({"logit_bias":{"1":1,"01":1}})", "logit_bias"},
      {R"({"stop_token_ids":[-1]})", "stop_token_ids"},
      {R"({"seed":"x"})", "seed"},
      {R"({"stream":"yes"})", "stream"},
      {R"({"stream_options":{"include_usage":true}})", "stream_options"},
      {R"({"stream":true,"stream_options":7})", "stream_options"},
      {R"({"stream":true,"stream_options":{"continuous_usage_stats":1}})",
       "stream_options.continuous_usage_stats"},
      {R"({"user":5})", "user"},
  };
  for (const auto& [text, param] : cases) {
    BodyReader body(text);
    (void)read_generation_params(body);
    ASSERT_FALSE(body.ok()) << text;
    EXPECT_EQ(body.error().param, param) << text;
    EXPECT_THAT(body.error().message, HasSubstr(param)) << text;
  }
}

TEST(Messages, AreKeptInOrderWithTextPartsJoined) {
  BodyReader body(R"({"messages":[
      {"role":"developer","content":"Be short."},
      {"content":[{"type":"text","text":"a\n"},{"type":"text","text":"b"}],"role":"user"},
      {"role":"assistant","tool_calls":[{"id":"x"}]},
      {"role":"tool","content":"\u00e9","tool_call_id":"x"}]})");
  EXPECT_EQ(read_messages(body).json,
            R"([{"role":"system","content":"Be short."},)"
            R"({"content":"a\n\nb","role":"user"},)"
            R"({"role":"assistant","tool_calls":[{"id":"x"}]},)"
            "{\"role\":\"tool\",\"content\":\"\xc3\xa9\",\"tool_call_id\":\"x\"}]");
  EXPECT_TRUE(body.ok()) << body.error().message;
}

TEST(Messages, WhatIsWrongIsNamedWithItsPlace) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({})", "messages: is missing"},
      {R"({"messages":"hi"})", "messages: is \"hi\"; want a list"},
      {R"({"messages":[]})", "messages: is a list of 0"},
      {R"({"messages":[1]})", "messages[0]: is 1; want an object"},
      {R"({"messages":[{"content":"hi"}]})", "messages[0].role: is missing"},
      {R"({"messages":[{"role":"user"}]})", "messages[0].content: is missing"},
      {R"({"messages":[{"role":"user","content":7}]})", "messages[0].content: is 7"},
      {R"({"messages":[{"role":"user","content":[{"type":"image_url"}]}]})",
       "messages[0].content[0]: type is \"image_url\""},
      {R"({"messages":[{"role":"user","content":[{"type":"text"}]}]})",
       "messages[0].content[0].text: is missing"},
      {R"({"messages":[{"role":"user","content":["x"]}]})", "messages[0].content[0]: is \"x\""},
  };
  for (const auto& [text, message] : cases) {
    BodyReader body(text);
    (void)read_messages(body);
    ASSERT_FALSE(body.ok()) << text;
    EXPECT_THAT(body.error().message, HasSubstr(message)) << text;
    EXPECT_EQ(body.error().param, "messages");
  }
}

TEST(KeepAlive, IsSecondsOrATime) {
  using namespace std::chrono_literals;
  const auto read = [](const std::string& value) {
    BodyReader body(R"({"keep_alive":)" + value + "}");
    const std::optional<Duration> time = read_keep_alive(body);
    EXPECT_TRUE(body.ok()) << value;
    return time;
  };
  EXPECT_EQ(read("null"), std::nullopt);
  EXPECT_EQ(read("0"), 0s);
  EXPECT_EQ(read("3600"), 1h);
  EXPECT_EQ(read("1.5"), 1500ms);
  EXPECT_EQ(read("\"10m\""), 10min);
  EXPECT_EQ(read("-1"), Duration::max());
  EXPECT_EQ(read("\"-1m\""), Duration::max());
  for (const std::string value : {"\"soon\"", "true", "1e300", "\"\""}) {
    BodyReader body(R"({"keep_alive":)" + value + "}");
    (void)read_keep_alive(body);
    EXPECT_FALSE(body.ok()) << value;
  }
}

TEST(TemplateVariables, AreOneObject) {
  BodyReader none("{}");
  EXPECT_EQ(read_template_variables(none), "{}");
  BodyReader both(R"({"chat_template_kwargs":{"a":[1]},"reasoning_effort":"low"})");
  EXPECT_EQ(read_template_variables(both), R"({"a":[1],"reasoning_effort":"low"})");
  BodyReader effort(R"({"reasoning_effort":"low"})");
  EXPECT_EQ(read_template_variables(effort), R"({"reasoning_effort":"low"})");
  BodyReader nested(R"({"reasoning":{"effort":"high"}})");
  EXPECT_EQ(read_template_variables(nested), R"({"reasoning_effort":"high"})");
  BodyReader wrong(R"({"chat_template_kwargs":[1]})");
  (void)read_template_variables(wrong);
  EXPECT_FALSE(wrong.ok());
}

}  // namespace
}  // namespace heddle::api
