#include "gateway/batch_runner.h"

#include <gmock/gmock.h>

#include "core/background.h"
#include "gateway/test_batches.h"

namespace heddle::gateway {
namespace {

using nlohmann::json;

class BatchRunnerTest : public BatchesTest {};

TEST_F(BatchRunnerTest, LinesAreAnsweredAndWrongOnesFailAlone) {
  serving.reply = "yes";
  start();
  const std::string id =
      batch(line("a") + "nonsense\n" + line("b") + line("a") + line("lost", "no-such-model"));
  const json told = await_state(id, "completed");
  EXPECT_EQ(told["request_counts"], json({{"total", 5}, {"completed", 2}, {"failed", 3}}));
  for (const char* time : {"in_progress_at", "finalizing_at", "completed_at"}) {
    EXPECT_FALSE(told[time].is_null()) << time;
  }
  auto answers = lines_of(told["output_file_id"]);
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(answers["a"]["response"]["status_code"], 200);
  EXPECT_EQ(answers["b"]["response"]["body"]["choices"][0]["message"]["content"], "yes");
  const std::string errors =
      call("GET", "/v1/files/" + told["error_file_id"].get<std::string>() + "/content").body;
  EXPECT_THAT(errors, testing::HasSubstr("invalid_json_line"));
  EXPECT_THAT(errors, testing::HasSubstr("duplicate_custom_id"));
  EXPECT_THAT(errors, testing::HasSubstr("model_not_found"));
}

TEST_F(BatchRunnerTest, LinesAreOfTheLeastPriorityAndABoundedNumberAtOnce) {
  serving.reply = std::nullopt;
  config.batches.at_once = 3;
  start();
  std::string content;
  for (int i = 0; i < 10; ++i) {
    content += line(std::to_string(i));
  }
  const std::string id = batch(content);
  ASSERT_TRUE(serving.wait([this] { return serving.started.size() == 3; }));
  EXPECT_EQ(serving.started[0]->priority, core::kBackgroundPriority);
  EXPECT_EQ(await_state(id, "in_progress")["request_counts"]["completed"], 0);
  on_loop([this] { EXPECT_EQ(serving.started.size(), 3U); });
}

TEST_F(BatchRunnerTest, AFileThatCannotBeRunFailsTheBatch) {
  start();
  const json told = await_state(batch("\n"), "failed");
  EXPECT_EQ(told["errors"]["data"][0]["code"], "invalid_file");
}

TEST_F(BatchRunnerTest, LinesMakeWayForAClientWhoseModelIsNotThere) {
  serving.endless = true;
  config.batches.at_once = 1;
  start();
  on_loop([this] { serving.residency[ModelId(1)] = core::Residency::kServing; });
  const std::string id = batch(line("a"));
  ASSERT_TRUE(serving.wait([this] { return serving.started.size() == 1; }));
  const RequestId line = serving.started[0]->id;
  TestClient client(port);
  client.send(TestClient::request(
      "POST",
      "/v1/chat/completions",
      R"({"model":"org/name:8b","messages":[{"role":"user","content":"hi"}]})"));
  ASSERT_TRUE(serving.wait([&] { return serving.cancelled.contains(line); }));
  EXPECT_EQ(ask("GET", "/v1/batches/" + id)["status"], "in_progress");
  on_loop([this] { EXPECT_EQ(serving.started.size(), 2U) << "the client's and the line's"; });
  client.hang_up();
  EXPECT_TRUE(serving.wait([this] { return serving.started.size() == 3; })) << "it begins anew";
}

TEST_F(BatchRunnerTest, NoLineBeginsWhileAClientIsAnswered) {
  serving.endless = true;
  start();
  on_loop([this] { serving.residency[ModelId(1)] = core::Residency::kServing; });
  TestClient client(port);
  client.send(TestClient::request("POST", "/v1/chat/completions", chat_body()));
  ASSERT_TRUE(serving.wait([this] { return serving.started.size() == 1; }));
  (void)batch(line("a"));
  (void)await_state(batch(line("b", "no-such-model")), "completed");  // The first had its turns.
  on_loop([this] { EXPECT_EQ(serving.started.size(), 1U); });
  client.hang_up();
  EXPECT_TRUE(serving.wait([this] { return serving.started.size() == 2; }));
}

TEST_F(BatchRunnerTest, AProcessGoesOnWhereAnotherEnded) {
  serving.reply = "yes";
  batches::BatchRecord record{.id = "batch_1",
                              .endpoint = "/v1/chat/completions",
                              .input = "file-in",
                              .output = "file-out",
                              .errors = "file-err"};
  record.enter(batches::State::kValidating, 1);
  record.enter(batches::State::kInProgress, 2);
  record.expires_s = std::int64_t{1} << 40U;
  const std::string answered =
      R"({"id":"batch_req_1_1","custom_id":"b","response":{"body":"of before"},"error":null})";
  ASSERT_TRUE(options.batches->add_file({.id = "file-in", .purpose = "batch"},
                                        line("a") + line("b") + "nonsense\n" + line("d")));
  ASSERT_TRUE(options.batches->add_batch(record));
  ASSERT_TRUE(options.batches->write(record, false, answered + "\n" + answered.substr(0, 30)));
  ASSERT_TRUE(options.batches->write(record, true, "{\"id\":\"batch_req_1_2\"}\n"));
  start();
  const json told = await_state("batch_1", "completed");
  EXPECT_EQ(told["request_counts"], json({{"total", 4}, {"completed", 3}, {"failed", 1}}));
  auto answers = lines_of(told["output_file_id"]);
  EXPECT_EQ(answers.size(), 3U);
  EXPECT_EQ(answers["b"]["response"]["body"], "of before");
  on_loop([this] { EXPECT_EQ(serving.started.size(), 2U); });
}

TEST_F(BatchRunnerTest, WhatWasNotRunInTimeExpires) {
  batches::BatchRecord record{.id = "batch_1",
                              .endpoint = "/v1/chat/completions",
                              .input = "file-in",
                              .output = "file-out",
                              .errors = "file-err"};
  record.enter(batches::State::kInProgress, 2);
  record.expires_s = 3;
  ASSERT_TRUE(
      options.batches->add_file({.id = "file-in", .purpose = "batch"}, line("a") + line("b")));
  ASSERT_TRUE(options.batches->add_batch(record));
  start();
  const json told = await_state("batch_1", "expired");
  EXPECT_EQ(told["request_counts"]["failed"], 2);
  EXPECT_EQ(lines_of(told["error_file_id"])["b"]["error"]["code"], "batch_expired");
}

TEST_F(BatchRunnerTest, ABatchWhoseKeyIsGoneFails) {
  serving.reply = std::nullopt;
  config.api_keys = {{.key = "alice"}, {.key = "bob"}};
  start();
  const std::string alice = "Authorization: Bearer alice\r\n";
  const std::string input = json::parse(upload(line("a"), alice).body)["id"];
  const std::string id =
      json::parse(call("POST", "/v1/batches", batch_body(input), alice).body)["id"];
  const std::string owner = options.batches->unfinished()->front().owner;
  config.api_keys = {{.key = "bob"}};
  on_loop([this] { gateway->reload(config); });
  for (int i = 0; i < 2000; ++i) {
    const Result<batches::BatchRecord> told = options.batches->batch(owner, id);
    ASSERT_TRUE(told);
    if (told->state == batches::State::kFailed) {
      EXPECT_EQ(told->code, "invalid_api_key");
      return;
    }
    std::this_thread::sleep_for(5ms);
  }
  FAIL() << "it goes on";
}

TEST_F(BatchRunnerTest, LinesCountForTheKeysUsageAndQuota) {
  serving.reply = "yes";
  config.api_keys = {{.key = "alice", .name = "alice", .requests_per_minute = 4}};
  start();
  const std::string alice = "Authorization: Bearer alice\r\n";
  const std::string input =
      json::parse(upload(line("a") + line("b") + line("c"), alice).body)["id"];
  const std::string id =
      json::parse(call("POST", "/v1/batches", batch_body(input), alice).body)["id"];
  // The upload and the batch took two of the four requests.
  json told;
  std::int64_t completed = 0;
  for (int i = 0; i < 2000 && completed < 2; ++i) {
    told = json::parse(call("GET", "/v1/batches/" + id, "", alice).body);
    completed = told["request_counts"]["completed"];
    std::this_thread::sleep_for(5ms);
  }
  EXPECT_EQ(told["status"], "in_progress");
  EXPECT_EQ(told["request_counts"]["completed"], 2);
}

}  // namespace
}  // namespace heddle::gateway
