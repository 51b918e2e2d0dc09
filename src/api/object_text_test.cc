#include "api/object_text.h"

#include <algorithm>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/rng.h"

namespace heddle::api {
namespace {

using Setting = std::vector<std::pair<std::string, std::string>>;

std::string edit(const std::string& text,
                 const std::vector<std::string>& strip,
                 const Setting& set) {
  const Result<ObjectText> object = ObjectText::scan(text);
  return object ? object->edited(strip, set) : object.error().message;
}

TEST(ObjectText, FindsMembers) {
  const std::string text = " { \"a\" : 1,\"b\":[1,{\"c\":\"]}\\\"\"}] , \"d\": \"x\\u0041\\n\"}\n";
  const Result<ObjectText> object = ObjectText::scan(text);
  ASSERT_TRUE(object) << object.error().message;
  EXPECT_EQ(object->find("a"), "1");
  EXPECT_EQ(object->find("b"), "[1,{\"c\":\"]}\\\"\"}]");
  EXPECT_EQ(object->find("c"), std::nullopt);
  EXPECT_EQ(object->string("d"), "xA\n");
  EXPECT_EQ(object->string("a"), std::nullopt);
}

TEST(ObjectText, KeysAreWhatTheySayNotHowTheyAreSpelled) {
  EXPECT_EQ(edit(R"({"\u0074emp":1,"a":2})", {"temp"}, {}), R"({"a":2})");
}

TEST(ObjectText, RemovesMembersWithTheirCommas) {
  const std::string text = "{ \"a\": 1 ,\n\"b\" :2, \"c\":3 }";
  EXPECT_EQ(edit(text, {"a"}, {}), "{ \"b\" :2, \"c\":3 }");
  EXPECT_EQ(edit(text, {"b"}, {}), "{ \"a\": 1, \"c\":3 }");
  EXPECT_EQ(edit(text, {"c"}, {}), "{ \"a\": 1 ,\n\"b\" :2 }");
  EXPECT_EQ(edit(text, {"a", "b", "c"}, {}), "{  }");
  EXPECT_EQ(edit(text, {"z"}, {}), text);
}

TEST(ObjectText, SetsMembersInPlaceOrLast) {
  EXPECT_EQ(edit(R"({"a": 1 , "b":2})", {}, {{"a", "[9]"}}), R"({"a": [9] , "b":2})");
  EXPECT_EQ(edit(R"({"a":1})", {}, {{"x\"y", "null"}}), R"({"a":1,"x\"y":null})");
  EXPECT_EQ(edit("{ }", {}, {{"a", "1"}, {"b", "2"}}), R"({ "a":1,"b":2})");
  EXPECT_EQ(edit(R"({"a":1,"a":2})", {}, {{"a", "3"}}), R"({"a":3,"a":3})");
  EXPECT_EQ(edit(R"({"a":1})", {"a"}, {{"a", "3"}}), R"({"a":3})");
}

TEST(ObjectText, RefusesWhatIsNoObject) {
  for (const char* text : {"",
                           "[]",
                           "{",
                           "{\"a\"}",
                           "{\"a\":}",
                           "{\"a\":1,}",
                           "{\"a\":1}}",
                           "{a:1}",
                           "{\"a\":1 2}",
                           "{\"a\":\"x}",
                           "{\"a\":[1}",
                           "{\"a\\x\":1}",
                           "{,}"}) {
    EXPECT_FALSE(ObjectText::scan(text)) << text;
  }
}

/// A value that has what makes scanning hard.
nlohmann::json draw_value(Rng& rng, int depth) {
  switch (rng.below(depth > 0 ? 6 : 4)) {
    case 0:
      return nlohmann::json(static_cast<double>(rng.below(1000)) / 7.0);
    case 1:
      return rng.below(2) == 0;
    case 2:
      return nullptr;
    case 3: {
      std::string text;
      for (std::uint64_t i = rng.below(8); i > 0; --i) {
        text += "{}[],:\"\\\n\x01 aZ"[rng.below(14)];
      }
      return text;
    }
    case 4: {
      nlohmann::json array = nlohmann::json::array();
      for (std::uint64_t i = rng.below(4); i > 0; --i) {
        array.push_back(draw_value(rng, depth - 1));
      }
      return array;
    }
    default: {
      nlohmann::json object = nlohmann::json::object();
      for (std::uint64_t i = rng.below(4); i > 0; --i) {
        object[std::string(1, "abc\"\\{"[rng.below(6)])] = draw_value(rng, depth - 1);
      }
      return object;
    }
  }
}

std::string draw_space(Rng& rng) {
  std::string space;
  while (rng.below(3) == 0) {
    space += " \t\n"[rng.below(3)];
  }
  return space;
}

// Members are written with marks around them, so that it can be seen that what stays is the same
// bytes; another program judges what the object says then.
TEST(ObjectText, EditsLeaveTheOtherBytes) {
  const std::uint64_t seed = 20261121;
  for (std::uint64_t round = 0; round < 2000; ++round) {
    Rng rng(seed + round);
    std::string text = draw_space(rng) + "{";
    std::vector<std::pair<std::string, std::string>> pieces;
    for (std::uint64_t i = 0, count = rng.below(6); i < count; ++i) {
      const std::string key = "k" + std::to_string(i);
      std::string piece = "\"" + key + "\"" + draw_space(rng) + ":" + draw_space(rng) +
                          draw_value(rng, 3).dump(rng.below(2) == 0 ? -1 : 1);
      text += (i == 0 ? "" : draw_space(rng) + ",") + draw_space(rng) + piece;
      pieces.emplace_back(key, std::move(piece));
    }
    text += draw_space(rng) + "}" + draw_space(rng);
    std::vector<std::string> strip;
    Setting set;
    nlohmann::json expected = nlohmann::json::parse(text);
    for (std::uint64_t i = 0; i < 7; ++i) {
      const std::string key = "k" + std::to_string(i);
      if (rng.below(3) == 0) {
        strip.push_back(key);
        expected.erase(key);
      } else if (rng.below(3) == 0) {
        const nlohmann::json value = draw_value(rng, 2);
        set.emplace_back(key, value.dump());
        expected[key] = value;
      }
    }
    const std::string result = edit(text, strip, set);
    ASSERT_EQ(nlohmann::json::parse(result, nullptr, false), expected)
        << "seed " << seed + round << ": " << text << " became " << result;
    for (const auto& [key, piece] : pieces) {
      const bool stays =
          std::find(strip.begin(), strip.end(), key) == strip.end() &&
          std::none_of(set.begin(), set.end(), [&](const auto& s) { return s.first == key; });
      ASSERT_TRUE(!stays || result.find(piece) != std::string::npos)
          << "seed " << seed + round << ": " << piece << " of " << text << " is not in " << result;
    }
    if (strip.empty() && set.empty()) {
      ASSERT_EQ(result, text);
    }
  }
}

}  // namespace
}  // namespace heddle::api
