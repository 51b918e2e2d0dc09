#include "remote/edge_messages.h"

#include <string>

#include <gtest/gtest.h>

#include "base/json_line.h"
#include "remote/edge_fields.h"

namespace heddle::remote {
namespace {

template <class T>
std::string line_of(const T& value) {
  std::string line;
  write_json_line(type_of<T>(), &value, line);
  return line;
}

TEST(EdgeMessages, ComeBackAsTheyWere) {
  const ToEdge open = OpenEdge{.group = {.term = 3, .number = 5}, .stage = 1};
  const ToEdge bytes = StreamBytes{.bytes = "abc"};
  for (const ToEdge& message : {open, bytes}) {
    const Result<ToEdge> read = decode_to_edge(encode(message));
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(line_of(*read), line_of(message));
  }
  const FromEdge opened = EdgeOpened{};
  const FromEdge taken = StreamTaken{.bytes = 7};
  for (const FromEdge& message : {opened, taken}) {
    const Result<FromEdge> read = decode_from_edge(encode(message));
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(line_of(*read), line_of(message));
  }
}

TEST(EdgeMessages, WhatCannotBeIsRefused) {
  EXPECT_FALSE(decode_from_edge(encode(ToEdge(OpenEdge{})))) << "it goes the other way only";
  EXPECT_FALSE(decode_to_edge(encode(FromEdge(EdgeOpened{}))));
  EXPECT_FALSE(decode_to_edge(encode(ToEdge(OpenEdge{.stage = -1}))));
  EXPECT_FALSE(decode_to_edge("nonsense"));
}

}  // namespace
}  // namespace heddle::remote
