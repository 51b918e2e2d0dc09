#include "fetch/s3_listing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::fetch {
namespace {

using testing::HasSubstr;

std::string entry(const std::string& key) {
  return "<Contents><Key>" + key + "</Key><Size>7</Size><ETag>&quot;e1&quot;</ETag></Contents>";
}

std::string page(const std::string& entries) {
  return "<?xml version=\"1.0\"?><ListBucketResult "
         "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">" +
         entries + "</ListBucketResult>";
}

TEST(S3Listing, ReadsPages) {
  const auto read = parse_s3_page(
      page("<Contents><Key>m/</Key><Size>0</Size></Contents>" + entry("m/a&amp;b&#x3c;.json") +
           "<IsTruncated>true</IsTruncated>"
           "<NextContinuationToken>t&lt;</NextContinuationToken>"),
      "m/",
      "s3://b/m");
  ASSERT_TRUE(read.has_value()) << read.error().message;
  ASSERT_EQ(read->objects.size(), 1U);
  EXPECT_EQ(read->objects[0], (Object{.name = "a&b<.json", .bytes = 7, .validator = "\"e1\""}));
  EXPECT_EQ(read->next, "t<");
}

TEST(S3Listing, RefusesWhatMakesNoSense) {
  const auto message = [](const std::string& xml) {
    const auto read = parse_s3_page(xml, "m/", "s3://b/m");
    return read ? std::string("none") : read.error().message;
  };
  EXPECT_THAT(message("<html>"), HasSubstr("the list of s3://b/m: this is no answer of S3's"));
  EXPECT_THAT(message(page(entry("m/../x"))), HasSubstr("names \"../x\", which is not below"));
  EXPECT_THAT(message(page(entry("m/a&#0;b"))), HasSubstr("which is not below"));
  EXPECT_THAT(message(page(entry("other/x"))), HasSubstr("is not below m/"));
  EXPECT_THAT(message(page("<Contents><Key>m/x</Key><Size>-1</Size></Contents>")),
              HasSubstr("no key or no size"));
  EXPECT_THAT(message(page(entry("m/&bad;"))), HasSubstr("no key or no size"));
  EXPECT_THAT(message(page("<IsTruncated>true</IsTruncated>")), HasSubstr("does not say where"));
}

TEST(S3Listing, ReadsErrors) {
  EXPECT_EQ(s3_error_code("<?xml?><Error><Code>NoSuchKey</Code></Error>"), "NoSuchKey");
  EXPECT_EQ(s3_error_code("not found"), "");
}

}  // namespace
}  // namespace heddle::fetch
