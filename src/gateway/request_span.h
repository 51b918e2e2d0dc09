#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/http_address.h"
#include "base/rng.h"
#include "base/time.h"
#include "gateway/http_exchange.h"
#include "gateway/request_traces.h"
#include "trace/span.h"

namespace heddle::gateway {

/// A client's request as part of a trace, from when it has come. Loop thread.
struct RequestSpan {
  trace::TraceContext self{};  ///< Of the span of the whole request.
  trace::SpanId parent{};      ///< The client's; 0: it sent none.
  trace::SpanId forward{};     ///< Of the span in which an engine is asked.
  std::string trace_id{};      ///< As logs have it.
  Instant began{};
  std::int64_t began_ns = 0;  ///< The same moment, in nanoseconds since 1970.
  // What is told of it. Empty where the trace is not kept.
  std::string request_id{};
  std::string method{};
  std::string path{};
  std::string client{};  ///< Its address.
  bool tls = false;
  std::string_view route{};
  std::shared_ptr<const RequestTrace> told{};  ///< What became of it; null: it was refused.
  bool asked_engine = false;
  /// Where the engine is that was asked last; nothing: known to its host alone.
  std::optional<HttpAddress> engine{};
};

/// The moment by two clocks.
struct Now {
  Instant steady{};
  std::int64_t wall_ns = 0;  ///< Since 1970.
};

/// The span of a request that has come: of the client's trace, where its one `traceparent` names
/// one and says whether it is kept; else of a new one, of which the part `sample` is kept.
[[nodiscard]] RequestSpan begin_span(
    const HttpRequest& request, std::string_view route, double sample, Now now, Rng& rng);

/// Has an engine take part in the trace: puts what it is to know among the headers that it gets,
/// in place of what the client sent.
void carry_on(const RequestSpan& request, HttpFields& headers);

/// What happened within the request, with the request's own span first: where it waited, what was
/// loaded, and what ran where. The children lie within it, in order of their beginnings.
/// @param status  Of the answer; 499 where there was none.
[[nodiscard]] std::vector<trace::Span> tell_spans(const RequestSpan& request,
                                                  int status,
                                                  Instant ended,
                                                  Rng& rng);

}  // namespace heddle::gateway
