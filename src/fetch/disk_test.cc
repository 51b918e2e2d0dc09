#include "fetch/disk.h"

#include <cerrno>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "store/test_files.h"

namespace heddle::fetch {
namespace {

using testing::HasSubstr;

TEST(Disk, AFullOneSaysWhatToDo) {
  const Error full = disk_error("write", "/x/y", ENOSPC);
  EXPECT_EQ(full.code, Code::kResourceExhausted);
  EXPECT_THAT(full.message, HasSubstr("cannot write /x/y: No space left on device; make room"));
  EXPECT_EQ(disk_error("write", "/x", EACCES).code, Code::kFailedPrecondition);
}

TEST(Disk, WritesAndMovesFiles) {
  const store::TempDirectory directory;
  const auto path = directory.path() / "a/b/c";
  ASSERT_TRUE(write_file(path, "one").has_value());
  ASSERT_TRUE(write_file(path, "two").has_value());
  EXPECT_EQ(*read_text(path, 100), "two");
  ASSERT_TRUE(move_file(path, directory.path() / "d").has_value());
  EXPECT_FALSE(is_there(path));
  EXPECT_FALSE(move_file(path, directory.path() / "e").has_value());
  EXPECT_FALSE(write_file(directory.path() / "d/e", "x").has_value());
}

TEST(Disk, CountsWhatIsTakenAndFree) {
  const store::TempDirectory directory;
  EXPECT_EQ(taken_bytes(directory.path() / "none"), 0U);
  store::write_text(directory.path() / "m/x", std::string(100'000, 'x'));
  EXPECT_GE(taken_bytes(directory.path()), 100'000U);
  EXPECT_LT(taken_bytes(directory.path()), 200'000U);
  EXPECT_GT(*free_bytes(directory.path() / "not/there/yet"), 0U);
}

}  // namespace
}  // namespace heddle::fetch
