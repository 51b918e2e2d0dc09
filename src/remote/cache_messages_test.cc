#include "remote/cache_messages.h"

#include <string>

#include <gtest/gtest.h>

#include "base/json_line.h"
#include "remote/cache_fields.h"

namespace heddle::remote {
namespace {

template <class T>
std::string json_of(const T& value) {
  std::string line;
  write_json_line(type_of<T>(), &value, line);
  return line;
}

ReadCached read_of(std::uint64_t begin, std::uint64_t bytes) {
  return {.ask = AskId(2),
          .model = "acme/small",
          .file = "model.safetensors",
          .file_bytes = 1000,
          .identity = "\"tag\"",
          .begin = begin,
          .bytes = bytes};
}

TEST(CacheMessages, ComeBackAsTheyWere) {
  const ToCache list = ListCached{.ask = AskId(1), .model = "s3://bucket/small"};
  for (const ToCache& message : {list, ToCache(read_of(990, 10))}) {
    const Result<ToCache> read = decode_to_cache(encode(message));
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(json_of(*read), json_of(message));
  }
  const FromCache files =
      CachedFiles{.ask = AskId(1),
                  .revision = "main",
                  .files = {{.name = "config.json", .bytes = 3, .sha256 = "s"},
                            {.name = "a/b", .git_sha1 = "g", .validator = "v"}}};
  const FromCache bytes = CachedBytes{.ask = AskId(2), .bytes = std::string("a\0b", 3)};
  const FromCache refusal =
      CacheRefusal{.ask = AskId(3), .error = {Code::kNotFound, "it is not there"}};
  for (const FromCache& message : {files, bytes, refusal}) {
    const Result<FromCache> read = decode_from_cache(encode(message));
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(json_of(*read), json_of(message));
  }
}

TEST(CacheMessages, WhatCannotBeIsRefused) {
  EXPECT_FALSE(decode_to_cache(encode(ToCache(read_of(990, 11))))) << "behind the end";
  EXPECT_FALSE(decode_to_cache(encode(ToCache(read_of(1001, 1)))));
  EXPECT_FALSE(decode_to_cache(encode(ToCache(read_of(UINT64_MAX, 2)))));
  EXPECT_FALSE(decode_to_cache(encode(ToCache(read_of(0, 0)))));
  ReadCached much = read_of(0, kCachePieceMost + 1);
  much.file_bytes = UINT64_MAX;
  EXPECT_FALSE(decode_to_cache(encode(ToCache(much))));
  EXPECT_FALSE(decode_from_cache(
      encode(FromCache(CachedBytes{.bytes = std::string(kCachePieceMost + 1, 'x')}))));
  EXPECT_FALSE(decode_from_cache(encode(ToCache(ListCached{})))) << "it goes the other way only";
  EXPECT_FALSE(decode_to_cache("nonsense"));
}

}  // namespace
}  // namespace heddle::remote
