#include "base/http_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle {
namespace {

constexpr HttpDefaults kDefaults{
    .host = "127.0.0.1", .port = 8080, .http_port = 81, .base_path = "/v1"};

TEST(HttpAddress, IsReadWithWhatIsMissingFilledIn) {
  const std::pair<const char*, HttpAddress> cases[] = {
      {"", {.port = 8080, .base_path = "/v1"}},
      {":9", {.port = 9, .base_path = "/v1"}},
      {"host", {.host = "host", .port = 8080, .base_path = "/v1"}},
      {"host/", {.host = "host", .port = 8080, .base_path = "/v1"}},
      {"http://host/a/b//", {.host = "host", .port = 81, .base_path = "/a/b"}},
      {"https://host", {.host = "host", .port = 443, .base_path = "/v1", .tls = true}},
      {"https://[::1]:9/x", {.host = "::1", .port = 9, .base_path = "/x", .tls = true}},
      {"[::1]", {.host = "::1", .port = 8080, .base_path = "/v1"}},
  };
  for (const auto& [text, address] : cases) {
    const Result<HttpAddress> parsed = parse_http_address(text, kDefaults);
    ASSERT_TRUE(parsed) << text;
    EXPECT_EQ(*parsed, address) << text;
  }
}

TEST(HttpAddress, SaysWhatIsWrongWithATextThatIsNone) {
  const std::pair<const char*, const char*> cases[] = {
      {"ftp://host:1", "names no port"},
      {"host:", "names no port"},
      {"host:0", "names no port"},
      {"host:65536", "names no port"},
      {"host:8x", "names no port"},
      {"::1:80", "without brackets"},
      {"[[a]]", "names no host"},
      {"user@host", "has more than"},
      {"a b", "has more than"},
      {"host/v1?x=1", "has more than"},
  };
  for (const auto& [text, why] : cases) {
    const Result<HttpAddress> parsed = parse_http_address(text, kDefaults);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code, Code::kInvalidArgument);
    EXPECT_THAT(parsed.error().message, testing::HasSubstr(why)) << text;
  }
  EXPECT_THAT(parse_http_address("http://:80", {}).error().message,
              testing::HasSubstr("names no host"));
}

TEST(HttpAddress, OfIpv6IsWrittenWithBrackets) {
  const HttpAddress address{.host = "::1", .port = 80, .base_path = "/v1", .tls = true};
  EXPECT_EQ(address.authority(), "[::1]:80");
  EXPECT_EQ(address.url(), "https://[::1]:80/v1");
}

}  // namespace
}  // namespace heddle
