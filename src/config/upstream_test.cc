#include "config/upstream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::config {
namespace {

TEST(Upstream, ParsesTheUsualForms) {
  const auto expect = [](std::string_view text, const HttpAddress& url) {
    const Result<HttpAddress> parsed = parse_upstream(text);
    ASSERT_TRUE(parsed) << text;
    EXPECT_EQ(*parsed, url) << text;
  };
  expect("http://127.0.0.1:5800", {.port = 5800});
  expect("http://localhost:5800/", {.host = "localhost", .port = 5800});
  expect("http://box/a/b/", {.host = "box", .port = 80, .base_path = "/a/b"});
  expect("http://[::1]:99", {.host = "::1", .port = 99});
  expect("http://[::1]", {.host = "::1", .port = 80});
}

TEST(Upstream, WhatIsNoneIsRefused) {
  for (const char* bad : {"",
                          "localhost:1",
                          "https://x",
                          "http://",
                          "http://:80",
                          "http://x:0",
                          "http://x:70000",
                          "http://x:8x",
                          "http://::1:80",
                          "http://u@x",
                          "http://x:${PORT}",
                          "http://x/?a=b"}) {
    EXPECT_FALSE(parse_upstream(bad)) << bad;
  }
}

TEST(Upstream, KnowsThisMachine) {
  for (const char* local : {"127.0.0.1", "127.1.2.3", "localhost", "::1", "0.0.0.0"}) {
    EXPECT_TRUE(is_local({.host = local})) << local;
  }
  EXPECT_FALSE(is_local({.host = "192.168.1.1"}));
}

}  // namespace
}  // namespace heddle::config
