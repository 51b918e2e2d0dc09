#include "batches/line_file.h"

#include <vector>

#include <gtest/gtest.h>

#include "base/test_directory.h"

namespace heddle::batches {
namespace {

class LineFileTest : public testing::Test {
 protected:
  [[nodiscard]] std::string file() const { return (directory_.path() / "lines").string(); }
  [[nodiscard]] std::vector<FileLine> lines(std::size_t most) const {
    Result<LineFile> opened = LineFile::open(file(), most);
    EXPECT_TRUE(opened);
    std::vector<FileLine> all;
    for (auto line = opened->next(); line && *line; line = opened->next()) {
      all.push_back(std::move(**line));
    }
    return all;
  }

  TempDirectory directory_{};
};

TEST_F(LineFileTest, TellsWhereLinesAre) {
  ASSERT_TRUE(append_to(file(), "one\n\n"));
  ASSERT_TRUE(append_to(file(), "three"));
  const std::vector<FileLine> all = lines(100);
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].text, "one");
  EXPECT_TRUE(all[0].ended);
  EXPECT_EQ(all[1].bytes, 0U);
  EXPECT_EQ(all[2].text, "three");
  EXPECT_EQ(all[2].offset, 5U);
  EXPECT_FALSE(all[2].ended);
  const Result<std::string> piece = read_piece(file(), 5, 3);
  ASSERT_TRUE(piece);
  EXPECT_EQ(*piece, "thr");
  EXPECT_FALSE(read_piece(file(), 5, 100));
}

TEST_F(LineFileTest, KeepsTheBeginningOfALongLine) {
  const std::size_t big = 3'000'000;  // Several times the buffer.
  ASSERT_TRUE(append_to(file(), std::string(big, 'x') + "\nend\n"));
  const std::vector<FileLine> all = lines(10);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].text, "xxxxxxxxxx");
  EXPECT_EQ(all[0].bytes, big);
  EXPECT_EQ(all[1].text, "end");
  EXPECT_EQ(all[1].offset, big + 1);
}

TEST_F(LineFileTest, AFileThatIsMissingIsNamed) {
  const Result<LineFile> opened = LineFile::open(file(), 1);
  ASSERT_FALSE(opened);
  EXPECT_NE(opened.error().message.find("lines"), std::string::npos);
}

}  // namespace
}  // namespace heddle::batches
