#include "fetch/curl_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::fetch {
namespace {

using testing::HasSubstr;

TEST(CurlLibrary, IsLoadedOnce) {
  const Result<CurlLibrary>& curl = curl_library();
  ASSERT_TRUE(curl.has_value()) << curl.error().message;
  EXPECT_EQ(&curl, &curl_library());
  EXPECT_THAT(curl->easy_strerror(CURLE_COULDNT_CONNECT), HasSubstr("connect"));
}

TEST(CurlLibrary, ThatIsNotThereIsAnErrorThatNamesItsPackage) {
  const Result<CurlLibrary> curl = CurlLibrary::open("libcurl-nowhere.so.4");
  ASSERT_FALSE(curl.has_value());
  EXPECT_EQ(curl.error().code, Code::kFailedPrecondition);
  EXPECT_THAT(curl.error().message, HasSubstr("libcurl-nowhere.so.4"));
  EXPECT_THAT(curl.error().message, HasSubstr("package libcurl4"));
}

TEST(CurlLibrary, WithoutItsFunctionsIsAnErrorThatNamesOne) {
  const Result<CurlLibrary> curl = CurlLibrary::open("libm.so.6");
  ASSERT_FALSE(curl.has_value());
  EXPECT_THAT(curl.error().message, HasSubstr("libm.so.6 has no curl_"));
}

}  // namespace
}  // namespace heddle::fetch
