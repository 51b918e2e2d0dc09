#include "remote/stream_messages.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/json_line.h"
#include "remote/stream_fields.h"

namespace heddle::remote {
namespace {

template <class T>
std::string line_of(const T& value) {
  std::string line;
  write_json_line(type_of<T>(), &value, line);
  return line;
}

TEST(StreamMessages, ComeBackAsTheyWere) {
  const StreamId stream{7};
  const std::string bytes("\0\xff\r\n", 4);
  const std::vector<ToEngines> to{OpenStream{.stream = stream, .model = ModelId(3)},
                                  StreamBytes{.stream = stream, .bytes = bytes},
                                  StreamTaken{.stream = stream, .bytes = 65536},
                                  StreamIdle{.stream = stream},
                                  StreamEnded{.stream = stream}};
  for (const ToEngines& message : to) {
    const Result<ToEngines> read = decode_to_engines(encode(message));
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(line_of(*read), line_of(message));
  }
  const std::vector<FromEngines> from{
      StreamOpened{.stream = stream, .host = "127.0.0.1", .port = 5800, .base_path = "/v2"},
      StreamBytes{.stream = stream, .bytes = bytes},
      StreamTaken{.stream = stream, .bytes = 1},
      StreamEnded{.stream = stream, .error = Error{Code::kUnavailable, "refused"}}};
  for (const FromEngines& message : from) {
    const Result<FromEngines> read = decode_from_engines(encode(message));
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(line_of(*read), line_of(message));
  }
}

TEST(StreamMessages, WhatCannotBeIsRefused) {
  EXPECT_FALSE(decode_from_engines(encode(ToEngines(OpenStream{}))))
      << "it goes the other way only";
  EXPECT_FALSE(decode_to_engines(encode(ToEngines(StreamBytes{.stream = StreamId(1)}))));
  EXPECT_FALSE(decode_to_engines(
      encode(ToEngines(StreamBytes{.bytes = std::string(kStreamPieceMost + 1, 'x')}))));
  EXPECT_FALSE(decode_from_engines(encode(FromEngines(StreamOpened{.host = "a\r\nX: b"}))))
      << "it would be a header of its own";
  EXPECT_FALSE(decode_from_engines(encode(FromEngines(StreamOpened{.base_path = "/a b"}))));
  EXPECT_FALSE(decode_to_engines("nonsense"));
  EXPECT_FALSE(is_head_text(std::string(1025, 'x')));
  EXPECT_TRUE(is_head_text(std::string(1024, 'x')));
}

}  // namespace
}  // namespace heddle::remote
