#include "fetch/s3_signature.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::fetch {
namespace {

using testing::EndsWith;

// The examples of "Signature Calculations for the Authorization Header" in Amazon S3's API
// reference: 24 May 2013, us-east-1.
const S3Credentials kExampleKeys{.access_key = "AKIAIOSFODNN7EXAMPLE",
                                 .secret_key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"};
const SignatureScope kExampleScope{.time_s = 1369353600, .region = "us-east-1"};
constexpr const char* kNoBody = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

SignedRequest example(std::string path, std::string query) {
  return {.path = std::move(path),
          .query = std::move(query),
          .headers = {{"host", "examplebucket.s3.amazonaws.com"},
                      {"x-amz-content-sha256", kNoBody},
                      {"x-amz-date", "20130524T000000Z"}}};
}

TEST(S3Signature, IsThatOfThePublishedExamples) {
  SignedRequest get = example("/test.txt", "");
  get.headers.emplace_back("range", "bytes=0-9");
  EXPECT_EQ(authorization(get, kExampleScope, kExampleKeys),
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
            "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,"
            "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
  EXPECT_THAT(authorization(example("/", "lifecycle="), kExampleScope, kExampleKeys),
              EndsWith("fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"));
  EXPECT_THAT(authorization(example("/", canonical_query({{"prefix", "J"}, {"max-keys", "2"}})),
                            kExampleScope,
                            kExampleKeys),
              EndsWith("34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"));
}

TEST(S3Signature, WritesWhatIsSigned) {
  EXPECT_EQ(amz_date(1369353600), "20130524T000000Z");
  EXPECT_EQ(canonical_query({{"b", "x y"}, {"a", "/"}, {"b", "a"}}), "a=%2F&b=a&b=x%20y");
  SignedRequest request = example("/a", "");
  request.headers.emplace_back("x-amz-meta", "  two   words ");
  EXPECT_THAT(canonical_request(request), testing::HasSubstr("\nx-amz-meta:two words\n"));
}

TEST(S3Signature, AnonymousRequestsHaveNone) {
  EXPECT_TRUE(signing_headers({}, "h", kExampleScope, {}).empty());
  S3Credentials keys = kExampleKeys;
  keys.session_token = "session";
  EXPECT_THAT(signing_headers({}, "h", kExampleScope, keys),
              testing::ElementsAre("x-amz-date: 20130524T000000Z",
                                   std::string("x-amz-content-sha256: ") + kNoBody,
                                   "x-amz-security-token: session",
                                   testing::HasSubstr("SignedHeaders=host;x-amz-content-sha256;"
                                                      "x-amz-date;x-amz-security-token")));
}

}  // namespace
}  // namespace heddle::fetch
