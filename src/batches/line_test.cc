#include "batches/line.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace heddle::batches {
namespace {

constexpr const char* kChats = "/v1/chat/completions";

std::string line_of(const std::string& body, const std::string& more = "") {
  return R"({"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":)" + body + more +
         "}";
}

TEST(BatchLineTest, ARequestIsRead) {
  const ReadLine read = read_line(line_of(R"({"model":"m","messages":[]})", ",\"x\":1"), kChats);
  ASSERT_FALSE(read.fault) << read.fault->message;
  EXPECT_EQ(read.request.custom_id, "a");
  EXPECT_EQ(read.request.model, "m");
  EXPECT_EQ(read.request.body, R"({"model":"m","messages":[]})");
}

TEST(BatchLineTest, EachFaultHasItsCode) {
  const auto code = [](const std::string& line) {
    const ReadLine read = read_line(line, kChats);
    return read.fault ? read.fault->code : "";
  };
  EXPECT_EQ(code("nonsense"), "invalid_json_line");
  EXPECT_EQ(code("[]"), "invalid_json_line");
  EXPECT_EQ(code("{}"), "invalid_custom_id");
  EXPECT_EQ(code(R"({"custom_id":7,"method":"POST"})"), "invalid_custom_id");
  EXPECT_EQ(code(R"({"custom_id":")" + std::string(kCustomIdBytesMax + 1, 'x') + "\"}"),
            "invalid_custom_id");
  EXPECT_EQ(code(R"({"custom_id":"a","method":"GET"})"), "invalid_method");
  EXPECT_EQ(code(R"({"custom_id":"a","method":"POST","url":"/v1/embeddings","body":{}})"),
            "mismatched_url");
  EXPECT_EQ(code(line_of("7")), "invalid_body");
  EXPECT_EQ(code(line_of("{}")), "invalid_body");
  EXPECT_EQ(code(line_of(R"({"model":"m","stream":true})")), "invalid_body");
  EXPECT_EQ(code(line_of(R"({"model":"m","stream":false})")), "");
}

TEST(BatchLineTest, AFaultKeepsTheClientsName) {
  EXPECT_EQ(read_line(R"({"custom_id":"a","method":"GET"})", kChats).request.custom_id, "a");
}

TEST(BatchLineTest, AnswersAreOneLineOfJson) {
  const std::string written =
      answer_line("batch_xyz", 41, "a\"b", 200, "req-1", "{\n \"x\": 1\n}\n");
  ASSERT_TRUE(written.ends_with("}\n"));
  EXPECT_EQ(written.find('\n'), written.size() - 1);
  const auto json = nlohmann::json::parse(written);
  EXPECT_EQ(json["custom_id"], "a\"b");
  EXPECT_EQ(json["response"]["status_code"], 200);
  EXPECT_EQ(json["response"]["request_id"], "req-1");
  EXPECT_EQ(json["response"]["body"]["x"], 1);
  EXPECT_TRUE(json["error"].is_null());
  EXPECT_EQ(number_of(written), 41U);
}

TEST(BatchLineTest, WhatIsNoJsonBecomesAString) {
  const auto json = nlohmann::json::parse(answer_line("batch_x", 0, "a", 502, "r", "bad\ngateway"));
  EXPECT_EQ(json["response"]["body"], "bad\ngateway");
}

TEST(BatchLineTest, FaultsTellTheLine) {
  const std::string written = fault_line("batch_xyz", 6, "", {.code = "c", .message = "why"});
  const auto json = nlohmann::json::parse(written);
  EXPECT_TRUE(json["custom_id"].is_null());
  EXPECT_TRUE(json["response"].is_null());
  EXPECT_EQ(json["error"]["code"], "c");
  EXPECT_EQ(json["error"]["line"], 7);
  EXPECT_EQ(number_of(written), 6U);
  EXPECT_EQ(number_of(R"({"id":"batch_req_x_)"), std::nullopt);
  EXPECT_EQ(number_of("{}"), std::nullopt);
}

}  // namespace
}  // namespace heddle::batches
