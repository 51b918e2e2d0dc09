#include "remote/text_files.h"

#include <gtest/gtest.h>

#include "remote/messages.h"
#include "remote/test_folder.h"

namespace heddle::remote {
namespace {

TEST(TextFiles, ArriveAsTheyWere) {
  const TestFolder folder;
  const std::string large(kTextPieceMost + 7, 'x');
  folder.write("large", large);
  folder.write("empty", "");
  folder.write("even", std::string(kTextPieceMost, 'y'));
  {
    TextFolder made(folder.path / "model");
    for (const std::string name : {"large", "empty", "even"}) {
      std::uint64_t offset = 0;
      for (bool ends = false; !ends;) {
        const Result<TextPiece> piece = read_piece(folder.path / name, offset);
        ASSERT_TRUE(piece) << piece.error().message;
        offset += piece->bytes.size();
        ends = piece->ends;
        ASSERT_TRUE(made.add(name, piece->bytes, ends));
      }
    }
    EXPECT_FALSE(std::filesystem::exists(folder.path / "model")) << "it is not complete";
    ASSERT_TRUE(made.finish());
  }
  EXPECT_EQ(folder.read("model/large"), large);
  EXPECT_EQ(folder.read("model/empty"), "");
  EXPECT_EQ(folder.read("model/even"), std::string(kTextPieceMost, 'y'));
  EXPECT_FALSE(std::filesystem::exists(folder.path / "model.part"));
}

TEST(TextFiles, TakeThePlaceOfOlderOnes) {
  const TestFolder folder;
  std::filesystem::create_directory(folder.path / "model");
  folder.write("model/old", "old");
  TextFolder made(folder.path / "model");
  ASSERT_TRUE(made.add("new", "new", true));
  ASSERT_TRUE(made.finish());
  EXPECT_FALSE(std::filesystem::exists(folder.path / "model/old"));
  EXPECT_EQ(folder.read("model/new"), "new");
}

TEST(TextFiles, LeaveNothingWhereTheyDoNotComplete) {
  const TestFolder folder;
  {
    TextFolder made(folder.path / "model");
    EXPECT_FALSE(made.finish()) << "there are none";
    ASSERT_TRUE(made.add("a", "half", false));
    EXPECT_TRUE(std::filesystem::exists(folder.path / "model.part/a"));
    EXPECT_FALSE(made.add("b", "another", true)) << "the first has not ended";
    EXPECT_FALSE(made.finish());
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path));
}

TEST(TextFiles, GoNowhereElse) {
  const TestFolder folder;
  for (const std::string name : {"../outside", "a/b", ".hidden", ""}) {
    TextFolder made(folder.path / "model");
    EXPECT_EQ(made.add(name, "x", true).error().code, Code::kCorrupt) << name;
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path));
}

TEST(TextFiles, AreNotWithoutEnd) {
  const TestFolder folder;
  TextFolder made(folder.path / "model");
  for (std::size_t i = 0; i < kTextFilesMost; ++i) {
    ASSERT_TRUE(made.add("f" + std::to_string(i), "x", true));
  }
  EXPECT_FALSE(made.add("one more", "x", true));
}

TEST(TextFiles, ThatAreNotThereAreNotRead) {
  const TestFolder folder;
  const Result<TextPiece> piece = read_piece(folder.path / "none", 0);
  ASSERT_FALSE(piece);
  EXPECT_EQ(piece.error().code, Code::kNotFound);
  EXPECT_FALSE(read_piece(folder.path, 0)) << "a folder is no file";
}

}  // namespace
}  // namespace heddle::remote
