#include "cluster/etcd_wire.h"

#include <charconv>
#include <utility>

#include "base/base64.h"
#include "spec/json_view.h"
#include "spec/json_writer.h"

namespace heddle::cluster::etcd {

using spec::Json;
using spec::JsonWriter;

namespace {

constexpr std::string_view kWhere = "etcd's answer";
constexpr std::size_t kReasonMax = 300;

Error nonsense(std::string_view what, std::string_view value) {
  return {Code::kCorrupt,
          std::string(kWhere) + ": " + std::string(what) + " is \"" +
              std::string(value.substr(0, kReasonMax)) + "\""};
}

/// A number below 2^63; absent: 0.
Result<std::uint64_t> number_in(const Json& json, spec::JsonPath path) {
  const std::string text = spec::text_at(json, path);
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [at, failure] = std::from_chars(text.data(), end, number);
  const bool absent = spec::value_at(json, path) == nullptr;
  if (!absent && (failure != std::errc() || at != end || number >> 63U != 0)) {
    return nonsense(*(path.end() - 1), text);
  }
  return number;
}

bool flag_in(const Json& json, std::string_view name) {
  const bool* const found = spec::value_at<bool>(json, {name});
  return found != nullptr && *found;
}

Result<Json> parse_answer(std::string_view body) {
  Result<Json> json = spec::parse_json(body, kWhere);
  if (!json) {
    return json;
  }
  // Of requests the text itself, of streams an object.
  for (const spec::JsonPath path : {spec::JsonPath{"error"}, spec::JsonPath{"error", "message"}}) {
    if (const auto* const message = spec::value_at<std::string>(*json, path)) {
      return Error{Code::kUnavailable, "etcd: " + message->substr(0, kReasonMax)};
    }
  }
  return json;
}

Result<Header> header_in(const Json& json) {
  const Result<std::uint64_t> revision = number_in(json, {"header", "revision"});
  if (!revision) {
    return revision.error();
  }
  Header header{.cluster = spec::text_at(json, {"header", "cluster_id"}), .revision = *revision};
  if (header.cluster.empty()) {
    return nonsense("header.cluster_id", "");
  }
  return header;
}

Result<std::string> bytes_in(const Json& json, std::string_view name) {
  if (json.find(name) == nullptr) {
    return std::string();
  }
  const auto* const text = spec::value_at<std::string>(json, {name});
  std::optional<std::string> bytes = text == nullptr ? std::nullopt : from_base64(*text);
  if (!bytes) {
    return nonsense(name, text == nullptr ? "no string" : *text);
  }
  return std::move(*bytes);
}

Result<Record> record_in(const Json& json) {
  Result<std::string> key = bytes_in(json, "key");
  Result<std::string> value = bytes_in(json, "value");
  const Result<std::uint64_t> revision = number_in(json, {"mod_revision"});
  for (const Error* error : {key ? nullptr : &key.error(),
                             value ? nullptr : &value.error(),
                             revision ? nullptr : &revision.error()}) {
    if (error != nullptr) {
      return *error;
    }
  }
  if (key->empty() || *revision == 0) {
    return nonsense("a record without key or mod_revision", *key);
  }
  return Record{.key = std::move(*key), .value = std::move(*value), .revision = *revision};
}

Result<std::vector<Record>> records_in(const Json& json) {
  std::vector<Record> records;
  for (const Json& each : spec::items_at(json, {"kvs"})) {
    Result<Record> record = record_in(each);
    if (!record) {
      return record.error();
    }
    records.push_back(std::move(*record));
  }
  return records;
}

Result<Lease> lease_in(const Json& json) {
  const Result<std::uint64_t> id = number_in(json, {"ID"});
  const Result<std::uint64_t> seconds = number_in(json, {"TTL"});
  if (!id || !seconds) {
    return (!id ? id : seconds).error();
  }
  return Lease{.id = std::to_string(*id), .seconds = static_cast<std::int64_t>(*seconds)};
}

/// Under the condition that the key has the revision.
void begin_txn(JsonWriter& json, const std::string& key, Revision expected) {
  json.begin_object().key("compare").begin_array().begin_object();
  json.key("target").string("MOD").key("result").string("EQUAL").key("key").string(key);
  json.key("mod_revision").string(std::to_string(expected)).end_object().end_array();
  json.key("success").begin_array().begin_object();
}

std::string end_txn(JsonWriter& json, const std::string& key) {
  json.end_object().end_array().key("failure").begin_array().begin_object();
  json.key("request_range").begin_object().key("key").string(key).end_object();
  json.end_object().end_array().end_object();
  return std::move(json).take();
}

}  // namespace

Result<Range> parse_range(std::string_view body) {
  const Result<Json> json = parse_answer(body);
  if (!json) {
    return json.error();
  }
  Result<Header> header = header_in(*json);
  if (!header) {
    return header.error();
  }
  Result<std::vector<Record>> records = records_in(*json);
  if (!records) {
    return records.error();
  }
  return Range{
      .header = std::move(*header), .records = std::move(*records), .more = flag_in(*json, "more")};
}

Result<Txn> parse_txn(std::string_view body) {
  const Result<Json> json = parse_answer(body);
  if (!json) {
    return json.error();
  }
  Result<Header> header = header_in(*json);
  if (!header) {
    return header.error();
  }
  Txn txn{.header = std::move(*header), .succeeded = flag_in(*json, "succeeded")};
  for (const Json& each : spec::items_at(*json, {"responses"})) {
    if (const Json* const range = each.find("response_range")) {
      Result<std::vector<Record>> records = records_in(*range);
      if (!records) {
        return records.error();
      }
      if (!records->empty()) {
        txn.present = std::move(records->front());
      }
    }
  }
  return txn;
}

Result<Lease> parse_lease(std::string_view body) {
  const Result<Json> json = parse_answer(body);
  if (!json) {
    return json.error();
  }
  Result<Lease> lease = lease_in(*json);
  if (lease && (lease->id == "0" || lease->seconds == 0)) {
    return nonsense("a lease without ID or TTL", body);
  }
  return lease;
}

Result<Lease> parse_keep_alive(std::string_view body) {
  const Result<Json> json = parse_answer(body.substr(0, body.find('\n')));
  if (!json) {
    return json.error();
  }
  const Json* const result = json->find("result");
  if (result == nullptr) {
    return nonsense("a renewed lease", body);
  }
  return lease_in(*result);
}

Result<WatchLine> parse_watch_line(std::string_view line) {
  const Result<Json> json = parse_answer(line);
  if (!json) {
    return json.error();
  }
  const Json* const result = json->find("result");
  if (result == nullptr) {
    return nonsense("a line of a watch", line);
  }
  Result<Header> header = header_in(*result);
  const Result<std::uint64_t> compacted = number_in(*result, {"compact_revision"});
  if (!header || !compacted) {
    return !header ? header.error() : compacted.error();
  }
  WatchLine parsed{.header = std::move(*header),
                   .created = flag_in(*result, "created"),
                   .fragment = flag_in(*result, "fragment"),
                   .canceled = flag_in(*result, "canceled"),
                   .compacted = *compacted,
                   .reason = spec::text_at(*result, {"cancel_reason"}).substr(0, kReasonMax)};
  for (const Json& each : spec::items_at(*result, {"events"})) {
    const std::string type = spec::text_at(each, {"type"});
    const Json* const kv = each.find("kv");
    if (kv == nullptr || (!type.empty() && type != "PUT" && type != "DELETE")) {
      return nonsense("an event", type);
    }
    Result<Record> record = record_in(*kv);
    if (!record) {
      return record.error();
    }
    const auto kind = type == "DELETE" ? Change::Kind::kRemoved : Change::Kind::kPut;
    parsed.changes.push_back({.kind = kind, .record = std::move(*record)});
  }
  return parsed;
}

std::string range_body(const RangeQuery& query) {
  JsonWriter json;
  json.begin_object().key("key").string(to_base64(query.first));
  if (!query.end.empty()) {
    json.key("range_end").string(to_base64(query.end));
  }
  if (query.limit > 0) {
    json.key("limit").string(std::to_string(query.limit));
  }
  if (query.at > 0) {
    json.key("revision").string(std::to_string(query.at));
  }
  if (query.newest_first) {
    json.key("sort_target").string("MOD").key("sort_order").string("DESCEND");
  }
  return std::move(json.end_object()).take();
}

std::string put_body(std::string_view key,
                     Revision expected,
                     std::string_view value,
                     std::string_view lease) {
  const std::string name = to_base64(key);
  JsonWriter json;
  begin_txn(json, name, expected);
  json.key("request_put").begin_object().key("key").string(name);
  json.key("value").string(to_base64(value));
  if (!lease.empty()) {
    json.key("lease").string(lease);
  }
  json.end_object();
  return end_txn(json, name);
}

std::string remove_body(std::string_view key, Revision expected) {
  const std::string name = to_base64(key);
  JsonWriter json;
  begin_txn(json, name, expected);
  json.key("request_delete_range").begin_object().key("key").string(name).end_object();
  return end_txn(json, name);
}

std::string grant_body(std::int64_t seconds) {
  JsonWriter json;
  json.begin_object().key("TTL").string(std::to_string(seconds)).end_object();
  return std::move(json).take();
}

std::string keep_alive_body(std::string_view lease) {
  JsonWriter json;
  json.begin_object().key("ID").string(lease).end_object();
  return std::move(json).take();
}

std::string watch_body(std::string_view first, std::string_view end, Revision start) {
  JsonWriter json;
  json.begin_object().key("create_request").begin_object();
  json.key("key").string(to_base64(first)).key("range_end").string(to_base64(end));
  json.key("start_revision").string(std::to_string(start));
  json.key("fragment").boolean(true).key("progress_notify").boolean(true);
  json.end_object().end_object();
  return std::move(json).take();
}

std::string end_of(std::string_view prefix) {
  std::string end(prefix);
  end.back() = static_cast<char>(static_cast<unsigned char>(end.back()) + 1U);
  return end;
}

}  // namespace heddle::cluster::etcd
