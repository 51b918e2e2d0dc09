#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"

namespace heddle::sim {

/// One request as a span of OpenTelemetry tells of it.
struct OtlpRow {
  Instant arrival{};  ///< From the first request of all.
  std::string model{};
  std::int64_t input_tokens = 0;
  std::int64_t output_tokens = 0;
};

/// Requests from traces that were exported as OTLP in JSON, as the collector's file exporter writes
/// them: an object with "resourceSpans" in each line. A request is a span with a model
/// (gen_ai.request.model or gen_ai.response.model) and both numbers of tokens
/// (gen_ai.usage.input_tokens and output_tokens, or prompt_tokens and completion_tokens), as
/// heddle, vLLM and others have them. Spans come in the order of their ends; where one such span is
/// behind another, as an engine's behind the gateway's, the outer one is the request.
class OtlpTrace {
 public:
  /// Whether a line looks like one of such a file.
  [[nodiscard]] static bool is(std::string_view line);

  /// Takes a line. kCorrupt, with the reason, where it is not JSON.
  Result<void> add(std::string_view line);
  /// The requests of all lines, by arrival.
  [[nodiscard]] std::vector<OtlpRow> rows() const;

 private:
  struct Request {
    std::string span{};  ///< With its trace.
    std::uint64_t begin_ns = 0;
    OtlpRow row{};
  };
  [[nodiscard]] bool is_inner(const Request& request) const;

  std::vector<Request> requests_{};
  std::map<std::string, std::string> parents_{};  ///< By span, of all spans.
  std::map<std::string, bool> is_request_{};      ///< By span.
};

}  // namespace heddle::sim
