#include "trace/trace_context.h"

#include <cstddef>

namespace heddle::trace {

namespace {

constexpr std::size_t kFieldsSize = 55;  ///< Of "00-<trace>-<span>-01".
constexpr std::uint64_t kRefusedVersion = 0xff;
constexpr std::uint64_t kSampledFlag = 1;
constexpr double kTwoTo64 = 18446744073709551616.0;

/// At most 16 digits, all of them lower case; nothing where one is something else.
std::optional<std::uint64_t> parse_hex(std::string_view digits) {
  std::uint64_t value = 0;
  for (const char digit : digits) {
    value <<= 4U;
    if (digit >= '0' && digit <= '9') {
      value |= static_cast<std::uint64_t>(digit - '0');
    } else if (digit >= 'a' && digit <= 'f') {
      value |= static_cast<std::uint64_t>(digit - 'a' + 10);
    } else {
      return std::nullopt;
    }
  }
  return value;
}

void append_hex(std::string& text, std::uint64_t value) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  for (unsigned shift = 64; shift > 0; shift -= 4) {
    text += kDigits[(value >> (shift - 4)) & 15U];
  }
}

}  // namespace

std::optional<TraceContext> parse_traceparent(std::string_view text) {
  if (text.size() < kFieldsSize || text[2] != '-' || text[35] != '-' || text[52] != '-') {
    return std::nullopt;
  }
  const auto version = parse_hex(text.substr(0, 2));
  const auto high = parse_hex(text.substr(3, 16));
  const auto low = parse_hex(text.substr(19, 16));
  const auto span = parse_hex(text.substr(36, 16));
  const auto flags = parse_hex(text.substr(53, 2));
  if (!version || !high || !low || !span || !flags || *version == kRefusedVersion) {
    return std::nullopt;
  }
  const bool more = text.size() > kFieldsSize;
  if (more && (*version == 0 || text[kFieldsSize] != '-')) {
    return std::nullopt;
  }
  if ((*high == 0 && *low == 0) || *span == 0) {
    return std::nullopt;
  }
  return TraceContext{.trace = {.high = *high, .low = *low},
                      .span = SpanId(*span),
                      .sampled = (*flags & kSampledFlag) != 0};
}

std::string traceparent(const TraceContext& context) {
  std::string text;
  text.reserve(kFieldsSize);
  text += "00-";
  append_hex(text, context.trace.high);
  append_hex(text, context.trace.low);
  text += '-';
  append_hex(text, context.span.value());
  text += context.sampled ? "-01" : "-00";
  return text;
}

std::string hex(const TraceId& id) {
  std::string text;
  text.reserve(32);
  append_hex(text, id.high);
  append_hex(text, id.low);
  return text;
}

std::string hex(SpanId id) {
  std::string text;
  text.reserve(16);
  append_hex(text, id.value());
  return text;
}

TraceId draw_trace_id(Rng& rng) {
  TraceId id{.high = rng.next(), .low = rng.next()};
  while (id == TraceId{}) {
    id.low = rng.next();
  }
  return id;
}

SpanId draw_span_id(Rng& rng) {
  SpanId id(rng.next());
  while (id == SpanId{}) {
    id = SpanId(rng.next());
  }
  return id;
}

bool is_among(const TraceId& id, double ratio) {
  return static_cast<double>(id.low) < ratio * kTwoTo64 || ratio >= 1;
}

}  // namespace heddle::trace
