#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "trace/span.h"

/// The JSON of OTLP, by which spans go to a collector.
namespace heddle::trace {

/// The body of a POST to /v1/traces. Bytes that are no UTF-8 become U+FFFD.
/// @param resource  What is told of the process.
/// @param version   Of this program.
[[nodiscard]] std::string spans_json(const Attributes& resource,
                                     const std::string& version,
                                     std::span<const Span> spans);

/// What a collector that took the request says it did not take of it.
struct PartialSuccess {
  std::int64_t rejected = 0;  ///< Spans.
  std::string why{};          ///< May be there without any that were rejected.
};
/// Reads the body of its answer; what is none rejects nothing.
[[nodiscard]] PartialSuccess read_partial_success(std::string_view body);

}  // namespace heddle::trace
