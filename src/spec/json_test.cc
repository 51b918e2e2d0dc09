#include "spec/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::spec {
namespace {

using testing::HasSubstr;

std::string error_of(std::string_view text) {
  const Result<Json> json = parse_json(text, "config.json");
  EXPECT_FALSE(json.has_value()) << text;
  return json ? "" : json.error().message;
}

TEST(Json, KeepsValuesAndOrder) {
  const Json json =
      parse_json(R"( {"b": [1, 2.5, "x"], "a": {"t": true, "n": null}} )", "t").value();
  const auto& object = *json.as<Json::Object>();
  ASSERT_EQ(object.size(), 2U);
  EXPECT_EQ(object[0].key, "b");
  EXPECT_EQ(object[1].key, "a");
  const auto& array = *object[0].value.as<Json::Array>();
  EXPECT_EQ(*array[0].as<std::int64_t>(), 1);
  EXPECT_EQ(*array[1].as<double>(), 2.5);
  EXPECT_EQ(*array[2].as<std::string>(), "x");
  EXPECT_TRUE(*json.find("a")->find("t")->as<bool>());
  EXPECT_TRUE(json.find("a")->find("n")->is_null());
  EXPECT_EQ(json.find("c"), nullptr);
  EXPECT_EQ(array[0].find("c"), nullptr);
}

TEST(Json, IntegersBeyond64SignedBitsAreNumbers) {
  const Json json = parse_json("[9223372036854775807, 9223372036854775808]", "t").value();
  const auto& array = *json.as<Json::Array>();
  EXPECT_EQ(*array[0].as<std::int64_t>(), INT64_MAX);
  EXPECT_EQ(*array[1].as<double>(), 9223372036854775808.0);
}

TEST(Json, RejectsWhatIsNotJson) {
  for (const char* text : {"",
                           " ",
                           "{",
                           "{\"a\":}",
                           "[1,]",
                           "nul",
                           "{'a':1}",
                           "[NaN]",
                           "[Infinity]",
                           "[1e999]",
                           "{}{}",
                           "\"\xff\"",
                           "[01]",
                           "{\"a\" 1}",
                           "\"\n\""}) {
    EXPECT_THAT(error_of(text), HasSubstr("config.json: not valid JSON")) << text;
  }
}

TEST(Json, RejectsDoubledKeys) {
  EXPECT_THAT(error_of(R"({"a": 1, "b": 2, "a": 1})"), HasSubstr("the key \"a\" appears twice"));
  EXPECT_THAT(error_of(R"([{"x": {"": 1, "": 2}}])"), HasSubstr("the key \"\" appears twice"));
  EXPECT_THAT(error_of(R"({"a": 1, "\u0061": 1})"), HasSubstr("the key \"a\" appears twice"));
}

TEST(Json, RejectsDeepNesting) {
  const auto nested = [](std::size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_TRUE(parse_json(nested(50), "t").has_value());
  EXPECT_FALSE(parse_json(nested(80), "t").has_value());
  EXPECT_FALSE(parse_json(nested(1'000'000), "t").has_value());
}

TEST(Json, DescribesValues) {
  const auto described = [](std::string_view text) {
    return describe(parse_json(text, "t").value());
  };
  EXPECT_EQ(described("\"silu\""), "\"silu\"");
  EXPECT_EQ(described("-4"), "-4");
  EXPECT_EQ(described("0.5"), "0.5");
  EXPECT_EQ(described("null"), "null");
  EXPECT_EQ(described("false"), "false");
  EXPECT_EQ(described("[1, 2]"), "an array of 2");
  EXPECT_EQ(described("{}"), "an object");
  EXPECT_EQ(described("\"" + std::string(100, 'x') + "\""), "\"" + std::string(60, 'x') + "...\"");
}

}  // namespace
}  // namespace heddle::spec
