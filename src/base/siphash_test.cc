#include "base/siphash.h"

#include <cstring>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace heddle {
namespace {

/// The reference's test: key 00 01 .. 0f, content 00 01 .. of `size` bytes; the result in hex.
std::string vector_of_size(std::size_t size) {
  const SipKey key{0x0706050403020100U, 0x0f0e0d0c0b0a0908U};
  std::vector<std::byte> content;
  for (std::size_t i = 0; i < size; ++i) {
    content.push_back(static_cast<std::byte>(i));
  }
  const Digest digest = siphash(key, content);
  unsigned char bytes[sizeof(digest)];
  std::memcpy(bytes, &digest, sizeof(digest));
  std::string hex;
  for (const unsigned char byte : bytes) {
    constexpr std::string_view kDigits = "0123456789ABCDEF";
    hex += {kDigits[byte >> 4U], kDigits[byte & 15U]};
  }
  return hex;
}

TEST(SipHash, GivesTheReferencesResults) {
  EXPECT_EQ(vector_of_size(0), "A3817F04BA25A8E66DF67214C7550293");
  EXPECT_EQ(vector_of_size(1), "DA87C1D86B99AF44347659119B22FC45");
  EXPECT_EQ(vector_of_size(2), "8177228DA4A45DC7FCA38BDEF60AFFE4");
  EXPECT_EQ(vector_of_size(15), "5493E99933B0A8117E08EC0F97CFC3D9");
  EXPECT_EQ(vector_of_size(16), "6EE2A4CA67B054BBFD3315BF85230577");
  EXPECT_EQ(vector_of_size(63), "5150D1772F50834A503E069A973FBD7C");
}

TEST(SipHash, AnotherKeyGivesOtherResults) {
  const std::vector<std::byte> content(64);
  std::set<Digest> seen;
  for (std::uint64_t i = 0; i < 100; ++i) {
    seen.insert(siphash({i, 0}, content));
    seen.insert(siphash({0, i + 1}, content));
  }
  EXPECT_EQ(seen.size(), 200U);
}

}  // namespace
}  // namespace heddle
