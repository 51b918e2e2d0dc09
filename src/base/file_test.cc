#include "base/file.h"

#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/test_directory.h"

#include <sys/stat.h>

namespace heddle {
namespace {

using testing::HasSubstr;

TEST(File, ReadsWhatStandsThere) {
  const TempDirectory directory;
  write_text(directory.path() / "f", "0123456789");
  const File file = File::open(directory.path() / "f").value();
  EXPECT_EQ(file.bytes(), 10U);
  std::string text(4, '?');
  ASSERT_TRUE(file.read(3, std::as_writable_bytes(std::span(text))));
  EXPECT_EQ(text, "3456");
  EXPECT_TRUE(file.read(10, std::span<std::byte>{}));
}

TEST(File, FillsPiecesInOrder) {
  const TempDirectory directory;
  std::string content;
  for (int i = 0; i < 5000; ++i) {
    content += static_cast<char>('a' + i % 26);
  }
  write_text(directory.path() / "f", content);
  const File file = File::open(directory.path() / "f").value();
  // More pieces than one call takes, one of them empty.
  std::string read(content.size() - 7, '?');
  std::vector<iovec> pieces;
  for (std::size_t at = 0; at < read.size(); at += 2) {
    pieces.push_back(
        {.iov_base = read.data() + at, .iov_len = std::min<std::size_t>(2, read.size() - at)});
  }
  pieces.insert(pieces.begin() + 5, iovec{.iov_base = nullptr, .iov_len = 0});
  ASSERT_TRUE(file.read(7, pieces));
  EXPECT_EQ(read, content.substr(7));
}

TEST(File, AFileThatShrinksIsAnError) {
  const TempDirectory directory;
  const auto path = directory.path() / "f";
  write_text(path, std::string(10000, 'x'));
  const File file = File::open(path).value();
  std::filesystem::resize_file(path, 100);
  std::array<std::byte, 200> target{};
  const Result<void> read = file.read(0, target);
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().code, Code::kCorrupt);
  EXPECT_THAT(
      read.error().message,
      HasSubstr("/f has no byte 100 any more, though it had 10000 bytes when it was opened"));
}

TEST(File, SaysWhyItCannotBeOpened) {
  const TempDirectory directory;
  const auto missing = File::open(directory.path() / "none");
  EXPECT_EQ(missing.error().code, Code::kNotFound);
  EXPECT_THAT(missing.error().message, HasSubstr("/none: No such file or directory"));
  const auto folder = File::open(directory.path());
  EXPECT_EQ(folder.error().code, Code::kInvalidArgument);
  EXPECT_THAT(folder.error().message, HasSubstr("is not a regular file"));
  ASSERT_EQ(::mkfifo((directory.path() / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(File::open(directory.path() / "pipe").error().message,
              HasSubstr("is not a regular file"));
}

TEST(File, ReadTextIsBounded) {
  const TempDirectory directory;
  write_text(directory.path() / "f", std::string(2048, 'x'));
  EXPECT_EQ(read_text(directory.path() / "f", 2048)->size(), 2048U);
  const auto refused = read_text(directory.path() / "f", 1024);
  EXPECT_EQ(refused.error().code, Code::kCorrupt);
  EXPECT_THAT(refused.error().message, HasSubstr("/f has 2.00 KiB; at most 1.00 KiB are read"));
}

}  // namespace
}  // namespace heddle
