#include "fetch/source.h"

#include <gtest/gtest.h>

#include "fetch/test_source.h"

namespace heddle::fetch {
namespace {

TEST(OpenSource, KnowsEveryKind) {
  for (const char* text : {"acme/small", "s3://models/x", "https://h/x", "file:///x"}) {
    const auto name = parse_source_name(text);
    ASSERT_TRUE(name.has_value()) << text;
    EXPECT_TRUE(open_source(*name, environment_of({}), quick()).has_value()) << text;
  }
}

TEST(Fill, ReadsIntoASpan) {
  TestSource source;
  source.contents = {{"a", "0123456789"}};
  std::array<std::byte, 3> bytes{};
  ASSERT_TRUE(fill(source, source.object("a"), 4, bytes, {}).has_value());
  EXPECT_EQ(bytes[0], std::byte{'4'});
  EXPECT_EQ(bytes[2], std::byte{'6'});
}

}  // namespace
}  // namespace heddle::fetch
