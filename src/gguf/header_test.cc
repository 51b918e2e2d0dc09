#include "gguf/header.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "gguf/test_gguf.h"

namespace heddle::gguf {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

std::string fault(const TestGguf& file) {
  const Result<Header> header = parse(file.bytes());
  return header ? "accepted" : header.error().message;
}

TEST(Header, ReadsMetadataOfEachType) {
  TestGguf file;
  file.key("u8", ValueType::kU8, raw(std::uint8_t{200}))
      .key("i8", ValueType::kI8, raw(std::int8_t{-3}))
      .key("u16", ValueType::kU16, raw(std::uint16_t{60000}))
      .key("i16", ValueType::kI16, raw(std::int16_t{-300}))
      .u32("u32", 4000000000U)
      .key("i32", ValueType::kI32, raw(std::int32_t{-7}))
      .key("u64", ValueType::kU64, raw(std::uint64_t{5}))
      .key("big", ValueType::kU64, raw(~std::uint64_t{0}))
      .key("i64", ValueType::kI64, raw(std::int64_t{-9}))
      .f32("f32", 0.1F)
      .key("f64", ValueType::kF64, raw(0.1))
      .flag("bool", true)
      .text("text", "grüße")
      .texts("texts", {"a", ""})
      .numbers<float>("floats", ValueType::kF32, {1, 2})
      .numbers<std::int32_t>("ints", ValueType::kI32, {3, -4});
  for (const std::uint32_t version : {2U, 3U}) {
    file.version = version;
    const Header header = parse(file.bytes()).value();
    EXPECT_EQ(header.version, version);
    const Metadata& values = header.metadata;
    EXPECT_EQ(values.size(), 16U);
    const auto integer = [&](const char* key) { return std::get<std::int64_t>(values.at(key)); };
    EXPECT_EQ(integer("u8"), 200);
    EXPECT_EQ(integer("i8"), -3);
    EXPECT_EQ(integer("u16"), 60000);
    EXPECT_EQ(integer("i16"), -300);
    EXPECT_EQ(integer("u32"), 4000000000);
    EXPECT_EQ(integer("i32"), -7);
    EXPECT_EQ(integer("u64"), 5);
    EXPECT_EQ(integer("i64"), -9);
    EXPECT_EQ(std::get<std::uint64_t>(values.at("big")), ~std::uint64_t{0});
    EXPECT_EQ(std::get<float>(values.at("f32")), 0.1F);
    EXPECT_EQ(std::get<double>(values.at("f64")), 0.1);
    EXPECT_TRUE(std::get<bool>(values.at("bool")));
    EXPECT_EQ(std::get<std::string>(values.at("text")), "grüße");
    EXPECT_THAT(std::get<Array>(values.at("texts")).texts, ElementsAre("a", ""));
    EXPECT_THAT(std::get<Array>(values.at("floats")).numbers, ElementsAre(1, 2));
    EXPECT_THAT(std::get<Array>(values.at("ints")).integers, ElementsAre(3, -4));
  }
}

TEST(Header, TurnsShapesRoundAndCountsOffsetsFromTheStart) {
  TestGguf file;
  file.zeros("a", {3}).tensor(
      {.name = "b", .sizes = {64, 2}, .type = 8, .data = std::string(136, 'x')});
  const std::string bytes = file.bytes();
  const Header header = parse(bytes).value();
  ASSERT_EQ(header.tensors.size(), 2U);
  EXPECT_THAT(header.tensors[0].shape, ElementsAre(3));
  EXPECT_EQ(header.tensors[0].bytes, 12U);
  EXPECT_THAT(header.tensors[1].shape, ElementsAre(2, 64));
  EXPECT_EQ(header.tensors[1].type, BlockType::kQ80);
  EXPECT_EQ(header.tensors[1].bytes, 136U);
  EXPECT_EQ(bytes.substr(header.tensors[1].offset), std::string(136, 'x'));
}

TEST(Header, HonoursTheAlignment) {
  TestGguf file;
  file.u32("general.alignment", 64).zeros("a", {1}).zeros("b", {1});
  file.alignment = 64;
  const Header header = parse(file.bytes()).value();
  EXPECT_EQ(header.tensors[0].offset % 64, 0U);
  EXPECT_EQ(header.tensors[1].offset - header.tensors[0].offset, 64U);
}

TEST(Header, CountsLargeArraysWhereTheyAreNotWanted) {
  TestGguf file;
  file.texts("long", std::vector<std::string>(2000, "token"))
      .numbers("scores", ValueType::kF32, std::vector<float>(2000, 1))
      .texts("short", {"a"})
      .u32("behind", 7);
  const Metadata few = parse(file.bytes(), Keep::kSmall).value().metadata;
  EXPECT_EQ(std::get<Array>(few.at("long")).count, 2000U);
  EXPECT_TRUE(std::get<Array>(few.at("long")).texts.empty());
  EXPECT_TRUE(std::get<Array>(few.at("scores")).numbers.empty());
  EXPECT_THAT(std::get<Array>(few.at("short")).texts, ElementsAre("a"));
  EXPECT_EQ(std::get<std::int64_t>(few.at("behind")), 7);
  EXPECT_EQ(std::get<Array>(parse(file.bytes()).value().metadata.at("long")).texts.size(), 2000U);
}

TEST(Header, SaysWhatIsNoGguf) {
  EXPECT_EQ(parse("GGML0000" + std::string(16, '\0')).error().message,
            "m: is no GGUF file, which begins with \"GGUF\"");
  EXPECT_EQ(parse("").error().message,
            "m: the magic needs 4 bytes at byte 0, but 0 are left: the file ends there");
  TestGguf file;
  file.version = 1;
  EXPECT_EQ(fault(file), "m: is a GGUF file of version 1; read are versions 2 and 3");
  file.version = 0x03000000;
  EXPECT_EQ(fault(file), "m: is a big-endian GGUF file; read are little-endian ones");
}

TEST(Header, BoundsCounts) {
  TestGguf file;
  file.keys_more = 1U << 20U;
  EXPECT_EQ(fault(file), "m: has 1048576 keys of metadata; at most 65536 are read");
  file.keys_more = 0;
  file.tensors_more = ~std::uint64_t{0};
  EXPECT_EQ(fault(file), "m: has 18446744073709551615 tensors; at most 65536 are read");
  file.tensors_more = 1;
  EXPECT_THAT(fault(file), HasSubstr("the file ends there"));
}

TEST(Header, NamesTheKeyThatIsWrong) {
  EXPECT_EQ(fault(TestGguf().u32("a", 1).u32("a", 2)), "m: key \"a\" is there twice");
  EXPECT_EQ(fault(TestGguf().key("a", static_cast<ValueType>(13), "")),
            "m: key \"a\" has type 13; types are 0 to 12");
  EXPECT_EQ(fault(TestGguf().key("a", ValueType::kBool, "\x02")),
            "m: key \"a\" is a bool of value 2; those are 0 and 1");
  EXPECT_THAT(
      fault(TestGguf().key("a", ValueType::kText, raw(std::uint64_t{1} << 40U))),
      StartsWith("m: key \"a\" is a string of 1099511627776 bytes; at most 16777216 are read"));
  EXPECT_THAT(fault(TestGguf().key("a", ValueType::kText, raw(std::uint64_t{1000}))),
              HasSubstr("are left: the file ends there"));
  EXPECT_THAT(fault(TestGguf().key(std::string(5000, 'k'), ValueType::kU8, "x")),
              StartsWith("m: key 1 of 1 is a string of 5000 bytes; at most 4096 are read"));
}

TEST(Header, BoundsArrays) {
  const auto array = [](ValueType type, std::uint64_t count) {
    return TestGguf().key("a", ValueType::kArray, raw_type(type) + raw(count));
  };
  EXPECT_THAT(fault(array(ValueType::kU8, 1U << 25U)),
              StartsWith("m: key \"a\" is an array of 33554432 u8; at most 16777216 are read"));
  EXPECT_THAT(fault(array(ValueType::kText, 1000)), HasSubstr("an array of 1000 strings"));
  std::string nested;
  for (int i = 0; i < 5; ++i) {
    nested += raw_type(ValueType::kArray) + raw(std::uint64_t{1});
  }
  nested += raw_type(ValueType::kU8) + raw(std::uint64_t{1}) + "x";
  EXPECT_EQ(fault(TestGguf().key("a", ValueType::kArray, nested)),
            "m: key \"a\" has arrays in arrays 5 deep; at most 4");
}

TEST(Header, NamesTheTensorThatIsWrong) {
  const auto one = [](TestGguf::Info info) { return fault(TestGguf().tensor(std::move(info))); };
  const std::string data(16, '\0');
  EXPECT_EQ(one({.name = "t", .sizes = {}, .data = data}),
            "m: tensor \"t\" has 0 dimensions; tensors have 1 to 4");
  EXPECT_EQ(one({.name = "t", .sizes = {1, 1, 1, 1, 1}, .data = data}),
            "m: tensor \"t\" has 5 dimensions; tensors have 1 to 4");
  EXPECT_THAT(one({.name = "t", .sizes = {0}, .data = data}),
              StartsWith("m: tensor \"t\" has size 0 in its shape"));
  EXPECT_THAT(one({.name = "t", .sizes = {1U << 31U, 1U << 31U}, .data = data}),
              StartsWith("m: tensor \"t\" has size 2147483648 in its shape"));
  EXPECT_THAT(
      one({.name = "t", .sizes = {4}, .type = 5, .data = data}),
      StartsWith("m: tensor \"t\" has type 5, which is none of the types known; read are F32,"));
  EXPECT_EQ(one({.name = "t", .sizes = {33}, .type = 8, .data = data}),
            "m: tensor \"t\" has rows of 33 numbers; Q8_0 has blocks of 32");
  EXPECT_EQ(
      one({.name = "t", .sizes = {4}, .data = data, .offset = 4}),
      "m: tensor \"t\" begins at byte 4 of the data, which is no multiple of the alignment, 32");
  EXPECT_EQ(one({.name = "t", .sizes = {5}, .data = data}),
            "m: tensor \"t\" has 20 bytes from byte 0 of the data on, but the file has 16 bytes of "
            "data: it is truncated or its header lies");
  EXPECT_EQ(fault(TestGguf().zeros("t", {1}).zeros("t", {1})), "m: tensor \"t\" is there twice");
  EXPECT_EQ(
      fault(TestGguf().zeros("s", {16}).tensor(
          {.name = "t", .sizes = {4}, .data = data, .offset = 32})),
      "m: tensor \"t\" begins at byte 32 of the data, within the tensor before it, which ends at "
      "64; tensors must not overlap");
}

TEST(Header, RefusesAnAlignmentThatIsNone) {
  for (const std::uint32_t alignment : {0U, 3U, 1U << 20U}) {
    EXPECT_EQ(fault(TestGguf().u32("general.alignment", alignment)),
              "m: key \"general.alignment\" is " + std::to_string(alignment) +
                  "; it must be a power of two up to 65536");
  }
}

TEST(Header, ShowsNoControlCharacters) {
  EXPECT_THAT(fault(TestGguf().u32("a\x1b[2J", 1).u32("a\x1b[2J", 1)), HasSubstr("a?[2J"));
}

// Whatever becomes of the bytes of a file, reading it ends, and within them.
TEST(Header, SurvivesFlippedBytes) {
  const std::string good = small_model().texts("list", {"a", "b"}).bytes();
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    Rng rng(seed);
    std::string bad = good;
    for (std::uint64_t flips = 1 + rng.below(4); flips > 0; --flips) {
      bad[rng.below(bad.size())] = static_cast<char>(rng.next());
    }
    bad.resize(bad.size() - rng.below(64));
    const Result<Header> header = parse(bad);
    if (!header) {
      EXPECT_THAT(header.error().message, StartsWith("m: ")) << "seed " << seed;
      continue;
    }
    for (const Tensor& tensor : header->tensors) {
      EXPECT_LE(tensor.offset + tensor.bytes, bad.size()) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace heddle::gguf
