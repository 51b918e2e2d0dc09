#include "store/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store/test_files.h"

namespace heddle::store {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

std::string header_error(std::string_view header, std::uint64_t data_bytes) {
  const auto tensors = parse_safetensors_header(header, 0, data_bytes, "m.safetensors");
  EXPECT_FALSE(tensors.has_value()) << header;
  if (tensors) {
    return "";
  }
  EXPECT_EQ(tensors.error().code, Code::kCorrupt);
  EXPECT_THAT(tensors.error().message, StartsWith("m.safetensors"));
  return tensors.error().message;
}

/// An entry of its own; the braces of the header are added.
std::string entry_error(std::string_view entry, std::uint64_t data_bytes = 8) {
  return header_error("{" + std::string(entry) + "}", data_bytes);
}

TEST(SafetensorsHeader, ReadsTensorsInOrderOfOffset) {
  const auto tensors =
      parse_safetensors_header(
          R"({"__metadata__": {"format": "pt"}, "b": {"dtype": "BF16", "shape": [2, 3],
          "data_offsets": [8, 20]}, "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
          "s": {"dtype": "U8", "shape": [], "data_offsets": [20, 21]},
          "e": {"dtype": "F32", "shape": [4, 0], "data_offsets": [20, 20]},
          "f4": {"dtype": "F4", "shape": [6], "data_offsets": [21, 24]}}   )",
          100,
          24,
          "m.safetensors")
          .value();
  ASSERT_EQ(tensors.size(), 5U);
  EXPECT_EQ(tensors[0].name, "a");
  EXPECT_EQ(tensors[0].offset, 100U);
  EXPECT_EQ(tensors[0].bytes, 8U);
  EXPECT_EQ(tensors[1].name, "b");
  EXPECT_EQ(tensors[1].offset, 108U);
  EXPECT_EQ(tensors[1].type, StoredType::kBf16);
  EXPECT_THAT(tensors[1].shape, ElementsAre(2, 3));
  EXPECT_EQ(describe(tensors[1]), "BF16 [2, 3]");
  EXPECT_EQ(tensors[2].name, "e");
  EXPECT_EQ(tensors[2].bytes, 0U);
  EXPECT_EQ(tensors[3].bytes, 1U);
  EXPECT_EQ(tensors[4].bytes, 3U);
}

TEST(SafetensorsHeader, MayBeEmpty) {
  EXPECT_TRUE(parse_safetensors_header("{}", 10, 0, "m")->empty());
}

TEST(SafetensorsHeader, RejectsUnknownTypes) {
  EXPECT_THAT(entry_error(R"("a": {"dtype": "F99", "shape": [2], "data_offsets": [0, 8]})"),
              HasSubstr("tensor \"a\" has dtype \"F99\"; known are F32, F16, BF16"));
  EXPECT_THAT(entry_error(R"("a": {"shape": [2], "data_offsets": [0, 8]})"),
              HasSubstr("has dtype missing"));
  EXPECT_THAT(entry_error(R"("a": {"dtype": 32, "shape": [2], "data_offsets": [0, 8]})"),
              HasSubstr("has dtype 32"));
  EXPECT_THAT(entry_error(R"("a": [1])"),
              HasSubstr("\"a\" is an array of 1; it must be an object"));
}

TEST(SafetensorsHeader, RejectsImpossibleShapes) {
  const auto shaped = [](std::string_view shape) {
    return entry_error(
        fmt::format(R"("a": {{"dtype": "F32", "shape": {}, "data_offsets": [0, 8]}})", shape));
  };
  EXPECT_THAT(shaped("[-2]"), HasSubstr("has size -2 in its shape; sizes are integers from 0"));
  EXPECT_THAT(shaped("[2.0]"), HasSubstr("has size 2 in its shape"));
  EXPECT_THAT(shaped("[\"2\"]"), HasSubstr("has size \"2\" in its shape"));
  EXPECT_THAT(shaped("2"), HasSubstr("has shape 2; it must be an array"));
  EXPECT_THAT(shaped("[4294967296, 4294967296]"), HasSubstr("product does not fit 63 bits"));
  EXPECT_THAT(shaped("[9223372036854775807]"), HasSubstr("product does not fit 63 bits"));
  EXPECT_THAT(shaped("[9223372036854775807, 0]"), HasSubstr("product does not fit 63 bits"));
  EXPECT_THAT(shaped("[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,2]"), HasSubstr("at most 16 sizes"));
  EXPECT_THAT(entry_error(R"("a": {"dtype": "F4", "shape": [3], "data_offsets": [0, 1]})", 1),
              HasSubstr("(F4 [3]) does not end at a whole byte"));
}

