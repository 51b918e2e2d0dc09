#include "spec/json_writer.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "spec/json.h"

namespace heddle::spec {
namespace {

TEST(JsonWriter, PutsCommasWhereTheyBelong) {
  JsonWriter json;
  json.begin_object().key("a").begin_array().integer(1).integer(-2).begin_object().end_object();
  json.null().end_array().key("b").boolean(true).key("c").string("x").end_object();
  EXPECT_EQ(json.text(), R"({"a":[1,-2,{},null],"b":true,"c":"x"})");
}

TEST(JsonWriter, EscapesAndRepairsText) {
  JsonWriter json;
  json.string("q\" b\\ n\n t\t c\x01 \x7F \xC3\xA9 \xF0\x9F\x98\x80 bad \xFF\xC3 \xED\xA0\x80");
  EXPECT_EQ(json.text(),
            "\"q\\\" b\\\\ n\\n t\\t c\\u0001 \x7F \xC3\xA9 \xF0\x9F\x98\x80 bad "
            "\xEF\xBF\xBD\xEF\xBF\xBD \xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");
}

TEST(JsonWriter, NumbersReadBack) {
  JsonWriter json;
  json.begin_array().number(0.1).number(1e300).number(std::nan(""));
  json.number(std::numeric_limits<double>::infinity());
  json.integer(std::numeric_limits<std::int64_t>::min()).end_array();
  const Json read = parse_json(std::move(json).take(), "test").value();
  const Json::Array& items = *read.as<Json::Array>();
  EXPECT_EQ(*items[0].as<double>(), 0.1);
  EXPECT_EQ(*items[1].as<double>(), 1e300);
  EXPECT_TRUE(items[2].is_null());
  EXPECT_TRUE(items[3].is_null());
  EXPECT_EQ(*items[4].as<std::int64_t>(), std::numeric_limits<std::int64_t>::min());
}

TEST(JsonWriter, AnyBytesGiveAValidDocument) {
  Rng rng(20261121);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes(rng.below(24), '\0');
    for (char& c : bytes) {
      c = static_cast<char>(rng.below(256));
    }
    JsonWriter json;
    json.string(bytes);
    ASSERT_TRUE(parse_json(json.text(), "test").has_value()) << "round " << round << json.text();
  }
}

}  // namespace
}  // namespace heddle::spec
