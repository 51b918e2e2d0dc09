#include "api/json_fault.h"

#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::api {
namespace {

using testing::HasSubstr;

TEST(JsonFault, NamesTheFieldAndWhatIsWrongWithIt) {
  const std::pair<std::string, std::pair<const char*, const char*>> cases[] = {
      {R"({"max_tokens": 1e400})", {"max_tokens", "1e400"}},
      {R"({"a": 1, "max_tokens": 99999999999999999999})", {"max_tokens", "64 bits"}},
      {R"({"n": -99999999999999999999})", {"n", "64 bits"}},
      {R"({"m": [{"content": "x"}, {"content": "\ud800"}]})", {"m[1].content", "\\ud800"}},
      {R"({"s": "\udc00\ud800"})", {"s", "\\udc00"}},
      {R"({"s": "\ud800\u0041"})", {"s", "surrogate"}},
      {R"({"s": "\x"})", {"s", "backslash"}},
      {R"({"s": ["a", 1, )" + std::string(500, '9') + "]}", {"s[2]", "..."}},
      {R"({"a b": "\ud8)", {"a b", "backslash"}},
  };
  for (const auto& [text, want] : cases) {
    const JsonFault fault = find_json_fault(text, 64);
    EXPECT_EQ(fault.path, want.first) << text;
    EXPECT_THAT(fault.message, HasSubstr(want.second)) << text;
    EXPECT_LT(fault.message.size(), 200U);
  }
}

TEST(JsonFault, OfABrokenTextItKnowsThePlaceOnly) {
  EXPECT_EQ(find_json_fault(R"({"a": {"b": [1, }})", 64).path, "a.b[1]");
  EXPECT_EQ(find_json_fault(R"({"a": "x)", 64).path, "a");
  EXPECT_EQ(find_json_fault("", 64).path, "");
  EXPECT_EQ(find_json_fault(std::string(1'000'000, '['), 64).message, "");
}

TEST(JsonFault, ASoundTextHasNone) {
  const std::string sound =
      R"({"a": [1, -2.5e-400, true, null, 18446744073709551615], "\ud83d\ude00":
      {"x\"": "\\\u00e9"}, "e": {}, "l": []})";
  EXPECT_EQ(find_json_fault(sound, 64).message, "");
  EXPECT_EQ(find_json_fault(sound, 64).path, "");
}

TEST(JsonFault, CountsWhatTakesMemory) {
  const JsonCount count = count_json(R"({"a,{": [1, 2, "x\"[,"], "b": {}})");
  EXPECT_EQ(count.parts, 6U);
  EXPECT_EQ(count.commas, 3U);
  EXPECT_EQ(count_json("\"never ends \\").parts, 1U);
}

}  // namespace
}  // namespace heddle::api