TEST(SafetensorsHeader, RejectsRangesThatAreNone) {
  const auto ranged = [](std::string_view range) {
    return entry_error(
        fmt::format(R"("a": {{"dtype": "F32", "shape": [2], "data_offsets": {}}})", range));
  };
  EXPECT_THAT(ranged("[8, 0]"), HasSubstr("data_offsets [8, 0]; they must be [begin, end]"));
  EXPECT_THAT(ranged("[-8, 0]"), HasSubstr("data_offsets [-8, 0]; they must be"));
  EXPECT_THAT(ranged("[0, 8, 8]"), HasSubstr("data_offsets an array of 3; they must be"));
  EXPECT_THAT(ranged("[0, 8.5]"), HasSubstr("data_offsets [0, 8.5]; they must be"));
  EXPECT_THAT(ranged("[0, 18446744073709551615]"), HasSubstr("they must be [begin, end]"));
  EXPECT_THAT(ranged("null"), HasSubstr("data_offsets null; they must be"));
}

TEST(SafetensorsHeader, RejectsLies) {
  EXPECT_THAT(entry_error(R"("a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]})", 4),
              HasSubstr("tensor \"a\" ends at byte 8, but the file has 4 bytes of data: it is "
                        "truncated or its header lies"));
  EXPECT_THAT(entry_error(R"("a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]})", 4),
              HasSubstr("tensor \"a\" (F32 [2]) has 4 bytes of data; its shape takes 8"));
}

TEST(SafetensorsHeader, RejectsOverlapsAndHoles) {
  constexpr std::string_view kA = R"("a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]})";
  EXPECT_THAT(entry_error(std::string(kA) +
                              R"(, "b": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]})",
                          12),
              HasSubstr("tensor \"b\" begins at byte 4 of the data, within the tensor before it, "
                        "which ends at 8; tensors must not overlap"));
  EXPECT_THAT(
      entry_error(
          std::string(kA) + R"(, "b": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]})", 8),
      HasSubstr("must not overlap"));
  EXPECT_THAT(entry_error(std::string(kA) +
                              R"(, "b": {"dtype": "F32", "shape": [1], "data_offsets": [12, 16]})",
                          16),
              HasSubstr("tensor \"b\" begins at byte 12 of the data, but the tensor before it ends "
                        "at 8; there must be no hole"));
  EXPECT_THAT(entry_error(kA, 12), HasSubstr("the tensors end at byte 8 of 12 bytes of data"));
  EXPECT_THAT(entry_error(R"("a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]})", 8),
              HasSubstr("there must be no hole"));
}

TEST(SafetensorsHeader, RejectsDoubledNamesAndBrokenJson) {
  constexpr std::string_view kA = R"("a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]})";
  EXPECT_THAT(entry_error(std::string(kA) + ", " + std::string(kA)),
              HasSubstr("the key \"a\" appears twice"));
  EXPECT_THAT(header_error("{\"a\": ", 8), HasSubstr("not valid JSON"));
  EXPECT_THAT(header_error("[]", 8), HasSubstr("the header does not begin with {"));
  EXPECT_THAT(header_error("", 8), HasSubstr("the header does not begin with {"));
}

TEST(SafetensorsFile, OpensWhatWasWritten) {
  const TempDirectory directory;
  const auto path = directory.path() / "m.safetensors";
  write_safetensors(
      path, {{"x", {StoredType::kF32, {2}, "abcdefgh"}}, {"y", {StoredType::kBf16, {1, 1}, "ij"}}});
  const SafetensorsFile opened = SafetensorsFile::open(path).value();
  ASSERT_EQ(opened.tensors.size(), 2U);
  std::string data(8, '?');
  ASSERT_TRUE(opened.file.read(opened.tensors[0].offset, std::as_writable_bytes(std::span(data))));
  EXPECT_EQ(data, "abcdefgh");
}

