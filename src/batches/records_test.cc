#include "batches/records.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace heddle::batches {
namespace {

using nlohmann::json;

TEST(BatchRecordsTest, ABatchAsOpenAiTellsIt) {
  BatchRecord batch{.id = "batch_1",
                    .endpoint = "/v1/embeddings",
                    .input = "file-1",
                    .output = "file-2",
                    .errors = "file-3"};
  batch.enter(State::kValidating, 100);
  batch.expires_s = 86'500;
  json told = json::parse(batch_json(batch));
  EXPECT_EQ(told["status"], "validating");
  EXPECT_EQ(told["created_at"], 100);
  EXPECT_EQ(told["completion_window"], "24h");
  for (const char* absent : {"output_file_id",
                             "error_file_id",
                             "errors",
                             "metadata",
                             "in_progress_at",
                             "completed_at",
                             "cancelled_at"}) {
    EXPECT_TRUE(told[absent].is_null()) << absent;
  }
  batch.enter(State::kInProgress, 101);
  batch.enter(State::kCompleted, 102);
  batch.has_output = true;
  batch.counts = {.total = 3, .completed = 2, .failed = 1};
  batch.metadata = R"({"a":"b"})";
  told = json::parse(batch_json(batch));
  EXPECT_EQ(told["status"], "completed");
  EXPECT_EQ(told["in_progress_at"], 101);
  EXPECT_EQ(told["completed_at"], 102);
  EXPECT_EQ(told["output_file_id"], "file-2");
  EXPECT_TRUE(told["error_file_id"].is_null());
  EXPECT_EQ(told["request_counts"]["failed"], 1);
  EXPECT_EQ(told["metadata"]["a"], "b");
}

TEST(BatchRecordsTest, WhyABatchFailed) {
  const json told = json::parse(batch_json({.code = "empty_file", .message = "it has no lines"}));
  EXPECT_EQ(told["errors"]["object"], "list");
  EXPECT_EQ(told["errors"]["data"][0]["code"], "empty_file");
}

TEST(BatchRecordsTest, AFileAsOpenAiTellsIt) {
  const json told = json::parse(file_json({.id = "file-1",
                                           .name = "../../x\"\n.jsonl",
                                           .purpose = "batch",
                                           .bytes = 7,
                                           .created_s = 5}));
  EXPECT_EQ(told["filename"], "../../x\"\n.jsonl");
  EXPECT_EQ(told["bytes"], 7);
  EXPECT_TRUE(told["expires_at"].is_null());
  EXPECT_EQ(json::parse(deleted_json("file-1"))["deleted"], true);
}

TEST(BatchRecordsTest, StatesThatAreOver) {
  int over = 0;
  for (std::size_t i = 0; i < kStates; ++i) {
    over += is_over(static_cast<State>(i)) ? 1 : 0;
  }
  EXPECT_EQ(over, 4);
  EXPECT_EQ(name(State::kCancelling), "cancelling");
}

}  // namespace
}  // namespace heddle::batches
