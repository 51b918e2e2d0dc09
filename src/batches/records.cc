#include "batches/records.h"

#include "spec/json_writer.h"

namespace heddle::batches {

using spec::JsonWriter;

namespace {

void write_time(JsonWriter& json, std::string_view key, std::int64_t seconds) {
  json.key(key);
  if (seconds > 0) {
    json.integer(seconds);
  } else {
    json.null();
  }
}

void write_name(JsonWriter& json, std::string_view key, const std::string& name, bool there) {
  json.key(key);
  if (there) {
    json.string(name);
  } else {
    json.null();
  }
}

void write_errors(JsonWriter& json, const BatchRecord& batch) {
  json.key("errors");
  if (batch.code.empty()) {
    json.null();
    return;
  }
  json.begin_object().key("object").string("list").key("data").begin_array().begin_object();
  json.key("code").string(batch.code).key("message").string(batch.message);
  json.key("param").null().key("line").null().end_object().end_array().end_object();
}

}  // namespace

std::string_view name(State state) {
  constexpr auto kNames = std::to_array<std::string_view>({"validating",
                                                           "in_progress",
                                                           "finalizing",
                                                           "completed",
                                                           "failed",
                                                           "expired",
                                                           "cancelling",
                                                           "cancelled"});
  static_assert(kNames.size() == kStates);
  return kNames.at(static_cast<std::size_t>(state));
}

bool is_over(State state) {
  switch (state) {
    case State::kCompleted:
    case State::kFailed:
    case State::kExpired:
    case State::kCancelled:
      return true;
    case State::kValidating:
    case State::kInProgress:
    case State::kFinalizing:
    case State::kCancelling:
      break;
  }
  return false;
}

std::string file_json(const FileRecord& file) {
  JsonWriter json;
  json.begin_object().key("id").string(file.id).key("object").string("file");
  json.key("bytes").integer(file.bytes).key("created_at").integer(file.created_s);
  write_time(json, "expires_at", file.expires_s);
  json.key("filename").string(file.name).key("purpose").string(file.purpose);
  json.key("status").string("processed").key("status_details").null().end_object();
  return std::move(json).take();
}

std::string batch_json(const BatchRecord& batch) {
  JsonWriter json;
  json.begin_object().key("id").string(batch.id).key("object").string("batch");
  json.key("endpoint").string(batch.endpoint);
  write_errors(json, batch);
  json.key("input_file_id").string(batch.input).key("completion_window").string("24h");
  json.key("status").string(name(batch.state));
  write_name(json, "output_file_id", batch.output, batch.has_output);
  write_name(json, "error_file_id", batch.errors, batch.has_errors);
  json.key("created_at").integer(batch.created_s());
  json.key("expires_at").integer(batch.expires_s);
  for (std::size_t i = 1; i < kStates; ++i) {
    write_time(json, std::string(name(static_cast<State>(i))) + "_at", batch.at.at(i));
  }
  json.key("request_counts").begin_object().key("total").integer(batch.counts.total);
  json.key("completed").integer(batch.counts.completed);
  json.key("failed").integer(batch.counts.failed).end_object();
  json.key("metadata");
  if (batch.metadata.empty()) {
    json.null();
  } else {
    json.json(batch.metadata);
  }
  json.end_object();
  return std::move(json).take();
}

std::string deleted_json(const std::string& file) {
  JsonWriter json;
  json.begin_object().key("id").string(file).key("object").string("file");
  json.key("deleted").boolean(true).end_object();
  return std::move(json).take();
}

}  // namespace heddle::batches
