#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "sim/otlp_trace.h"

namespace heddle::sim {

/// Requests from the log of `heddle serve` or of gateways, as text or as JSON: its lines "request
/// ended", which have the model, both numbers of tokens and how long the request took. Other lines,
/// those of other programs among them, are passed over.
class LogTrace {
 public:
  /// Whether a line is one of such a log.
  [[nodiscard]] static bool is(std::string_view line);

  /// Takes a line. kCorrupt, with the reason, for a "request ended" that lacks what it should have.
  Result<void> add(std::string_view line);
  /// The requests of all lines, by arrival, which is their end less the time that they took. Those
  /// without a token are left out: they failed before they had one.
  [[nodiscard]] std::vector<OtlpRow> rows() const;

 private:
  struct Request {
    std::int64_t arrived_us = 0;  ///< Since 1970.
    OtlpRow row{};
  };
  std::vector<Request> requests_{};
};

}  // namespace heddle::sim
