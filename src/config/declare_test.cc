#include "config/declare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::config {
namespace {

using testing::ElementsAre;

TEST(Cores, ParsesRangesAndLists) {
  EXPECT_THAT(*parse_cores("0-3,6"), ElementsAre(0, 1, 2, 3, 6));
  EXPECT_THAT(*parse_cores("5"), ElementsAre(5));
  for (const char* bad : {"", "-1", "3-1", "a", "1,", "1-", "99999", "0 1"}) {
    EXPECT_FALSE(parse_cores(bad)) << bad;
  }
}

TEST(Cores, FormatsWhatItParses) {
  for (const char* text : {"0-3,6", "5", "0,2,4-5"}) {
    EXPECT_EQ(format_cores(*parse_cores(text)), text);
  }
}

TEST(Listen, ParsesTheUsualForms) {
  const auto expect = [](std::string_view text, const std::string& host, int port) {
    const Result<ListenAddress> address = parse_listen(text);
    ASSERT_TRUE(address) << text;
    EXPECT_EQ(address->host, host) << text;
    EXPECT_EQ(address->port, port) << text;
  };
  expect("127.0.0.1:8080", "127.0.0.1", 8080);
  expect(":9000", "0.0.0.0", 9000);
  expect("9000", "127.0.0.1", 9000);
  expect("[::1]:0", "::1", 0);
  expect("localhost:65535", "localhost", 65535);
  expect("http://127.0.0.1:80", "127.0.0.1", 80);
  expect("https://[::1]:443", "::1", 443);
  EXPECT_EQ(parse_listen("127.0.0.1:80")->scheme, Scheme::kUsual);
  EXPECT_EQ(parse_listen("http://:80")->scheme, Scheme::kHttp);
  EXPECT_EQ(parse_listen("https://:443")->scheme, Scheme::kHttps);
  for (const char* bad : {"",
                          "nowhere",
                          "host:",
                          "https://",
                          "ftp://host:1",
                          "host:70000",
                          "::1:80",
                          "host:-1",
                          "host:8x"}) {
    EXPECT_FALSE(parse_listen(bad)) << bad;
  }
}

}  // namespace
}  // namespace heddle::config
