#include "gateway/tls_files.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gateway/test_tls.h"

namespace heddle::gateway {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(TlsFiles, APairIsTaken) {
  TestCertificates made;
  const Result<TlsFiles> files = TlsFiles::open(made.write("a", 1));
  ASSERT_TRUE(files) << files.error().message;
  EXPECT_NE(files->context(), nullptr);
  EXPECT_THAT(files->warnings(), IsEmpty());
}

TEST(TlsFiles, WhatIsWrongIsSaidWithItsFile) {
  TestCertificates made;
  const config::TlsConfig good = made.write("a", 1);
  const config::TlsConfig other = made.write("b", 2);
  const config::TlsConfig locked = made.write("c", 3, 3600, "secret");
  const std::string none = made.folder() / "none.pem";
  const std::string text = made.folder() / "text.pem";
  std::ofstream(text) << "no certificate\n";
  const auto expect = [](const config::TlsConfig& files, const char* key, const std::string& why) {
    const Result<TlsFiles> opened = TlsFiles::open(files);
    ASSERT_FALSE(opened) << why;
    EXPECT_EQ(opened.error().code, Code::kInvalidArgument);
    EXPECT_THAT(opened.error().message, AllOf(HasSubstr(key), HasSubstr(why)));
  };
  expect({.certificate = none, .key = good.key},
         "tls.certificate",
         none + "\" cannot be read: No such file");
  expect({.certificate = good.certificate, .key = none}, "tls.key", none + "\" cannot be read");
  expect({.certificate = made.folder(), .key = good.key}, "tls.certificate", "is not a file");
  expect({.certificate = text, .key = good.key}, "tls.certificate", text + "\" has no certificate");
  expect({.certificate = good.certificate, .key = text}, "tls.key", text + "\" is no key");
  expect({.certificate = good.certificate, .key = other.key}, "tls.key", "key values mismatch");
  expect(locked, "tls.key", "without a passphrase");
}

TEST(TlsFiles, KeysThatAllMayReadAndOldCertificatesAreWarnedOf) {
  TestCertificates made;
  const config::TlsConfig open = made.write("open", 1);
  std::filesystem::permissions(open.key, std::filesystem::perms(0644));
  EXPECT_THAT(TlsFiles::open(open)->warnings(), ElementsAre(HasSubstr("chmod o-r")));
  const config::TlsConfig old = made.write("old", 2, -60);
  EXPECT_THAT(TlsFiles::open(old)->warnings(), ElementsAre(HasSubstr("has expired")));
}

TEST(TlsFiles, AreReadAgainOnceTheyHaveChanged) {
  TestCertificates made;
  Result<TlsFiles> files = TlsFiles::open(made.write("a", 1));
  const TlsContext before = files->context();
  files->reload_if_changed();
  EXPECT_EQ(files->context(), before);
  const config::TlsConfig next = made.write("next", 2);
  std::filesystem::rename(next.certificate, made.folder() / "a.crt");
  files->reload_if_changed();
  EXPECT_EQ(files->context(), before) << "its key has not come yet";
  std::filesystem::rename(next.key, made.folder() / "a.key");
  files->reload_if_changed();
  EXPECT_NE(files->context(), before);
}

}  // namespace
}  // namespace heddle::gateway
