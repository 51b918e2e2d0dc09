#include "api/form.h"

#include <string>

#include <gtest/gtest.h>

namespace heddle::api {
namespace {

TEST(FormTest, FieldsAndFilesAreTold) {
  const std::string body =
      "--x\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n"
      "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a b.jsonl\"\r\n"
      "Content-Type: application/octet-stream\r\n\r\n{\"a\":1}\r\n{\"b\":2}\n\r\n--x--\r\n";
  const std::vector<FormPart> parts = form_parts(body, "x");
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[0].name, "purpose");
  EXPECT_EQ(parts[0].file_name, "");
  EXPECT_EQ(parts[0].value, "batch");
  EXPECT_EQ(parts[1].name, "file");
  EXPECT_EQ(parts[1].file_name, "a b.jsonl");
  EXPECT_EQ(parts[1].value, "{\"a\":1}\r\n{\"b\":2}\n");
}

TEST(FormTest, AnEmptyValueAndOneThatIsCutOff) {
  const std::string body =
      "--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n\r\n"
      "--x\r\nContent-Disposition: form-data; name=\"b\"\r\n\r\nhalf";
  const std::vector<FormPart> parts = form_parts(body, "x");
  ASSERT_EQ(parts.size(), 1U);
  EXPECT_EQ(parts[0].name, "a");
  EXPECT_EQ(parts[0].value, "");
  EXPECT_TRUE(form_parts("", "x").empty());
  EXPECT_TRUE(form_parts("nothing", "").empty());
}

TEST(FormTest, ManyPartsAreBounded) {
  std::string body;
  for (int i = 0; i < 1000; ++i) {
    body += "--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n";
  }
  EXPECT_EQ(form_parts(body + "--x--", "x").size(), kFormPartsMax);
}

TEST(FormTest, ParametersOfHeaders) {
  EXPECT_TRUE(is_form("multipart/form-data; boundary=x"));
  EXPECT_FALSE(is_form("application/json"));
  EXPECT_EQ(header_parameter("multipart/form-data; boundary=\"a b\"", "boundary"), "a b");
  EXPECT_EQ(header_parameter("multipart/form-data;boundary=x; charset=y", "boundary"), "x");
  EXPECT_EQ(header_parameter("multipart/form-data", "boundary"), "");
}

}  // namespace
}  // namespace heddle::api
