#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "trace/trace_context.h"

namespace heddle::trace {

/// Something that is told of a span, by the name that OpenTelemetry's conventions have for it.
struct Attribute {
  using Value = std::variant<std::string, std::int64_t, bool, std::vector<std::string>>;
  std::string_view key{};  ///< Lives as long as the program.
  Value value{};
};
using Attributes = std::vector<Attribute>;

/// Something that happened within a span.
struct SpanEvent {
  std::string_view name{};  ///< Lives as long as the program.
  std::int64_t at_ns = 0;   ///< Nanoseconds since 1970.
  Attributes attributes{};
};

/// As OpenTelemetry numbers them.
enum class SpanKind : std::uint8_t { kInternal = 1, kServer = 2, kClient = 3 };

/// What was done from one moment to another as part of a trace.
struct Span {
  std::string name{};
  SpanKind kind = SpanKind::kInternal;
  TraceId trace{};
  SpanId id{};
  SpanId parent{};             ///< 0: it has none.
  bool remote_parent = false;  ///< That is of another process.
  std::int64_t begin_ns = 0;   ///< Nanoseconds since 1970; so is the next.
  std::int64_t end_ns = 0;
  Attributes attributes{};
  std::vector<SpanEvent> events{};
  bool failed = false;
  std::string failure{};  ///< Why, for people; may be empty.
};

}  // namespace heddle::trace
