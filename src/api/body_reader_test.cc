#include "api/body_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::api {
namespace {

using testing::HasSubstr;

TEST(BodyReader, OnlyAJsonObjectWillDo) {
  const std::pair<std::string, const char*> cases[] = {
      {"", "not valid JSON"},
      {"{", "not valid JSON"},
      {"{}x", "not valid JSON"},
      {"{\"a\": \"\xff\xfe\"}", "UTF-8"},
      {"{\"a\": \"\\ud800\"}", "a: has \\ud800, one half of a surrogate pair"},
      {"{\"a\": {\"b\": 1e400}}", "a.b: is 1e400"},
      {"{\"a\": {\"b\": tru}}", "(in a.b)"},
      {"[1]", "the body is a list of 1; want a JSON object"},
      {"\"x\"", "the body is \"x\"; want a JSON object"},
      {"{\"a\":1,\"a\":2}", "a: occurs twice"},
  };
  for (const auto& [text, message] : cases) {
    const BodyReader body(text);
    ASSERT_FALSE(body.ok()) << text;
    EXPECT_EQ(body.error().status, 400);
    EXPECT_THAT(body.error().message, HasSubstr(message)) << text;
  }
}

TEST(BodyReader, DeepNestingIsAnError) {
  std::string text;
  for (int i = 0; i < 100'000; ++i) {
    text += "{\"a\":";
  }
  EXPECT_FALSE(BodyReader(text).ok());
  EXPECT_FALSE(BodyReader("{\"a\":" + std::string(100, '[') + std::string(100, ']') + "}").ok());
  EXPECT_TRUE(BodyReader("{\"a\":" + std::string(50, '[') + std::string(50, ']') + "}").ok());
}

TEST(BodyReader, WhatWouldTakeTooMuchMemoryIsAnError) {
  std::string lists = "{\"a\":[";
  std::string numbers = "{\"a\":[1";
  std::string fields = "{";
  for (int i = 0; i < 600'000; ++i) {
    lists += i == 0 ? "[]" : ",[]";
  }
  for (int i = 0; i < 4'200'000; ++i) {
    numbers += ",1";
  }
  for (int i = 0; i < 5'000; ++i) {
    fields += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":1";
  }
  EXPECT_THAT(BodyReader(lists + "]}").error().message, HasSubstr("524288"));
  EXPECT_THAT(BodyReader(numbers + "]}").error().message, HasSubstr("4194304"));
  EXPECT_THAT(BodyReader(fields + "}").error().message, HasSubstr("4096"));
  EXPECT_TRUE(BodyReader("{\"a\":\"" + std::string(5'000'000, ',') + "\"}").ok());
}

TEST(BodyReader, MessagesRepeatLittleOfTheBody) {
  const std::string much(3'000'000, 'x');
  EXPECT_LT(BodyReader("{\"" + much + "\":1,\"" + much + "\":2}").error().message.size(), 200U);
  BodyReader body("{\"a\":\"" + much + "\"}");
  EXPECT_EQ(body.flag("a"), std::nullopt);
  EXPECT_LT(body.error().message.size(), 200U);
}

TEST(BodyReader, ReadsTypedFieldsAndTakesNullForAbsent) {
  BodyReader body(R"({"t":"x","f":true,"n":0.5,"i":16.0,"z":null})");
  EXPECT_EQ(body.text("t"), "x");
  EXPECT_EQ(body.flag("f"), true);
  EXPECT_EQ(body.number("n", {}), 0.5);
  EXPECT_EQ(body.integer("i", 0, 20), 16);
  EXPECT_EQ(body.text("z"), std::nullopt);
  EXPECT_EQ(body.integer("none", 0, 1), std::nullopt);
  EXPECT_TRUE(body.ok());
}

TEST(BodyReader, TheFirstProblemIsKept) {
  BodyReader body(R"({"a":"warm","b":-7})");
  EXPECT_EQ(body.number("a", {.least = 0}), std::nullopt);
  EXPECT_EQ(body.integer("b", -1, 5), std::nullopt);
  EXPECT_EQ(body.error().param, "a");
  EXPECT_THAT(body.error().message, HasSubstr("a: is \"warm\"; want a number of at least 0"));
}

TEST(BodyReader, WholeNumbersKeepToTheirRange) {
  for (const char* text : {"1e30", "0.5", "-1", "11", "\"3\"", "true", "18446744073709551615"}) {
    BodyReader body("{\"i\":" + std::string(text) + "}");
    EXPECT_EQ(body.integer("i", 0, 10), std::nullopt) << text;
    ASSERT_FALSE(body.ok()) << text;
    EXPECT_THAT(body.error().message, HasSubstr("a whole number from 0 to 10")) << text;
  }
}

TEST(BodyReader, NeutralValuesAskForNothing) {
  BodyReader neutral(R"({"a":null,"b":false,"c":0,"d":"","e":[],"f":{}})");
  neutral.refuse_unless_neutral({"a", "b", "c", "d", "e", "f", "g"});
  EXPECT_TRUE(neutral.ok());
  for (const char* text : {"true", "1", "\"x\"", "[0]", "{\"x\":0}"}) {
    BodyReader body("{\"a\":" + std::string(text) + "}");
    body.refuse_unless_neutral({"a"});
    ASSERT_FALSE(body.ok()) << text;
    EXPECT_EQ(body.error().code, "not_supported");
  }
}

TEST(BodyReader, LongValuesAreShortenedBetweenCharacters) {
  std::string text(59, 'a');
  text += "\xc3\xa9\xc3\xa9";
  BodyReader body("{\"n\":\"" + text + "\"}");
  EXPECT_EQ(body.number("n", {}), std::nullopt);
  EXPECT_THAT(body.error().message, HasSubstr("\"" + std::string(59, 'a') + "...\""));
}

}  // namespace
}  // namespace heddle::api
