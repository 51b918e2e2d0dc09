#include "text/utf8_stream.h"

#include <cstddef>
#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::text {
namespace {

std::string in_portions(const std::string& bytes, std::size_t size) {
  Utf8Stream utf8;
  std::string out;
  for (std::size_t at = 0; at < bytes.size(); at += size) {
    utf8.push(std::string_view(bytes).substr(at, size), out);
  }
  utf8.flush(out);
  return out;
}

/// Bytes and what a lossy decoder makes of them; # stands for U+FFFD.
struct Case {
  std::string bytes;
  std::string text;
};

TEST(Utf8Stream, ReplacesEachMaximalInvalidPart) {
  // The first five are examples of the Unicode standard, section 3.9, tables 3-8 to 3-11.
  const Case cases[] = {
      {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", "########A"},
      {"\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", "########A"},
      {"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", "#####A##B"},
      {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", "####A"},
      {"\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64", "###b#c##d"},
      {"\xF0\x9F\x98\x80", "\xF0\x9F\x98\x80"},
      {"\xF0\x9F\x98", "#"},
      {"\xE2\x82", "#"},
      {"\xF5\x80\x80\x80", "####"},
      {"", ""},
  };
  for (const Case& item : cases) {
    std::string want;
    for (const char c : item.text) {
      want += c == '#' ? "\xEF\xBF\xBD" : std::string(1, c);
    }
    for (std::size_t size = 1; size <= 5; ++size) {
      EXPECT_EQ(in_portions(item.bytes, size), want) << "portions of " << size;
    }
  }
}

TEST(Utf8Stream, PortionsDoNotMatter) {
  constexpr std::uint64_t kSeed = 11;
  Rng rng(kSeed);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (std::uint64_t n = rng.below(24); n > 0; --n) {
      // Mostly lead and continuation bytes, so that sequences come close to being valid.
      constexpr std::uint8_t kLikely[] = {
          0x41, 0x80, 0x9F, 0xA0, 0xBF, 0xC2, 0xE0, 0xE1, 0xED, 0xF0, 0xF4, 0xFF};
      bytes += static_cast<char>(kLikely[rng.below(std::size(kLikely))]);
    }
    EXPECT_EQ(in_portions(bytes, 1 + rng.below(6)), in_portions(bytes, bytes.size() + 1))
        << "seed " << kSeed << " round " << round;
  }
}

TEST(Utf8Stream, GivesCharactersAsSoonAsTheyAreWhole) {
  Utf8Stream utf8;
  std::string out;
  utf8.push("a\xE2\x82", out);
  EXPECT_EQ(out, "a");
  utf8.push("\xAC", out);
  EXPECT_EQ(out, "a\xE2\x82\xAC");
  utf8.flush(out);
  EXPECT_EQ(out, "a\xE2\x82\xAC");
}

}  // namespace
}  // namespace heddle::text
