#include "config/web_names.h"

#include <string>

#include <gtest/gtest.h>

namespace heddle::config {
namespace {

TEST(WebHost, LocalNamesInEverySpelling) {
  for (const char* text : {"localhost",
                           "LocalHost:8080",
                           "localhost.",
                           "localhost.:80",
                           "localhost:",
                           "app.localhost:8080",
                           "127.0.0.1",
                           "127.8.9.10:65535",
                           "[::1]",
                           "[::1]:8080",
                           "[0:0:0:0:0:0:0:1]:8080",
                           "[::ffff:127.0.0.1]"}) {
    const auto host = parse_web_host(text);
    ASSERT_TRUE(host) << text;
    EXPECT_TRUE(host->local) << text;
  }
}

TEST(WebHost, OthersAreNotLocal) {
  for (const char* text : {"evil.example",
                           "evil.example:8080",
                           "localhost.evil.example",
                           "notlocalhost",
                           "127.0.0.1.evil.example",
                           "127.1",
                           "0x7f.0.0.1",
                           "2130706433",
                           "0.0.0.0",
                           "[::]",
                           "192.168.1.5:8080",
                           "[fe80::1]"}) {
    const auto host = parse_web_host(text);
    ASSERT_TRUE(host) << text;
    EXPECT_FALSE(host->local) << text;
  }
}

TEST(WebHost, WhatIsNoHostIsNone) {
  for (const char* text : {"",
                           ".",
                           "localhost..",
                           "user@localhost",
                           "localhost@evil.example",
                           "localhost:80@evil.example",
                           "localhost:80:80",
                           "localhost:65536",
                           "localhost:-1",
                           "localhost:8 0",
                           "localhost/",
                           "http://localhost",
                           "local host",
                           "localhost,evil.example",
                           "[::1",
                           "[::1]x",
                           "[127.0.0.1]",
                           "[]",
                           "::1",
                           "l\xc3\xb6"
                           "calhost"}) {
    EXPECT_FALSE(parse_web_host(text)) << text;
  }
}

TEST(WebHost, AddressesToListenOnHaveNoBrackets) {
  EXPECT_TRUE(parse_listen_host("::1")->local);
  EXPECT_TRUE(parse_listen_host("127.0.0.1")->local);
  EXPECT_TRUE(parse_listen_host("localhost")->local);
  EXPECT_FALSE(parse_listen_host("::")->local);
  EXPECT_FALSE(parse_listen_host("0.0.0.0")->local);
  EXPECT_FALSE(parse_listen_host("models.example")->local);
}

TEST(Origin, IsWrittenInOneWay) {
  EXPECT_EQ(parse_origin("HTTPS://Chat.Example:443"), "https://chat.example");
  EXPECT_EQ(parse_origin("http://chat.example:8080"), "http://chat.example:8080");
  EXPECT_EQ(parse_origin("http://[0::1]:3000"), "http://[::1]:3000");
  EXPECT_EQ(parse_origin("chrome-extension://abcdef"), "chrome-extension://abcdef");
  EXPECT_EQ(parse_origin("null"), "null");
  for (const char* text : {"",
                           "chat.example",
                           "http://",
                           "http://a/",
                           "http://a/path",
                           "http://user@a",
                           "http://a http://b",
                           "://a",
                           "*"}) {
    EXPECT_FALSE(parse_origin(text)) << text;
  }
}

TEST(Origin, IsTheServersOwnWhereHostAndPortAre) {
  const auto same = [](const std::string& origin, const std::string& host) {
    return is_same_origin(*parse_origin(origin), *parse_web_host(host));
  };
  EXPECT_TRUE(same("http://localhost:8080", "LOCALHOST.:8080"));
  EXPECT_TRUE(same("http://localhost", "localhost:80"));
  EXPECT_TRUE(same("https://models.example", "models.example"));
  EXPECT_TRUE(same("https://models.example", "models.example:443"));
  EXPECT_FALSE(same("http://localhost:3000", "localhost:8080"));
  EXPECT_FALSE(same("http://localhost", "localhost:8080"));
  EXPECT_FALSE(same("http://127.0.0.1:8080", "localhost:8080"));
  EXPECT_FALSE(same("app://localhost:8080", "localhost:8080"));
  EXPECT_FALSE(same("null", "localhost:8080"));
}

}  // namespace
}  // namespace heddle::config
