#include "sim/otlp_trace.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <optional>

#include "spec/json_view.h"

namespace heddle::sim {
namespace {

/// Spans that one is inside of, at most.
constexpr int kDeepest = 64;

std::optional<std::uint64_t> whole_number(const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value)
                                                                  : std::nullopt;
}

/// The first of these attributes that the span has; numbers are strings in OTLP.
std::string attribute(const spec::Json& span, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    for (const spec::Json& each : spec::items_at(span, {"attributes"})) {
      if (spec::text_at(each, {"key"}) == name) {
        const std::string text = spec::text_at(each, {"value", "stringValue"});
        return text.empty() ? spec::text_at(each, {"value", "intValue"}) : text;
      }
    }
  }
  return {};
}

}  // namespace

bool OtlpTrace::is(std::string_view line) {
  return line.starts_with('{') && line.substr(0, 64).find("\"resourceSpans\"") != line.npos;
}

Result<void> OtlpTrace::add(std::string_view line) {
  const Result<spec::Json> json = spec::parse_json(line, "the export");
  if (!json) {
    return Error{.code = Code::kCorrupt, .message = json.error().message};
  }
  for (const spec::Json& resource : spec::items_at(*json, {"resourceSpans"})) {
    for (const spec::Json& scope : spec::items_at(resource, {"scopeSpans"})) {
      for (const spec::Json& span : spec::items_at(scope, {"spans"})) {
        const std::string trace = spec::text_at(span, {"traceId"}) + "/";
        const std::string name = trace + spec::text_at(span, {"spanId"});
        parents_[name] = trace + spec::text_at(span, {"parentSpanId"});
        const auto input = whole_number(
            attribute(span, {"gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"}));
        const auto output = whole_number(
            attribute(span, {"gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"}));
        const auto begin = whole_number(spec::text_at(span, {"startTimeUnixNano"}));
        std::string model = attribute(span, {"gen_ai.request.model", "gen_ai.response.model"});
        if (input && output && begin && !model.empty()) {
          is_request_[name] = true;
          requests_.push_back({.span = name,
                               .begin_ns = *begin,
                               .row = {.model = std::move(model),
                                       .input_tokens = static_cast<std::int64_t>(*input),
                                       .output_tokens = static_cast<std::int64_t>(*output)}});
        }
      }
    }
  }
  return {};
}

bool OtlpTrace::is_inner(const Request& request) const {
  auto outer = parents_.find(request.span);
  for (int depth = 0; depth < kDeepest && outer != parents_.end(); ++depth) {
    if (is_request_.contains(outer->second)) {
      return true;
    }
    outer = parents_.find(outer->second);
  }
  return false;
}

std::vector<OtlpRow> OtlpTrace::rows() const {
  std::vector<const Request*> outer;
  for (const Request& request : requests_) {
    if (!is_inner(request)) {
      outer.push_back(&request);
    }
  }
  std::ranges::sort(outer, [](const Request* a, const Request* b) {
    return std::pair(a->begin_ns, a->span) < std::pair(b->begin_ns, b->span);
  });
  std::vector<OtlpRow> rows;
  for (const Request* each : outer) {
    rows.push_back(each->row);
    rows.back().arrival =
        Instant(Duration(static_cast<Duration::rep>(each->begin_ns - outer.front()->begin_ns)));
  }
  return rows;
}

}  // namespace heddle::sim
