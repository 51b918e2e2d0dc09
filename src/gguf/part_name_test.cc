#include "gguf/part_name.h"

#include <gtest/gtest.h>

namespace heddle::gguf {
namespace {

TEST(PartName, IsReadFromItsEnd) {
  const auto part = part_name("dir/x-00002-of-00013.gguf");
  ASSERT_TRUE(part);
  EXPECT_EQ(part->stem, "dir/x");
  EXPECT_EQ(part->number, 2);
  EXPECT_EQ(part->count, 13);
}

TEST(PartName, OthersAreNone) {
  for (const char* name : {"x.gguf",
                           "x-00004-of-00003.gguf",
                           "x-00000-of-00003.gguf",
                           "x-00001-of-99999.gguf",
                           "x-0000a-of-00003.gguf",
                           "x-00001-of-00003.bin",
                           "-00001-of-00003.gguf",
                           ""}) {
    EXPECT_FALSE(part_name(name)) << name;
  }
}

}  // namespace
}  // namespace heddle::gguf
