#include "gguf/gguf_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/test_directory.h"
#include "gguf/test_gguf.h"

namespace heddle::gguf {
namespace {

using testing::HasSubstr;

TestGguf part(std::uint32_t number, std::uint32_t count, const std::string& tensor) {
  TestGguf file;
  file.key("split.no", ValueType::kU16, raw(static_cast<std::uint16_t>(number)))
      .key("split.count", ValueType::kU16, raw(static_cast<std::uint16_t>(count)));
  file.zeros(tensor, {4});
  return file;
}

class GgufFileTest : public testing::Test {
 protected:
  void write(const std::string& name, const TestGguf& file) const {
    write_text(directory_.path() / name, file.bytes());
  }
  [[nodiscard]] Result<GgufFile> open(const std::string& name) const {
    return GgufFile::open(directory_.path() / name, Keep::kAll);
  }
  TempDirectory directory_{};
};

TEST_F(GgufFileTest, JoinsTheParts) {
  write("m-00001-of-00002.gguf", part(0, 2, "a").u32("general.thing", 5));
  write("m-00002-of-00002.gguf", part(1, 2, "b"));
  const GgufFile file = open("m-00001-of-00002.gguf").value();
  EXPECT_EQ(file.files.size(), 2U);
  EXPECT_NE(file.find("general.thing"), nullptr);
  ASSERT_NE(file.tensor("b"), nullptr);
  EXPECT_EQ(file.tensor("b")->file, 1U);
  EXPECT_EQ(file.tensor("a")->file, 0U);
  EXPECT_EQ(file.tensor("c"), nullptr);
}

TEST_F(GgufFileTest, SaysWhichPartToGive) {
  write("m-00002-of-00002.gguf", part(1, 2, "b"));
  EXPECT_THAT(open("m-00002-of-00002.gguf").error().message,
              HasSubstr("is a later part of a split model; give its first, m-00001-of-00002.gguf"));
}

TEST_F(GgufFileTest, NamesThePartThatIsMissing) {
  write("m-00001-of-00002.gguf", part(0, 2, "a"));
  EXPECT_EQ(open("m-00001-of-00002.gguf").error().code, Code::kNotFound);
  EXPECT_THAT(open("m-00001-of-00002.gguf").error().message, HasSubstr("m-00002-of-00002.gguf"));
}

TEST_F(GgufFileTest, PartsBelongTogether) {
  write("m-00001-of-00002.gguf", part(0, 2, "a"));
  write("m-00002-of-00002.gguf", part(0, 2, "b"));
  EXPECT_THAT(open("m-00001-of-00002.gguf").error().message,
              HasSubstr("says that it is part 1 of 2; by its name it is part 2 of 2"));
  write("m-00002-of-00002.gguf", part(1, 2, "a"));
  EXPECT_THAT(open("m-00001-of-00002.gguf").error().message,
              HasSubstr("tensor \"a\" is in a part before it, too"));
  write("m-00001-of-00002.gguf", part(0, 2, "a").u32("split.tensors.count", 3));
  write("m-00002-of-00002.gguf", part(1, 2, "b"));
  EXPECT_THAT(open("m-00001-of-00002.gguf").error().message,
              HasSubstr("\"split.tensors.count\" is 3, but its 2 parts have 2 tensors"));
  write("whole.gguf", part(0, 2, "a"));
  EXPECT_THAT(open("whole.gguf").error().message,
              HasSubstr("part 1 of 2; by its name it is part 1 of 1"));
}

TEST_F(GgufFileTest, IsAFileOfThatName) {
  write("m.gguf", TestGguf());
  std::filesystem::create_directory(directory_.path() / "d.gguf");
  EXPECT_TRUE(is_gguf(directory_.path() / "m.gguf"));
  EXPECT_FALSE(is_gguf(directory_.path() / "d.gguf"));
  EXPECT_FALSE(is_gguf(directory_.path() / "absent.gguf"));
  EXPECT_FALSE(is_gguf(directory_.path()));
}

TEST(PartPaths, OfOddNamesAreTheNameItself) {
  for (const char* name : {"m.gguf",
                           "m-00001-of-00000.gguf",
                           "m-00003-of-00002.gguf",
                           "m-0000a-of-00002.gguf",
                           "-00001-of-00002.gguf",
                           "m-00001-of-99999.gguf"}) {
    EXPECT_THAT(part_paths(name), testing::ElementsAre(name));
  }
}

}  // namespace
}  // namespace heddle::gguf
