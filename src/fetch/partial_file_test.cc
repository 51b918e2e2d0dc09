#include "fetch/partial_file.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "fetch/test_source.h"
#include "store/test_files.h"

namespace heddle::fetch {
namespace {

class PartialFileTest : public testing::Test {
 protected:
  [[nodiscard]] Result<PartialFile> open(std::uint64_t piece = 10) const {
    return PartialFile::open(path(), object, piece);
  }
  [[nodiscard]] std::filesystem::path path() const { return directory_.path() / "sub/f.part"; }
  static void put(PartialFile& file, Range range) {
    ASSERT_TRUE(file.write(range.begin, bytes_of(std::string(range.bytes(), 'x'))).has_value());
    ASSERT_TRUE(file.mark(range).has_value());
  }

  void put_new(Range range) const {
    Result<PartialFile> file = open();
    ASSERT_TRUE(file.has_value());
    put(*file, range);
  }

  Object object{.name = "f", .bytes = 25, .sha256 = std::string(64, 'a')};
  store::TempDirectory directory_{};
};

TEST_F(PartialFileTest, GoesOnWithWhatIsThere) {
  {
    Result<PartialFile> file = open();
    ASSERT_TRUE(file.has_value()) << file.error().message;
    EXPECT_EQ(file->missing(), (std::vector<Range>{{0, 10}, {10, 20}, {20, 25}}));
    put(*file, {10, 20});
    // Written, but not all of its piece.
    ASSERT_TRUE(file->write(0, bytes_of("12345")).has_value());
  }
  Result<PartialFile> again = open();
  EXPECT_EQ(again->missing(), (std::vector<Range>{{0, 10}, {20, 25}}));
  EXPECT_EQ(again->present_bytes(), 10U);
  put(*again, {0, 10});
  put(*again, {20, 25});
  ASSERT_TRUE(again->finish().has_value());
  EXPECT_EQ(*read_text(path(), 100), std::string(25, 'x'));
}

TEST_F(PartialFileTest, AnotherObjectBeginsAnew) {
  put_new({0, 20});
  object.sha256 = std::string(64, 'b');
  EXPECT_EQ(open()->present_bytes(), 0U);
  put_new({0, 20});
  EXPECT_EQ(open(5)->present_bytes(), 0U);  // Cut otherwise.
  put_new({0, 20});
  object.bytes = 26;
  EXPECT_EQ(open()->present_bytes(), 0U);
}

TEST_F(PartialFileTest, WithoutAnIdentityNothingCounts) {
  object = {.name = "f", .bytes = 25, .validator = "\"e\""};
  put_new({0, 20});
  EXPECT_EQ(open()->present_bytes(), 20U);
  object.validator.clear();
  put_new({0, 20});
  EXPECT_EQ(open()->present_bytes(), 0U);
}

TEST_F(PartialFileTest, ForgetsAndIsEmpty) {
  Result<PartialFile> file = open();
  put(*file, {0, 25});
  EXPECT_TRUE(file->missing().empty());
  ASSERT_TRUE(file->forget().has_value());
  EXPECT_EQ(open()->present_bytes(), 0U);
  object.bytes = 0;
  Result<PartialFile> empty = open();
  EXPECT_TRUE(empty->missing().empty());
  ASSERT_TRUE(empty->finish().has_value());
  EXPECT_EQ(std::filesystem::file_size(path()), 0U);
}

}  // namespace
}  // namespace heddle::fetch
