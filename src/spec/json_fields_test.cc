#include "spec/json_fields.h"

#include <gtest/gtest.h>

namespace heddle::spec {
namespace {

const Json& document() {
  static const Json json =
      parse_json(R"({"i": 7, "d": 0.5, "b": true, "s": "text", "n": null, "a": []})", "t").value();
  return json;
}

TEST(JsonFields, ReadsWhatIsThereAndFallsBackWhereNot) {
  JsonFields fields(document(), "t: ");
  EXPECT_EQ(fields.integer("i", {0, 7}), 7);
  EXPECT_EQ(fields.integer("n", {0, 7}, 3), 3);
  EXPECT_EQ(fields.number("d", {0, 1}), 0.5);
  EXPECT_EQ(fields.number("i", {0, 10}), 7.0);
  EXPECT_EQ(fields.number("none", {0, 1}, -1.0), -1.0);
  EXPECT_TRUE(fields.boolean("b", false));
  EXPECT_TRUE(fields.boolean("none", true));
  EXPECT_EQ(fields.text("s"), "text");
  EXPECT_EQ(fields.text("none"), "");
  EXPECT_TRUE(fields.is_null("n"));
  EXPECT_FALSE(fields.is_null("none"));
  EXPECT_FALSE(fields.has("none"));
  EXPECT_TRUE(fields.ok());
}

template <class Read>
std::string error_of(Read&& read) {
  JsonFields fields(document(), "t: ");
  read(fields);
  return fields.ok() ? "" : fields.status().error().message;
}

TEST(JsonFields, SaysWhatIsWrongAndWhatWouldBeRight) {
  const auto integer = [](std::string_view key, IntegerRange range) {
    return error_of([=](JsonFields& fields) { fields.integer(key, range); });
  };
  EXPECT_EQ(integer("i", {0, 6}), "t: i is 7; it must be an integer from 0 to 6");
  EXPECT_EQ(integer("i", {8, 9}), "t: i is 7; it must be an integer from 8 to 9");
  EXPECT_EQ(integer("d", {0, 6}), "t: d is 0.5; it must be an integer from 0 to 6");
  EXPECT_EQ(integer("n", {0, 6}), "t: n is null; it must be an integer from 0 to 6");
  EXPECT_EQ(integer("x", {0, 6}), "t: x is missing; it must be an integer from 0 to 6");
  EXPECT_EQ(error_of([](JsonFields& f) { f.number("a", {0, 1}); }),
            "t: a is an array of 0; it must be a number from 0 to 1");
  EXPECT_EQ(error_of([](JsonFields& f) { f.boolean("i", true); }),
            "t: i is 7; it must be true or false");
  EXPECT_EQ(error_of([](JsonFields& f) { f.text("b"); }), "t: b is true; it must be a string");
}

TEST(JsonFields, KeepsTheFirstError) {
  EXPECT_EQ(error_of([](JsonFields& fields) {
              fields.reject("i", "first");
              fields.reject("d", "second");
            }),
            "t: i is 7; first");
  EXPECT_EQ(error_of([](JsonFields& fields) {
              JsonFields part(document(), "t: part.");
              part.reject_as("i[0]", "8", "ninth");
              fields.adopt(part);
            }),
            "t: part.i[0] is 8; ninth");
}

TEST(JsonFields, WantsAnObject) {
  const Json array = parse_json("[1]", "t").value();
  JsonFields fields(array, "t: ");
  EXPECT_EQ(fields.status().error().message, "t: expected an object, found an array of 1");
}

}  // namespace
}  // namespace heddle::spec
