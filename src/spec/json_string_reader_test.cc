#include "spec/json_string_reader.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "spec/json_writer.h"

namespace heddle::spec {
namespace {

TEST(JsonStringReader, ResolvesEscapes) {
  EXPECT_EQ(json_string_text(R"(a\"b\\c\/d\b\f\n\r\t)"), "a\"b\\c/d\b\f\n\r\t");
  EXPECT_EQ(json_string_text("\\u0041\\u00e9\\u20AC \\ud83d\\ude00"), "A\u00e9\u20ac \U0001F600");
}

TEST(JsonStringReader, WhatIsNoCharacterIsReplaced) {
  EXPECT_EQ(json_string_text(R"(\x)"), "\uFFFD");
  EXPECT_EQ(json_string_text(R"(\u12g4)"), "\uFFFD");
  EXPECT_EQ(json_string_text(R"(\ude00a)"), "\uFFFDa");
  EXPECT_EQ(json_string_text(R"(\ud83da)"), "\uFFFDa");
  EXPECT_EQ(json_string_text(R"(\ud83d\n)"), "\uFFFD\n");
  EXPECT_EQ(json_string_text(R"(\ud83d\ud83d\ude00)"), "\uFFFD\U0001F600");
}

TEST(JsonStringReader, EndsAtTheQuote) {
  EXPECT_EQ(json_string_text("a\"b"), "a");
  JsonStringReader reader;
  std::string text;
  EXPECT_TRUE(reader.push('\\', text));
  EXPECT_TRUE(reader.push('"', text));
  EXPECT_FALSE(reader.push('"', text));
  EXPECT_EQ(text, "\"");
}

TEST(JsonStringReader, AnEscapeThatIsCutOffIsLeftOut) {
  for (const std::string end : {"\\", "\\u", "\\u00e", "\\ud83d", "\\ud83d\\ude"}) {
    EXPECT_EQ(json_string_text("a" + end), "a") << end;
  }
}

TEST(JsonStringReader, ReadsWhatTheWriterWrites) {
  constexpr std::uint64_t kSeed = 20'261'129;
  SCOPED_TRACE(kSeed);
  Rng rng(kSeed);
  for (int i = 0; i < 1'000; ++i) {
    std::string text;
    for (std::uint64_t left = rng.below(20); left > 0; --left) {
      text += static_cast<char>(rng.below(128));
    }
    JsonWriter json;
    json.string(text);
    EXPECT_EQ(json_string_text(json.text().substr(1)), text);
  }
}

}  // namespace
}  // namespace heddle::spec
