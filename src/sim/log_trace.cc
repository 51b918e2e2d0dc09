#include "sim/log_trace.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "sim/trace.h"
#include "spec/json_view.h"

namespace heddle::sim {
namespace {

constexpr std::string_view kEnded = "request ended";
constexpr std::size_t kTime = 23;  ///< "2026-11-21 08:47:01.123"
constexpr double kLongestMs = 1e10;

Error log_error(const std::string& why) {
  return {.code = Code::kCorrupt, .message = "\"request ended\": " + why};
}

/// The fields behind the message of a text line: name=value, where a value may be quoted and has
/// backslashes then.
std::map<std::string, std::string> text_fields(std::string_view text) {
  std::map<std::string, std::string> fields;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t equals = text.find('=', at);
    if (equals == std::string_view::npos) {
      break;
    }
    std::string& value = fields[std::string(text.substr(at, equals - at))];
    at = equals + 1;
    const bool quoted = at < text.size() && text[at] == '"';
    for (at += quoted ? 1 : 0; at < text.size() && text[at] != (quoted ? '"' : ' '); ++at) {
      at += quoted && text[at] == '\\' && at + 1 < text.size() ? 1 : 0;
      value += text[at];
    }
    at += quoted ? 1 : 0;
    while (at < text.size() && text[at] == ' ') {
      ++at;
    }
  }
  return fields;
}

/// The same of a line in JSON; nothing where it is none.
std::optional<std::map<std::string, std::string>> json_fields(std::string_view line) {
  const Result<spec::Json> json = spec::parse_json(line, "the line");
  if (!json) {
    return std::nullopt;
  }
  std::map<std::string, std::string> fields;
  for (const char* name :
       {"time", "message", "model", "prompt_tokens", "completion_tokens", "ms"}) {
    if (const auto* text = spec::value_at<std::string>(*json, {name})) {
      fields[name] = *text;
    } else if (const auto* whole = spec::value_at<std::int64_t>(*json, {name})) {
      fields[name] = std::to_string(*whole);
    } else if (const auto* number = spec::value_at<double>(*json, {name})) {
      fields[name] = std::to_string(*number);
    }
  }
  return fields;
}

std::optional<double> number(const std::map<std::string, std::string>& fields, const char* name) {
  const auto found = fields.find(name);
  if (found == fields.end()) {
    return std::nullopt;
  }
  double value = 0;
  const std::string& text = found->second;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= 0
             ? std::optional(value)
             : std::nullopt;
}

bool is_text_line(std::string_view line) {
  return line.size() > kTime + 1 && line[4] == '-' && line[10] == ' ' && line[13] == ':' &&
         line[19] == '.' && line[kTime] == ' ' &&
         date_nanoseconds(line.substr(0, kTime)).has_value();
}

}  // namespace

bool LogTrace::is(std::string_view line) {
  return is_text_line(line) ||
         (line.starts_with("{\"time\":\"") && line.find("\"level\":") != line.npos);
}

Result<void> LogTrace::add(std::string_view line) {
  const std::size_t message = line.find(kEnded);
  if (message == line.npos || !is(line)) {
    return {};
  }
  std::map<std::string, std::string> fields;
  if (is_text_line(line)) {
    fields = text_fields(line.substr(std::min(line.size(), message + kEnded.size() + 1)));
    fields["time"] = line.substr(0, kTime);
    // Else another message speaks of it: "... WARN  peer said request ended".
    const std::string_view head = line.substr(kTime, message - kTime);
    fields["message"] = head.find('=') == head.npos ? kEnded : "";
  } else {
    auto read = json_fields(line);
    if (!read) {
      return log_error("it is no JSON");
    }
    fields = std::move(*read);
  }
  if (fields["message"] != kEnded) {
    return {};
  }
  const auto at = date_nanoseconds(fields["time"]);
  const auto prompt = number(fields, "prompt_tokens");
  const auto answer = number(fields, "completion_tokens");
  const auto took = number(fields, "ms");
  if (!at || !prompt || !answer || !took || *took > kLongestMs || fields["model"].empty() ||
      *prompt > 1e8 || *answer > 1e8) {
    return log_error("want time, model, prompt_tokens, completion_tokens and ms");
  }
  if (*prompt + *answer > 0) {
    requests_.push_back({.arrived_us = *at / 1000 - std::llround(*took * 1000),
                         .row = {.model = fields["model"],
                                 .input_tokens = std::llround(*prompt),
                                 .output_tokens = std::llround(*answer)}});
  }
  return {};
}

std::vector<OtlpRow> LogTrace::rows() const {
  std::vector<const Request*> order;
  for (const Request& request : requests_) {
    order.push_back(&request);
  }
  std::ranges::sort(order, [](const Request* a, const Request* b) {
    return std::tie(a->arrived_us, a->row.model, a->row.input_tokens, a->row.output_tokens) <
           std::tie(b->arrived_us, b->row.model, b->row.input_tokens, b->row.output_tokens);
  });
  std::vector<OtlpRow> rows;
  for (const Request* each : order) {
    rows.push_back(each->row);
    rows.back().arrival =
        Instant(std::chrono::microseconds(each->arrived_us - order.front()->arrived_us));
  }
  return rows;
}

}  // namespace heddle::sim
