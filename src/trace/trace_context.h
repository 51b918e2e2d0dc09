#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "base/rng.h"

namespace heddle::trace {

/// Names a trace in all processes that take part in it: 128 random bits, not all of them 0.
struct TraceId {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  friend bool operator==(const TraceId&, const TraceId&) = default;
};
/// Names a span within its trace: 64 random bits, not all of them 0.
using SpanId = Id<struct SpanIdTag>;

/// What one process tells the next of a trace, by W3C's Trace Context.
struct TraceContext {
  TraceId trace{};
  SpanId span{};         ///< The one that asks: the parent of what the next process does for it.
  bool sampled = false;  ///< The spans of this trace are kept.
  friend bool operator==(const TraceContext&, const TraceContext&) = default;
};

/// Reads the value of a header `traceparent`; nothing where the specification has it thrown away:
/// wrong lengths, letters that are not lower case, ids that are 0, version ff. Of versions that do
/// not exist yet the first four fields are read.
[[nodiscard]] std::optional<TraceContext> parse_traceparent(std::string_view text);
/// Writes it, in version 00.
[[nodiscard]] std::string traceparent(const TraceContext& context);

/// 32 and 16 digits, as logs and backends have them.
[[nodiscard]] std::string hex(const TraceId& id);
[[nodiscard]] std::string hex(SpanId id);

/// Ids that nobody has.
[[nodiscard]] TraceId draw_trace_id(Rng& rng);
[[nodiscard]] SpanId draw_span_id(Rng& rng);

/// Whether the trace is among the part `ratio` of all, 0 to 1. By its id alone, so that processes
/// of one ratio keep the same traces.
[[nodiscard]] bool is_among(const TraceId& id, double ratio);

}  // namespace heddle::trace
