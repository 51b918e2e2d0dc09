#include "fetch/s3_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fetch/test_source.h"

namespace heddle::fetch {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const SourceName kBucketName{
    .kind = SourceKind::kS3, .text = "s3://models/llm", .path = "llm/", .bucket = "models"};

std::string s3_page(const std::string& name, const std::string& rest) {
  return "<ListBucketResult><Contents><Key>llm/" + name +
         "</Key><Size>4</Size><ETag>\"e\"</ETag></Contents>" + rest + "</ListBucketResult>";
}

TEST(S3Source, ListsAndReads) {
  const TestServer server([](const std::string& head) {
    if (head.starts_with("GET /models?list-type=2&prefix=llm%2F ")) {
      return said("200 OK",
                  s3_page("config.json",
                          "<IsTruncated>true</IsTruncated>"
                          "<NextContinuationToken>a/b=</NextContinuationToken>"));
    }
    if (head.starts_with("GET /models?continuation-token=a%2Fb%3D&list-type=2&prefix=llm%2F ")) {
      return said("200 OK", s3_page("x y", ""));
    }
    return head.starts_with("GET /models/llm/x%20y ") ? said_range(head, "abcd", "ETag: \"e\"\r\n")
                                                      : said("404 No", "");
  });
  const auto source = S3Source::open(kBucketName,
                                     environment_of({{"AWS_ENDPOINT_URL_S3", server.url()},
                                                     {"AWS_ENDPOINT_URL", "http://unused"},
                                                     {"AWS_REGION", "eu-west-1"},
                                                     {"AWS_ACCESS_KEY_ID", "AKEY"},
                                                     {"AWS_SECRET_ACCESS_KEY", "secret"},
                                                     {"AWS_SESSION_TOKEN", "session"}}),
                                     quick());
  ASSERT_TRUE(source.has_value()) << source.error().message;
  const auto listing = (*source)->list({});
  ASSERT_TRUE(listing.has_value()) << listing.error().message;
  ASSERT_EQ(listing->objects.size(), 2U);
  std::array<std::byte, 2> bytes{};
  const auto read = fill(**source, listing->objects[1], 2, bytes, {});
  ASSERT_TRUE(read.has_value()) << read.error().message;
  EXPECT_EQ(bytes[1], std::byte{'d'});
  EXPECT_THAT(server.heard(),
              testing::Each(AllOf(HasSubstr("Credential=AKEY/"),
                                  HasSubstr("/eu-west-1/s3/aws4_request"),
                                  HasSubstr("x-amz-security-token: session"),
                                  Not(HasSubstr("secret")))));
}

TEST(S3Source, WithoutCredentialsItIsAnonymous) {
  const TestServer server([](const std::string&) {
    return said("403 Forbidden", "<Error><Code>AccessDenied</Code></Error>");
  });
  const auto source =
      S3Source::open(kBucketName, environment_of({{"AWS_ENDPOINT_URL", server.url("")}}), quick());
  ASSERT_TRUE(source.has_value());
  EXPECT_THAT((*source)->list({}).error().message,
              HasSubstr("answered 403 (AccessDenied): set AWS_ACCESS_KEY_ID"));
  EXPECT_THAT(server.heard()[0], Not(HasSubstr("Authorization")));
}

TEST(S3Source, RefusesHalfOfWhatItNeeds) {
  const auto message = [](std::map<std::string, std::string> variables) {
    return S3Source::open(kBucketName, environment_of(std::move(variables)), quick())
        .error()
        .message;
  };
  EXPECT_THAT(message({{"AWS_ACCESS_KEY_ID", "x"}}), HasSubstr("want both or neither"));
  EXPECT_THAT(message({{"AWS_ENDPOINT_URL", "minio:9000"}}), HasSubstr("want a URL such as"));
}

}  // namespace
}  // namespace heddle::fetch
