#include "gateway/http_parser.h"

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace heddle::gateway {
namespace {

const std::string kHost = "Host: a\r\n";

struct Parsed {
  HttpRequest request{};
  std::string body{};
  int fault = 0;
  bool done = false;
  std::size_t used = 0;
};

/// Parses what comes in pieces of that size.
Parsed parse(std::string_view text,
             std::size_t piece = 1000000,
             HttpParser::Bounds bounds = {.head = 1024, .body = 1000}) {
  Parsed parsed;
  RequestParser parser(parsed.request, bounds);
  std::size_t begin = 0;
  for (std::size_t end = 0; end < text.size() && !parser.fault() && !parser.is_done();) {
    end = std::min(end + piece, text.size());
    std::string_view bytes = text.substr(begin, end - begin);
    parser.put(bytes);
    begin = end - bytes.size();
  }
  parsed.body = parser.body();
  parsed.fault = parser.fault() ? parser.fault()->status : 0;
  parsed.done = parser.is_done();
  parsed.used = begin;
  return parsed;
}

TEST(RequestParser, TakesARequestAndNoByteMore) {
  const std::string first =
      "POST /a?b=c HTTP/1.1\r\n" + kHost + "X:  y z \t\r\nContent-Length: 3\r\n\r\nabc";
  for (const std::size_t piece : {1U, 2U, 7U, 1000U}) {
    const Parsed parsed = parse(first + "GET / HTTP/1.1\r\n", piece);
    EXPECT_EQ(parsed.fault, 0);
    EXPECT_EQ(parsed.request.method, "POST");
    EXPECT_EQ(parsed.request.path, "/a");
    EXPECT_EQ(parsed.request.query, "b=c");
    EXPECT_EQ(parsed.request.headers[1].second, "y z");
    EXPECT_EQ(parsed.body, "abc");
    EXPECT_EQ(parsed.used, first.size());
  }
}

TEST(RequestParser, PutsChunksTogether) {
  const std::string text = "POST / HTTP/1.1\r\n" + kHost +
                           "Transfer-Encoding: chunked\r\n\r\n3;a=\"b\"\r\nabc\r\n00A ; x\r\n"
                           "0123456789\r\n0\r\nX: y\r\n\r\n";
  for (const std::size_t piece : {1U, 3U, 1000U}) {
    const Parsed parsed = parse(text + "x", piece);
    EXPECT_EQ(parsed.fault, 0);
    EXPECT_EQ(parsed.body, "abc0123456789");
    EXPECT_EQ(parsed.used, text.size());
    EXPECT_EQ(parsed.request.headers.size(), 2U) << "trailers are none";
  }
}

TEST(RequestParser, RefusesHeadsThatOthersMightReadDifferently) {
  const std::vector<std::pair<std::string, int>> cases{
      {"GET / HTTP/1.1\n" + kHost + "\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: a\n\r\n", 400},
      {"GET / HTTP/1.1\r\n" + kHost + "A: b\r\n c\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n " + kHost + "\r\n", 400},
      {"GET / HTTP/1.1\r\n" + kHost + "A : b\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n" + kHost + ": b\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n" + kHost + "A\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n" + kHost + "A: b\rc\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n" + kHost + std::string("A: b\0c\r\n\r\n", 10), 400},
      {"GET  / HTTP/1.1\r\n" + kHost + "\r\n", 400},
      {"GET / HTTP/1.1 \r\n" + kHost + "\r\n", 400},
      {"GET /a\tb HTTP/1.1\r\n" + kHost + "\r\n", 400},
      {"GET /a\x7f HTTP/1.1\r\n" + kHost + "\r\n", 400},
      {"GET a HTTP/1.1\r\n" + kHost + "\r\n", 400},
      {"GET * HTTP/1.1\r\n" + kHost + "\r\n", 400},
      {"CONNECT a:80 HTTP/1.1\r\n" + kHost + "\r\n", 400},
      {"GET http:// HTTP/1.1\r\n" + kHost + "\r\n", 400},
      {"GET http://u@a/ HTTP/1.1\r\n" + kHost + "\r\n", 400},
      {"GET / HTTP/2.0\r\n" + kHost + "\r\n", 505},
      {"GET / HTTP/0.9\r\n" + kHost + "\r\n", 505},
      {"GET / HTTP/1.2\r\n" + kHost + "\r\n", 505},
      {"GET / http/1.1\r\n" + kHost + "\r\n", 400},
      {"GET /\r\n\r\n", 400},
      {"\r\n\r\nGET / HTTP/1.1\r\n" + kHost + "\r\n", 400},
      {"\x16\x03\x01", 400},
  };
  for (const auto& [text, status] : cases) {
    for (const std::size_t piece : {1U, 1000U}) {
      EXPECT_EQ(parse(text, piece).fault, status) << text;
    }
  }
}

TEST(RequestParser, RefusesChunksThatOthersMightReadDifferently) {
  const std::string head = "POST / HTTP/1.1\r\n" + kHost + "Transfer-Encoding: chunked\r\n\r\n";
  for (const std::string& chunks : {std::string("3\nabc\r\n0\r\n\r\n"),
                                    std::string("3\r\nabcd\r\n0\r\n\r\n"),
                                    std::string("3\r\nabc\n0\r\n\r\n"),
                                    std::string("0x3\r\nabc\r\n0\r\n\r\n"),
                                    std::string("-3\r\nabc\r\n0\r\n\r\n"),
                                    std::string("+3\r\nabc\r\n0\r\n\r\n"),
                                    std::string(" 3\r\nabc\r\n0\r\n\r\n"),
                                    std::string("3 \r\nabc\r\n0\r\n\r\n"),
                                    std::string("\r\nabc\r\n0\r\n\r\n"),
                                    std::string("10000000000000003\r\nabc\r\n0\r\n\r\n"),
                                    std::string("3;a\rb\r\nabc\r\n0\r\n\r\n"),
                                    std::string("3;\"\n\"\r\nabc\r\n0\r\n\r\n"),
                                    std::string("0\r\nA\r\n\r\n"),
                                    std::string("0\r\nA: b\n\r\n")}) {
    for (const std::size_t piece : {1U, 1000U}) {
      EXPECT_EQ(parse(head + chunks, piece).fault, 400) << chunks;
    }
  }
}

TEST(RequestParser, AWholeUriAsTargetCountsInsteadOfHost) {
  const Parsed parsed = parse("GET HTTP://b:80/x?y HTTP/1.1\r\n" + kHost + "\r\n");
  EXPECT_EQ(parsed.request.path, "/x");
  EXPECT_EQ(parsed.request.query, "y");
  EXPECT_EQ(parsed.request.headers[0].second, "b:80");
  EXPECT_EQ(parse("GET http://b?y HTTP/1.1\r\n" + kHost + "\r\n").request.path, "/");
  EXPECT_TRUE(parse("OPTIONS * HTTP/1.1\r\n" + kHost + "\r\n").done);
  EXPECT_TRUE(parse("\r\nGET / HTTP/1.1\r\n" + kHost + "\r\n").done) << "one empty line goes";
}

TEST(RequestParser, AHeadIsAsLargeAsItsBoundAtMost) {
  const std::string head = "GET / HTTP/1.1\r\n" + kHost + "A: b\r\n\r\n";
  EXPECT_TRUE(parse(head, 1, {.head = head.size()}).done);
  EXPECT_EQ(parse(head, 1, {.head = head.size() - 1}).fault, 431);
  std::string endless = "GET / HTTP/1.1\r\n";
  while (endless.size() < 4096) {
    endless += "A: b\r\n";
  }
  // Even where each piece ends within the next field.
  EXPECT_EQ(parse(endless, 7).fault, 431);
  EXPECT_EQ(parse(std::string(4096, 'a'), 100).fault, 431);
}

TEST(RequestParser, TrailersAndExtensionsAreAsLargeAsAHeadAtMost) {
  const std::string head = "POST / HTTP/1.1\r\n" + kHost + "Transfer-Encoding: chunked\r\n\r\n";
  const HttpParser::Bounds bounds{.head = 100, .body = 1000};
  const std::string trailers = "A: " + std::string(93, 'b') + "\r\n\r\n";  // 100 bytes.
  EXPECT_TRUE(parse(head + "0\r\n" + trailers, 1, bounds).done);
  EXPECT_EQ(parse(head + "0\r\nc: d\r\n" + trailers, 1, bounds).fault, 431);
  EXPECT_EQ(parse(head + "0;" + std::string(101, 'x') + "\r\n\r\n", 1, bounds).fault, 431);
  std::string many = head;
  for (int i = 0; i < 60; ++i) {
    many += "1;e\r\nx\r\n";
  }
  EXPECT_EQ(parse(many, 1000, bounds).fault, 431);
  std::string plain = head;
  for (int i = 0; i < 900; ++i) {
    plain += "1\r\nx\r\n";
  }
  EXPECT_TRUE(parse(plain + "0\r\n\r\n", 1000, bounds).done);
}

TEST(RequestParser, ABodyIsAsLargeAsItsBoundAtMost) {
  const std::string head = "POST / HTTP/1.1\r\n" + kHost;
  EXPECT_EQ(parse(head + "Content-Length: 1000\r\n\r\n").fault, 0);
  EXPECT_EQ(parse(head + "Content-Length: 1001\r\n\r\n").fault, 413);
  const std::string chunked = head + "Transfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(parse(chunked + "3e8\r\n").fault, 0);
  EXPECT_EQ(parse(chunked + "3e9\r\n").fault, 413);
  EXPECT_EQ(parse(chunked + "1\r\nx\r\n3e8\r\n").fault, 413);
}

TEST(ResponseParser, EndsABodyByTheHeadTheStatusOrTheConnection) {
  const auto done = [](std::string_view text, bool to_head, bool ended) {
    ResponseParser parser(to_head, {});
    parser.put(text);
    return text.empty() && (ended ? parser.put_end() : parser.is_done());
  };
  EXPECT_TRUE(done("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", false, false));
  EXPECT_FALSE(done("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", false, true));
  EXPECT_TRUE(done("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", true, false));
  EXPECT_TRUE(done("HTTP/1.1 204 \r\n\r\n", false, false));
  EXPECT_FALSE(done("HTTP/1.1 200 OK\r\n\r\nab", false, false));
  EXPECT_TRUE(done("HTTP/1.1 200 OK\r\n\r\nab", false, true));
  EXPECT_FALSE(done("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", false, true));
  EXPECT_FALSE(done("HTTP/1.1 200 OK\r\n", false, true));
}

TEST(ResponseParser, RefusesWhatIsNoAnswer) {
  for (const std::string& text : {std::string("HTTP/1.1 20 OK\r\n\r\n"),
                                  std::string("HTTP/1.1 2000 OK\r\n\r\n"),
                                  std::string("HTTP/1.1 099 OK\r\n\r\n"),
                                  std::string("HTTP/3.0 200 OK\r\n\r\n"),
                                  std::string("200 OK\r\n\r\n"),
                                  std::string("HTTP/1.1 200 O\x01K\r\n\r\n"),
                                  std::string("HTTP/1.1 200 OK\r\nTransfer-Encoding: x\r\n\r\n")}) {
    ResponseParser parser(false, {});
    std::string_view bytes = text;
    parser.put(bytes);
    EXPECT_TRUE(parser.fault()) << text;
  }
}

}  // namespace
}  // namespace heddle::gateway
