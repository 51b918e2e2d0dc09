#include "fetch/http_get.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fetch/test_source.h"

#include <netinet/in.h>
#include <sys/socket.h>

namespace heddle::fetch {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class HttpGetTest : public testing::Test {
 protected:
  Result<HttpGet::Text> get(const std::string& url, std::uint64_t bytes_max = 100) {
    return http_.get_text(
        {.url = url, .headers = {"X-Plain: 1"}, .secrets = {"Authorization: Bearer secret"}},
        bytes_max,
        stop.get_token());
  }
  std::string redirect_error(const std::string& target) {
    const TestServer server(
        [&](const std::string&) { return said("302 Found", "", "Location: " + target + "\r\n"); });
    const auto got = get(server.url());
    EXPECT_FALSE(got.has_value());
    EXPECT_TRUE(got || got.error().code == Code::kFailedPrecondition) << got.error().message;
    return got ? "" : got.error().message;
  }

  std::stop_source stop{};

 private:
  HttpGet http_{quick().http};
};

TEST_F(HttpGetTest, ReadsHeadAndBody) {
  const TestServer server([](const std::string&) {
    return said("200 OK", "hello", "ETag: \"e\"\r\nLast-Modified: then\r\nX-Error-Code: No\r\n");
  });
  const auto got = get(server.url("/x?signature=secret"));
  ASSERT_TRUE(got.has_value()) << got.error().message;
  EXPECT_EQ(got->body, "hello");
  EXPECT_EQ(got->reply.status, 200);
  EXPECT_EQ(got->reply.etag, "\"e\"");
  EXPECT_EQ(got->reply.last_modified, "then");
  EXPECT_EQ(got->reply.error_code, "No");
  EXPECT_EQ(got->reply.content_bytes, 5U);
  EXPECT_THAT(
      server.heard()[0],
      AllOf(HasSubstr("GET /x?signature=secret "), HasSubstr("Authorization: Bearer secret")));
  const auto long_one = get(server.url("/x?signature=secret"), 4);
  ASSERT_FALSE(long_one.has_value());
  EXPECT_EQ(long_one.error().code, Code::kCorrupt);
  EXPECT_THAT(long_one.error().message, Not(HasSubstr("secret")));
}

TEST_F(HttpGetTest, TellsOfOtherAnswers) {
  const TestServer server([](const std::string&) {
    return said("429 Too Many Requests", "slow down", "Retry-After: 7\r\n");
  });
  const auto got = get(server.url());
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(got->reply.status, 429);
  EXPECT_EQ(got->reply.problem, "slow down");
  EXPECT_EQ(got->reply.retry_after, std::chrono::seconds(7));
}

/// What the system buffers at most of what comes from that port of this machine; 0: no connection.
int buffered_from(std::uint16_t port) {
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_in peer{};
    socklen_t size = sizeof(peer);
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0 &&
        peer.sin_family == AF_INET && ntohs(peer.sin_port) == port) {
      int buffer = 0;
      size = sizeof(buffer);
      return getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer, &size) == 0 ? buffer : 0;
    }
  }
  return 0;
}

TEST_F(HttpGetTest, WhatIsReadSlowlyIsBufferedLittle) {
  const auto buffered_at = [&](std::uint64_t rate) {
    const TestServer server([](const std::string&) { return said("200 OK", "hello"); });
    const auto port =
        static_cast<std::uint16_t>(std::stoi(server.url().substr(server.url().rfind(':') + 1)));
    HttpOptions options = quick().http;
    options.reading_rate = rate;
    HttpGet http(options);
    int buffer = 0;
    const auto body = [&](const GetReply&, std::span<const std::byte>) -> Result<Next> {
      buffer = buffered_from(port);
      return Next::kMore;
    };
    EXPECT_TRUE(http.get({.url = server.url()}, body, stop.get_token()).has_value());
    return buffer;
  };
  const int usual = buffered_at(0);
  const int slow = buffered_at(5'000'000);
  EXPECT_GE(slow, 2 * 100'000) << "what comes in 20 ms; the system says twice what it was told";
  EXPECT_LE(slow, 2 * 120'000);
  EXPECT_EQ(buffered_at(1'000'000'000), usual) << "the system finds out itself";
}

TEST_F(HttpGetTest, AnotherHostGetsNoCredentials) {
  const TestServer other([](const std::string&) { return said("200 OK", "from there"); });
  const TestServer server([&](const std::string&) {
    return said("302 Found", "elsewhere", "Location: " + other.url("/y") + "\r\n");
  });
  const auto got = get(server.url());
  ASSERT_TRUE(got.has_value()) << got.error().message;
  EXPECT_EQ(got->body, "from there");
  EXPECT_EQ(got->reply.url, other.url("/y"));
  EXPECT_THAT(other.heard()[0], AllOf(HasSubstr("X-Plain"), Not(HasSubstr("Authorization"))));
}

TEST_F(HttpGetTest, TheSameHostKeepsThem) {
  const TestServer server([](const std::string& head) {
    return head.starts_with("GET /a ") ? said("307 Moved", "", "Location: b?c\r\n")
                                       : said("200 OK", "there");
  });
  ASSERT_TRUE(get(server.url("/a")).has_value());
  EXPECT_THAT(server.heard()[1], AllOf(HasSubstr("GET /b?c "), HasSubstr("Bearer secret")));
}

TEST_F(HttpGetTest, RefusesRedirectsThatStrangersShouldNotChoose) {
  EXPECT_THAT(redirect_error("http://169.254.169.254/latest/meta-data?token=x"),
              AllOf(HasSubstr("redirects to http://169.254.169.254/latest/meta-data, which is this "
                              "machine or its link"),
                    Not(HasSubstr("token"))));
  EXPECT_THAT(redirect_error("file:///etc/passwd"), HasSubstr("neither http nor https"));
  EXPECT_THAT(redirect_error("ftp://h/x"), HasSubstr("neither http nor https"));
}

TEST_F(HttpGetTest, EndlessRedirectsEnd) {
  const TestServer server(
      [](const std::string&) { return said("302 Found", "", "Location: /again\r\n"); });
  EXPECT_THAT(get(server.url()).error().message, HasSubstr("redirects more than 10 times"));
}

TEST_F(HttpGetTest, SaysWhatFailed) {
  std::string gone;
  {
    const TestServer server([](const std::string&) { return said("200 OK", ""); });
    gone = server.url();
  }
  const auto refused = get(gone);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::kUnavailable);
  EXPECT_THAT(refused.error().message, HasSubstr("is not reached"));

  const TestServer silent([](const std::string&) { return std::string(); });
  const auto stalled = get(silent.url());
  ASSERT_FALSE(stalled.has_value());
  EXPECT_THAT(stalled.error().message, HasSubstr("stalled"));

  const TestServer cut([](const std::string&) {
    return std::string("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhalf");
  });
  EXPECT_THAT(get(cut.url()).error().message, HasSubstr("ended early"));
}

TEST_F(HttpGetTest, AStopEndsIt) {
  const TestServer server([this](const std::string&) {
    stop.request_stop();
    return std::string();
  });
  EXPECT_EQ(get(server.url()).error().code, Code::kCancelled);
}

}  // namespace
}  // namespace heddle::fetch
