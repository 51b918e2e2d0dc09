#include "fetch/fault.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::fetch {
namespace {

using testing::HasSubstr;

Error fault(int status, SourceKind kind, bool credentials = false) {
  return fault_of({.status = status, .url = "https://h/x?signature=secret"},
                  {.kind = kind, .model = "acme/small", .with_credentials = credentials});
}

TEST(Fault, SaysWhatWouldBeRight) {
  EXPECT_THAT(fault(401, SourceKind::kHub).message,
              HasSubstr("acme/small: https://h/x answered 401: it is gated or private, or there is "
                        "no such model: check the name, or set HF_TOKEN"));
  EXPECT_THAT(fault(403, SourceKind::kHub, true).message,
              HasSubstr("accept the model's conditions"));
  EXPECT_THAT(fault(403, SourceKind::kS3).message, HasSubstr("set AWS_ACCESS_KEY_ID"));
  EXPECT_THAT(fault(403, SourceKind::kS3, true).message, HasSubstr("the machine's clock"));
  EXPECT_THAT(fault(401, SourceKind::kHttp).message, HasSubstr("~/.netrc"));
  EXPECT_EQ(fault(404, SourceKind::kHub).code, Code::kNotFound);
  EXPECT_THAT(fault(404, SourceKind::kHub).message, HasSubstr("no such model or revision"));
  EXPECT_THAT(fault(404, SourceKind::kS3).message, HasSubstr("AWS_ENDPOINT_URL"));
  EXPECT_EQ(fault(503, SourceKind::kHttp).code, Code::kUnavailable);
  EXPECT_EQ(fault(418, SourceKind::kHttp).code, Code::kFailedPrecondition);
}

TEST(Fault, SaysWhatAnsweredSays) {
  const Asked asked{.kind = SourceKind::kS3, .model = "s3://b/p"};
  EXPECT_THAT(fault_of({.status = 301, .region = "eu-west-1", .url = "https://h/"}, asked).message,
              HasSubstr("the bucket is in eu-west-1; set AWS_REGION=eu-west-1"));
  EXPECT_THAT(
      fault_of({.status = 404, .problem = "<Error><Code>NoSuchBucket</Code></Error>"}, asked)
          .message,
      HasSubstr("answered 404 (NoSuchBucket)"));
  EXPECT_THAT(fault_of({.status = 403, .error_code = "GatedRepo"}, asked).message,
              HasSubstr("answered 403 (GatedRepo)"));
}

}  // namespace
}  // namespace heddle::fetch
