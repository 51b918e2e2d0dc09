#include "bench/endpoint.h"

#include <gtest/gtest.h>

namespace heddle::bench {
namespace {

TEST(Endpoint, IsReadFromWhatPeopleWrite) {
  const std::pair<const char*, const char*> cases[] = {
      {"https://api.example.com/v1", "https://api.example.com:443/v1"},
      {"https://api.example.com/v1/", "https://api.example.com:443/v1"},
      {"http://host:8000/openai/v1", "http://host:8000/openai/v1"},
      {"http://host", "http://host:80/v1"},
      {"host:81", "http://host:81/v1"},
      {"host", "http://host:8080/v1"},
      {":9", "http://127.0.0.1:9/v1"},
  };
  for (const auto& [text, url] : cases) {
    const Result<HttpAddress> endpoint = parse_endpoint(text);
    ASSERT_TRUE(endpoint) << text;
    EXPECT_EQ(endpoint->url(), url);
  }
}

TEST(Endpoint, AnythingElseIsRefused) {
  for (const char* text : {"host:", "host:x", "a b", "user@host", "http://h/v1?x=1", "ftp://h:1"}) {
    EXPECT_FALSE(parse_endpoint(text)) << text;
  }
}

}  // namespace
}  // namespace heddle::bench
