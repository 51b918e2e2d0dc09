#include "trace/otlp_json.h"

#include <algorithm>
#include <charconv>
#include <type_traits>
#include <utility>

#include <nlohmann/json.hpp>

namespace heddle::trace {

namespace {

using nlohmann::json;

constexpr std::uint32_t kSampled = 1;
constexpr std::uint32_t kRemoteIsKnown = 0x100;
constexpr std::uint32_t kRemote = 0x200;
constexpr int kFailed = 2;

/// Integers of 64 bits are strings in protocol buffers' JSON.
json value_json(const Attribute::Value& value) {
  return std::visit(
      [](const auto& held) -> json {
        using T = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<T, bool>) {
          return {{"boolValue", held}};
        } else if constexpr (std::is_same_v<T, std::int64_t>) {
          return {{"intValue", std::to_string(held)}};
        } else if constexpr (std::is_same_v<T, std::string>) {
          return {{"stringValue", held}};
        } else {
          json values = json::array();
          for (const std::string& text : held) {
            values.push_back({{"stringValue", text}});
          }
          return {{"arrayValue", {{"values", std::move(values)}}}};
        }
      },
      value);
}

json attributes_json(const Attributes& attributes) {
  json all = json::array();
  for (const Attribute& attribute : attributes) {
    all.push_back({{"key", attribute.key}, {"value", value_json(attribute.value)}});
  }
  return all;
}

json span_json(const Span& span) {
  json out{{"traceId", hex(span.trace)},
           {"spanId", hex(span.id)},
           {"flags", kSampled | kRemoteIsKnown | (span.remote_parent ? kRemote : 0U)},
           {"name", span.name},
           {"kind", static_cast<int>(span.kind)},
           {"startTimeUnixNano", std::to_string(span.begin_ns)},
           {"endTimeUnixNano", std::to_string(span.end_ns)},
           {"attributes", attributes_json(span.attributes)}};
  if (span.parent != SpanId{}) {
    out["parentSpanId"] = hex(span.parent);
  }
  for (const SpanEvent& event : span.events) {
    out["events"].push_back({{"name", event.name},
                             {"timeUnixNano", std::to_string(event.at_ns)},
                             {"attributes", attributes_json(event.attributes)}});
  }
  if (span.failed) {
    out["status"]["code"] = kFailed;
    if (!span.failure.empty()) {
      out["status"]["message"] = span.failure;
    }
  }
  return out;
}

/// A number, or a number in a string.
std::int64_t integer_of(const json& value) {
  if (value.is_number_integer()) {
    return value.get<std::int64_t>();
  }
  std::int64_t number = 0;
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    (void)std::from_chars(text.data(), text.data() + text.size(), number);
  }
  return number;
}

}  // namespace

std::string spans_json(const Attributes& resource,
                       const std::string& version,
                       std::span<const Span> spans) {
  json all = json::array();
  for (const Span& span : spans) {
    all.push_back(span_json(span));
  }
  json scope{{"scope", {{"name", "heddle"}, {"version", version}}}, {"spans", std::move(all)}};
  json of_process{{"resource", {{"attributes", attributes_json(resource)}}},
                  {"scopeSpans", json::array({std::move(scope)})}};
  const json body{{"resourceSpans", json::array({std::move(of_process)})}};
  return body.dump(-1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace);
}

PartialSuccess read_partial_success(std::string_view body) {
  const json read = json::parse(body, nullptr, /*allow_exceptions=*/false);
  PartialSuccess partial;
  if (!read.is_object() || !read.contains("partialSuccess") ||
      !read["partialSuccess"].is_object()) {
    return partial;
  }
  const json& told = read["partialSuccess"];
  if (told.contains("rejectedSpans")) {
    partial.rejected = std::max<std::int64_t>(integer_of(told["rejectedSpans"]), 0);
  }
  if (told.contains("errorMessage") && told["errorMessage"].is_string()) {
    partial.why = told["errorMessage"].get<std::string>();
  }
  return partial;
}

}  // namespace heddle::trace
