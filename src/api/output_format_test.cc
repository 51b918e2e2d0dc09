#include "api/output_format.h"

#include <gtest/gtest.h>

namespace heddle::api {
namespace {

using spec::Grammar;
using spec::GrammarKind;

Grammar read(const std::string& json) {
  BodyReader body(json);
  Grammar grammar = read_output_format(body);
  EXPECT_TRUE(body.ok()) << body.error().message;
  return grammar;
}

ApiError wrong(const std::string& json) {
  BodyReader body(json);
  (void)read_output_format(body);
  EXPECT_FALSE(body.ok()) << json;
  return body.ok() ? ApiError{} : body.error();
}

TEST(OutputFormat, NothingOrTextConstrainsNothing) {
  EXPECT_FALSE(read("{}").constrains());
  EXPECT_FALSE(read(R"({"response_format": {"type": "text"}, "guided_json": null})").constrains());
}

TEST(OutputFormat, EveryWayToAskForJson) {
  const Grammar object{GrammarKind::kJsonSchema, R"({"type":"object"})"};
  EXPECT_EQ(read(R"({"response_format": {"type": "json_object"}})"), object);
  EXPECT_EQ(read(R"({"response_format": {"type": "json_schema", "json_schema":
                     {"name": "x", "strict": true, "schema": {"type": "object"}}}})"),
            object);
  EXPECT_EQ(read(R"({"guided_json": {"type": "object"}})"), object);
  EXPECT_EQ(read(R"({"guided_json": "{\"type\":\"object\"}"})"), object);
  EXPECT_EQ(read(R"({"structured_outputs": {"json_object": true, "regex": null}})"), object);
}

TEST(OutputFormat, RegexChoiceAndGrammar) {
  EXPECT_EQ(read(R"({"guided_regex": "a+"})"), (Grammar{GrammarKind::kRegex, "a+"}));
  EXPECT_EQ(read(R"({"structured_outputs": {"grammar": "start: X"}})"),
            (Grammar{GrammarKind::kLark, "start: X"}));
  EXPECT_EQ(read(R"({"guided_choice": ["a\"b", "c\nd"]})"),
            (Grammar{GrammarKind::kLark, R"(start: "a\"b" | "c\nd")"}));
}

TEST(OutputFormat, WhatIsWrongIsNamed) {
  EXPECT_EQ(wrong(R"({"response_format": 5})").param, "response_format");
  EXPECT_EQ(wrong(R"({"response_format": {"type": "xml"}})").param, "response_format");
  EXPECT_EQ(wrong(R"({"response_format": {"type": "json_schema"}})").param,
            "response_format.json_schema");
  EXPECT_EQ(
      wrong(R"({"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}})").param,
      "response_format.json_schema");
  EXPECT_EQ(wrong(R"({"guided_choice": []})").param, "guided_choice");
  EXPECT_EQ(wrong(R"({"guided_choice": [1]})").param, "guided_choice");
  EXPECT_EQ(wrong(R"({"guided_regex": ""})").param, "guided_regex");
  EXPECT_EQ(wrong(R"({"guided_regex": "a", "guided_choice": ["b"]})").param, "guided_choice");
  EXPECT_EQ(wrong(R"({"structured_outputs": {"structural_tag": {}}})").code, "not_supported");
}

TEST(OutputFormat, ResponsesPutTheSchemaBesideTheType) {
  BodyReader body(R"({"text": {"format": {"type": "json_schema", "name": "x", "schema": true}}})");
  EXPECT_EQ(read_text_format(body), (Grammar{GrammarKind::kJsonSchema, "true"}));
  EXPECT_TRUE(body.ok());
}

}  // namespace
}  // namespace heddle::api
