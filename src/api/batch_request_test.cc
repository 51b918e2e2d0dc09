#include "api/batch_request.h"

#include <gtest/gtest.h>

namespace heddle::api {
namespace {

std::string body_of(const std::string& more) {
  return R"({"input_file_id":"file-1","completion_window":"24h")" + more + "}";
}

TEST(BatchRequestTest, IsRead) {
  const auto parsed = parse_batch_request(
      body_of(R"(,"endpoint":"/v1/responses","metadata":{ "a" : "b" },"output_expires_after":{})"));
  ASSERT_TRUE(std::holds_alternative<BatchRequest>(parsed));
  const auto& request = std::get<BatchRequest>(parsed);
  EXPECT_EQ(request.input, "file-1");
  EXPECT_EQ(request.endpoint, "/v1/responses");
  EXPECT_EQ(request.metadata, R"({"a":"b"})");
}

TEST(BatchRequestTest, TellsWhichFieldIsWrong) {
  const auto param = [](const std::string& body) {
    const auto parsed = parse_batch_request(body);
    const auto* wrong = std::get_if<ApiError>(&parsed);
    return wrong == nullptr ? "" : wrong->param;
  };
  const std::string chats = R"(,"endpoint":"/v1/chat/completions")";
  EXPECT_EQ(param("{}"), "input_file_id");
  EXPECT_EQ(param(body_of("")), "endpoint");
  EXPECT_EQ(param(body_of(R"(,"endpoint":"/v1/models")")), "endpoint");
  EXPECT_EQ(param(R"({"input_file_id":"f","completion_window":"1h")" + chats + "}"),
            "completion_window");
  EXPECT_EQ(param(body_of(chats + R"(,"metadata":7)")), "metadata");
  EXPECT_EQ(param(body_of(chats + R"(,"metadata":{"a":{}})")), "metadata");
  EXPECT_EQ(param(body_of(chats + R"(,"metadata":{"a":")" + std::string(513, 'x') + "\"}")),
            "metadata");
  EXPECT_EQ(param(body_of(chats + R"(,"metadata":null)")), "");
}

}  // namespace
}  // namespace heddle::api
