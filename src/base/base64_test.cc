#include "base/base64.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle {
namespace {

TEST(Base64Test, WritesTheExamplesOfRfc4648) {
  EXPECT_EQ(to_base64(""), "");
  EXPECT_EQ(to_base64("f"), "Zg==");
  EXPECT_EQ(to_base64("fo"), "Zm8=");
  EXPECT_EQ(to_base64("foo"), "Zm9v");
  EXPECT_EQ(to_base64("foob"), "Zm9vYg==");
}

TEST(Base64Test, ReadsWhatItWrites) {
  const std::uint64_t seed = 20261125;
  SCOPED_TRACE("seed " + std::to_string(seed));
  Rng rng(seed);
  for (int i = 0; i < 500; ++i) {
    std::string bytes(rng.below(70), '\0');
    for (char& each : bytes) {
      each = static_cast<char>(rng.below(256));
    }
    EXPECT_EQ(from_base64(to_base64(bytes)), bytes);
  }
}

TEST(Base64Test, ReadsNothingElse) {
  for (const char* text :
       {"Zg", "Zg=", "Zg===", "=Zg=", "Z=g=", "Zh==", "Zm9v\n", "Zm-v", "===="}) {
    EXPECT_FALSE(from_base64(text)) << text;
  }
}

}  // namespace
}  // namespace heddle
