#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "core/serving.h"

namespace heddle::gateway {

/// Something that happened to such a request.
struct TraceIncident {
  core::Incident what{};
  std::string device{};  ///< The name of Incident::device.
};

/// What is told of one of the requests that a client's request became.
struct TracePart {
  core::RequestTimes times{};
  std::string device{};
  std::int32_t restarts = 0;
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;  ///< Of the prompt, those that a cached prefix spared.
  std::int64_t completion_tokens = 0;
  std::vector<spec::FinishReason> finished{};
  std::vector<TraceIncident> incidents{};  ///< Of one that has ended; in order.
};

/// How a client's request went.
struct RequestTrace {
  std::string tenant{};  ///< Principal::tenant of who asked.
  std::string request_id{};
  std::string trace_id{};   ///< Of OpenTelemetry's trace; empty where requests are not traced.
  std::string answer_id{};  ///< Empty where the answer has the id that an engine gave it.
  std::string model{};
  std::string endpoint{};
  std::int64_t arrived_ms = 0;  ///< Since 1970.
  bool streamed = false;
  int status = 0;       ///< 0 while it runs, 499 when the client left.
  std::string error{};  ///< Empty when there was none.
  std::vector<TracePart> parts{};
  /// While it runs; then `parts` has what is told of them.
  std::vector<std::shared_ptr<const core::RequestRecord>> records{};
  std::shared_ptr<const core::ExternalRequest> external{};  ///< Likewise, of an engine's request.
};

/// The traces of the last requests, oldest forgotten first. Loop thread.
class RequestTraces {
 public:
  explicit RequestTraces(std::size_t most) : most_(most) {}

  /// Begins a trace, which find() gives back for as long as it is not forgotten.
  std::shared_ptr<RequestTrace> begin(RequestTrace trace);
  /// Whose traces are asked for: those of one tenant, or all.
  using Whose = std::optional<std::string_view>;
  /// The latest request with this request id or answer id; null when there is none. Looks through
  /// all of them: people ask for one now and then, and requests begin all the time.
  [[nodiscard]] const RequestTrace* find(std::string_view id, Whose whose) const;
  /// Newest first.
  [[nodiscard]] std::vector<const RequestTrace*> latest(std::size_t most, Whose whose) const;

 private:
  std::size_t most_;
  std::deque<std::shared_ptr<RequestTrace>> traces_{};
};

/// Tokens of the answers so far; an embedding has none.
[[nodiscard]] std::int64_t completion_tokens(const core::RequestRecord& record);

/// What is told of a record; `device` is the name of where it ran.
[[nodiscard]] TracePart tell(const core::RequestRecord& record, std::string device);
/// The same of a request that an external engine answers, but for the tokens.
[[nodiscard]] TracePart tell(const core::ExternalRequest& request, std::string device);

/// What the log says of a client's request that has ended, beside its trace.
struct EndedRequest {
  std::string_view client{};  ///< For people.
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;
  std::int64_t completion_tokens = 0;
  Duration took{};
  std::string_view error{};  ///< With paths of this machine, of which clients are not told.
};
void log_ended(const RequestTrace& trace, const EndedRequest& ended);

/// The JSON of GET /api/requests/{id}: times in milliseconds.
[[nodiscard]] std::string trace_json(const RequestTrace& trace);

}  // namespace heddle::gateway
