#include "fetch/ranged_read.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fetch/fault.h"
#include "fetch/test_source.h"

namespace heddle::fetch {
namespace {

using testing::HasSubstr;
using testing::Not;

class RangedReadTest : public testing::Test {
 protected:
  /// Reads a range of `content` from a server that gives these answers; the last one again and
  /// again.
  Result<void> read(std::vector<TestServer::Answer> answers, Range range) {
    std::size_t next = 0;
    const TestServer server([&](const std::string& head) {
      heard.push_back(head);
      return answers[std::min(next++, answers.size() - 1)](head);
    });
    object.url = server.url("/f");
    object.bytes = content.size();
    HttpGet http(quick().http);
    return read_range(
        http,
        {.object = object,
         .range = range,
         .request = [&] { return GetRequest{.url = object.url}; },
         .explain = [](const GetReply& reply) { return fault_of(reply, {.model = "m"}); }},
        quick().retry,
        [&](std::uint64_t offset, std::span<const std::byte> part) -> Result<void> {
          EXPECT_EQ(offset, range.begin + came.size());
          came.append(reinterpret_cast<const char*>(part.data()), part.size());
          return {};
        },
        stop.get_token());
  }
  TestServer::Answer right(const std::string& headers = "ETag: \"e\"\r\n") {
    return [this, headers](const std::string& head) { return said_range(head, content, headers); };
  }
  /// Says the first `bytes` of the right answer.
  TestServer::Answer cut(std::size_t bytes) {
    return [this, bytes](const std::string& head) {
      const std::string whole = said_range(head, content, "ETag: \"e\"\r\n");
      return whole.substr(0, whole.find("\r\n\r\n") + 4 + bytes);
    };
  }
  TestServer::Answer whole(const std::string& headers = "") {
    return [this, headers](const std::string&) { return said("200 OK", content, headers); };
  }
  static TestServer::Answer status(const std::string& line, const std::string& headers = "") {
    return [line, headers](const std::string&) { return said(line, "", headers); };
  }

  std::string content = pattern(1000);
  Object object{.name = "f", .validator = "\"e\""};
  std::string came{};
  std::vector<std::string> heard{};
  std::stop_source stop{};
};

TEST_F(RangedReadTest, AsksForWhatIsWanted) {
  ASSERT_TRUE(read({right()}, {100, 300}).has_value());
  EXPECT_EQ(came, content.substr(100, 200));
  EXPECT_THAT(heard[0], HasSubstr("Range: bytes=100-299\r\n"));
  EXPECT_THAT(heard[0], HasSubstr("If-Range: \"e\"\r\n"));
}

TEST_F(RangedReadTest, GoesOnWhereAnAnswerEnded) {
  const Result<void> done =
      read({cut(50), status("503 Busy"), status("429 Slow"), cut(7), right()}, {0, 1000});
  ASSERT_TRUE(done.has_value()) << done.error().message;
  EXPECT_EQ(came, content);
  EXPECT_THAT(heard[0], Not(HasSubstr("Range:")));
  EXPECT_THAT(heard[1], HasSubstr("Range: bytes=50-999\r\n"));
  EXPECT_THAT(heard[4], HasSubstr("Range: bytes=57-999\r\n"));
}

TEST_F(RangedReadTest, GivesUpInTheEnd) {
  const Result<void> done = read({cut(50), status("503 Busy")}, {0, 1000});
  ASSERT_FALSE(done.has_value());
  EXPECT_EQ(done.error().code, Code::kUnavailable);
  EXPECT_THAT(done.error().message, HasSubstr("answered 503 (tried 3 times)"));
  EXPECT_EQ(heard.size(), 4U);
}

TEST_F(RangedReadTest, WaitsNoLongerThanItMay) {
  const Result<void> done = read({status("429 Slow", "Retry-After: 3000\r\n")}, {0, 1000});
  ASSERT_FALSE(done.has_value());
  EXPECT_EQ(heard.size(), 1U);
}

TEST_F(RangedReadTest, WhatIsForeverIsNotTriedAgain) {
  EXPECT_EQ(read({status("404 Gone")}, {0, 1000}).error().code, Code::kNotFound);
  EXPECT_EQ(heard.size(), 1U);
}

TEST_F(RangedReadTest, NoticesAnotherObject) {
  const Result<void> tag = read({cut(50), right("ETag: \"f\"\r\n")}, {0, 1000});
  ASSERT_FALSE(tag.has_value());
  EXPECT_EQ(tag.error().code, Code::kCorrupt);
  EXPECT_THAT(tag.error().message,
              HasSubstr("/f changed while it was fetched: its ETag was \"e\""));
  came.clear();
  const Result<void> size =
      read({[](const std::string&) {
             return said("206 Partial", "x", "Content-Range: bytes 0-0/1001\r\n");
           }},
           {0, 10});
  ASSERT_FALSE(size.has_value());
  EXPECT_THAT(size.error().message, HasSubstr("it had 1000 bytes and has 1001"));
}

TEST_F(RangedReadTest, AnObjectWithADigestMayHaveManyTags) {
  object.sha256 = std::string(64, 'a');
  ASSERT_TRUE(read({cut(50), right("ETag: \"f\"\r\n")}, {0, 1000}).has_value());
  EXPECT_EQ(came, content);
}

TEST_F(RangedReadTest, NoticesAnotherRange) {
  const Result<void> done =
      read({[](const std::string&) {
             return said("206 Partial", "x", "Content-Range: bytes 5-5/1000\r\n");
           }},
           {0, 10});
  ASSERT_FALSE(done.has_value());
  EXPECT_THAT(done.error().message, HasSubstr("the server sent \"bytes 5-5/1000\""));
}

TEST_F(RangedReadTest, AServerWithoutRangesGivesTheWhole) {
  EXPECT_EQ(read({whole()}, {100, 300}).error().message, kIgnoresRanges);
  const auto half = [this](const std::string&) { return said("200 OK", content).substr(0, 400); };
  const Result<void> done = read({half, whole()}, {0, 1000});
  ASSERT_TRUE(done.has_value()) << done.error().message;
  EXPECT_EQ(came, content);
}

TEST_F(RangedReadTest, AStopEndsAWait) {
  const auto stopping = [this](const std::string&) {
    stop.request_stop();
    return said("503 Busy", "");
  };
  EXPECT_EQ(read({stopping}, {0, 10}).error().code, Code::kCancelled);
}

TEST(ContentRange, IsReadStrictly) {
  const auto range = parse_content_range("bytes 0-99/1000");
  ASSERT_TRUE(range.has_value());
  EXPECT_EQ(range->range, (Range{0, 100}));
  EXPECT_EQ(range->whole, 1000U);
  EXPECT_EQ(parse_content_range("bytes */0")->whole, 0U);
  for (const char* text :
       {"", "bytes", "bytes 0-99/*", "bytes 5-4/10", "bytes 0-10/10", "items 0-1/2", "bytes 0/3"}) {
    EXPECT_FALSE(parse_content_range(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace heddle::fetch