TEST(SafetensorsFile, EveryTruncationIsOneError) {
  const TempDirectory directory;
  const auto path = directory.path() / "m.safetensors";
  write_safetensors(path, {{"x", {StoredType::kF32, {2}, "abcdefgh"}}});
  const auto whole = std::filesystem::file_size(path);
  for (std::uintmax_t bytes = whole; bytes-- > 0;) {
    std::filesystem::resize_file(path, bytes);
    const auto opened = SafetensorsFile::open(path);
    ASSERT_FALSE(opened.has_value()) << bytes << " of " << whole << " bytes";
    EXPECT_EQ(opened.error().code, Code::kCorrupt);
    EXPECT_THAT(opened.error().message, HasSubstr("m.safetensors"));
  }
}

TEST(SafetensorsFile, RejectsLyingLengths) {
  const TempDirectory directory;
  const auto path = directory.path() / "m.safetensors";
  const auto error = [&](const std::string& text) {
    write_text(path, text);
    return SafetensorsFile::open(path).error().message;
  };
  EXPECT_THAT(error("1234567"), HasSubstr("7 bytes are too few for a safetensors file"));
  EXPECT_THAT(error(length_prefix(100) + "{}"),
              HasSubstr("claims a header of 100 bytes; the file has 2 more"));
  EXPECT_THAT(error(length_prefix(UINT64_MAX) + "{}"),
              HasSubstr("claims a header of 18446744073709551615 bytes"));
  EXPECT_THAT(error(length_prefix(0)), HasSubstr("the header does not begin with {"));
  // A sparse file that could hold such a header, if it were read.
  write_text(path, length_prefix(kHeaderBytesMax + 1));
  std::filesystem::resize_file(path, kHeaderBytesMax + 100);
  EXPECT_THAT(SafetensorsFile::open(path).error().message, HasSubstr("at most 100000000 are read"));
}

TEST(SafetensorsIndex, GivesTheFileOfEveryTensor) {
  const auto shards = parse_safetensors_index(
                          R"({"metadata": {"total_size": 8}, "weight_map": {"b": "m-2.safetensors",
          "a": "m-1.safetensors"}})",
                          "index.json")
                          .value();
  EXPECT_EQ(shards.at("a"), "m-1.safetensors");
  EXPECT_EQ(shards.at("b"), "m-2.safetensors");
}

TEST(SafetensorsIndex, NothingPointsOutOfTheDirectory) {
  for (const char* name : {"../m.safetensors",
                           "/etc/passwd",
                           "a/b.safetensors",
                           "..",
                           ".",
                           "",
                           "a\\\\b",
                           "a\\u0000b"}) {
    const auto shards = parse_safetensors_index(
        fmt::format(R"({{"weight_map": {{"a": "{}"}}}})", name), "index.json");
    ASSERT_FALSE(shards.has_value()) << name;
    EXPECT_THAT(shards.error().message,
                AllOf(HasSubstr("index.json: weight_map[\"a\"] is "),
                      HasSubstr("it must be the plain name of a file in the same directory")));
  }
}

TEST(SafetensorsIndex, RejectsWhatIsNoMap) {
  const auto error = [](std::string_view text) {
    return parse_safetensors_index(text, "index.json").error().message;
  };
  EXPECT_THAT(error("{}"), HasSubstr("weight_map is missing; it must be an object"));
  EXPECT_THAT(error("[]"), HasSubstr("weight_map is missing"));
  EXPECT_THAT(error(R"({"weight_map": ["a"]})"), HasSubstr("weight_map is an array of 1"));
  EXPECT_THAT(error(R"({"weight_map": {"a": 1}})"), HasSubstr("weight_map[\"a\"] is 1"));
  EXPECT_THAT(error(R"({"weight_map": {"a": "x", "a": "y"}})"), HasSubstr("appears twice"));
}

}  // namespace
}  // namespace heddle::store
