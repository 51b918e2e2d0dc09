#include "fetch/digest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store/test_files.h"

namespace heddle::fetch {
namespace {

TEST(Digest, OfTexts) {
  EXPECT_EQ(hexadecimal(std::string_view("\x00\xff\x1a", 3)), "00ff1a");
  EXPECT_EQ(sha256_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(CheckDigest, ComparesFiles) {
  const store::TempDirectory directory;
  const auto path = directory.path() / "f";
  store::write_text(path, "hello\nand what is no part of it");
  const std::stop_token none;
  Object object{.name = "f", .bytes = 6};
  EXPECT_TRUE(check_digest(path, object, none).has_value());     // Nothing to compare with.
  object.git_sha1 = "ce013625030ba8dba906f756967f9e9ca394464a";  // By `git hash-object`.
  EXPECT_TRUE(check_digest(path, object, none).has_value());
  object.sha256 = sha256_of("hello\n");
  EXPECT_TRUE(check_digest(path, object, none).has_value());
  object.sha256 = sha256_of("hello!");
  const Result<void> wrong = check_digest(path, object, none);
  ASSERT_FALSE(wrong.has_value());
  EXPECT_EQ(wrong.error().code, Code::kCorrupt);
  EXPECT_THAT(wrong.error().message,
              testing::HasSubstr("f came with the SHA-256 " + sha256_of("hello\n") + " where "));
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(check_digest(path, object, stop.get_token()).error().code, Code::kCancelled);
}

}  // namespace
}  // namespace heddle::fetch
