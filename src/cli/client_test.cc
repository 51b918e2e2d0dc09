#include "cli/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::cli {
namespace {

using testing::HasSubstr;

TEST(ServerAddress, FillsInWhatIsMissing) {
  const auto url = [](std::string_view text) { return parse_server_address(text)->url(); };
  EXPECT_EQ(url(""), "http://127.0.0.1:8080");
  EXPECT_EQ(url("host"), "http://host:8080");
  EXPECT_EQ(url(":9"), "http://127.0.0.1:9");
  EXPECT_EQ(url("http://host:9/"), "http://host:9");
  EXPECT_EQ(url("https://host"), "https://host:443");
  EXPECT_EQ(url("https://host:9"), "https://host:9");
  for (const char* bad : {"https://host:port", "host:port", "host:", "a/b:1"}) {
    EXPECT_FALSE(parse_server_address(bad)) << bad;
  }
}

TEST(Client, WithoutAServerSaysWhereItLookedAndWhatToStart) {
  Client client(*parse_server_address("127.0.0.1:1"), {});
  const Result<std::string> answer = client.get("/running");
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Code::kUnavailable);
  EXPECT_THAT(answer.error().message, HasSubstr("http://127.0.0.1:1"));
  EXPECT_THAT(answer.error().message, HasSubstr("heddle serve"));
}

}  // namespace
}  // namespace heddle::cli
