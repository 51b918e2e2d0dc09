#include "gateway/batch_handlers.h"

#include <gmock/gmock.h>

#include "gateway/test_batches.h"

namespace heddle::gateway {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class BatchHandlersTest : public BatchesTest {};

TEST_F(BatchHandlersTest, ABatchIsMadeAndShown) {
  serving.reply = std::nullopt;  // Nothing answers.
  start();
  const std::string input = file(line("a"));
  const std::string body = R"({"input_file_id":")" + input +
                           R"(","endpoint":"/v1/chat/completions","completion_window":"24h",)"
                           R"("metadata":{"of":"me"}})";
  const json made = ask("POST", "/v1/batches", body);
  EXPECT_EQ(made["object"], "batch");
  EXPECT_EQ(made["status"], "validating");
  EXPECT_EQ(made["input_file_id"], input);
  EXPECT_EQ(made["metadata"]["of"], "me");
  EXPECT_EQ(made["expires_at"], made["created_at"].get<std::int64_t>() + 86'400);
  const json shown = await_state(made["id"], "in_progress");
  EXPECT_EQ(shown["request_counts"]["total"], 1);
  EXPECT_EQ(ask("GET", "/v1/batches")["data"][0]["id"], made["id"]);
  EXPECT_EQ(call("DELETE", "/v1/files/" + input).status, 400) << "it is being read";
}

TEST_F(BatchHandlersTest, WhatIsWrongIsSaid) {
  start();
  const auto refused = [this](const std::string& body) {
    const TestResponse answer = call("POST", "/v1/batches", body);
    return std::to_string(answer.status) + " " + answer.body;
  };
  const std::string input = file("{}");
  EXPECT_THAT(refused("{}"), HasSubstr("400"));
  EXPECT_THAT(refused(batch_body("file-of-nobody")), HasSubstr("404"));
  EXPECT_THAT(refused(R"({"input_file_id":")" + input +
                      R"(","endpoint":"/v1/models","completion_window":"24h"})"),
              HasSubstr("endpoint: is"));
  EXPECT_THAT(refused(R"({"input_file_id":")" + input +
                      R"(","endpoint":"/v1/completions","completion_window":"7d"})"),
              HasSubstr("want 24h"));
  EXPECT_THAT(refused(R"({"input_file_id":")" + input +
                      R"(","endpoint":"/v1/completions","completion_window":"24h","metadata":[]})"),
              HasSubstr("metadata"));
  EXPECT_THAT(refused(R"({"input_file_id":")" + input +
                      R"(","endpoint":"/v1/completions","completion_window":"24h",)"
                      R"("metadata":{"a":1}})"),
              HasSubstr("metadata"));
  EXPECT_EQ(call("GET", "/v1/batches/batch_x").status, 404);
  EXPECT_EQ(call("POST", "/v1/batches/batch_x/cancel").status, 404);
  EXPECT_EQ(call("POST", "/v1/batches/batch_x").status, 404);
}

TEST_F(BatchHandlersTest, KeysHaveTheirOwn) {
  config.api_keys = {{.key = "alice"}, {.key = "bob"}};
  serving.reply = std::nullopt;
  start();
  const std::string alice = "Authorization: Bearer alice\r\n";
  const std::string bob = "Authorization: Bearer bob\r\n";
  const std::string input = json::parse(upload(line("a"), alice).body)["id"];
  EXPECT_EQ(call("POST", "/v1/batches", batch_body(input), bob).status, 404);
  const json made = json::parse(call("POST", "/v1/batches", batch_body(input), alice).body);
  const std::string path = "/v1/batches/" + made["id"].get<std::string>();
  EXPECT_EQ(call("GET", path, "", bob).status, 404);
  EXPECT_EQ(call("POST", path + "/cancel", "", bob).status, 404);
  EXPECT_TRUE(json::parse(call("GET", "/v1/batches", "", bob).body)["data"].empty());
  EXPECT_EQ(call("GET", path, "", alice).status, 200);
}

TEST_F(BatchHandlersTest, CancellingCallsLinesBackAndKeepsWhatThereIs) {
  serving.endless = true;
  start();
  const std::string id = batch("nonsense\n" + line("a"));
  ASSERT_TRUE(serving.wait([this] { return !serving.started.empty(); }));
  const json told = ask("POST", "/v1/batches/" + id + "/cancel");
  EXPECT_EQ(told["status"], "cancelling");
  const json over = await_state(id, "cancelled");
  EXPECT_TRUE(serving.wait([this] { return !serving.cancelled.empty(); }));
  EXPECT_TRUE(over["output_file_id"].is_null());
  EXPECT_EQ(lines_of(over["error_file_id"]).size(), 1U);
  const TestResponse again = call("POST", "/v1/batches/" + id + "/cancel");
  EXPECT_EQ(again.status, 400);
  EXPECT_THAT(again.body, HasSubstr("is cancelled"));
}

TEST_F(BatchHandlersTest, TooManyAreRefused) {
  serving.reply = std::nullopt;
  start();
  const std::string input = file(line("a"));
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(call("POST", "/v1/batches", batch_body(input)).status, 200);
  }
  EXPECT_EQ(call("POST", "/v1/batches", batch_body(input)).status, 413);
}

TEST(PageTest, IsWhatStandsBehind) {
  const std::vector<std::pair<std::string, std::string>> all{{"a", "1"}, {"b", "2"}, {"c", "3"}};
  EXPECT_EQ(page_json(all, {.after = "a", .limit = 1}),
            R"({"object":"list","data":[2],"first_id":"b","last_id":"b","has_more":true})");
  EXPECT_EQ(page_json(all, {.after = "c", .limit = 1}),
            R"({"object":"list","data":[],"first_id":null,"last_id":null,"has_more":false})");
}

}  // namespace
}  // namespace heddle::gateway
