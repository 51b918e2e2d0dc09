#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "sim/quantiles.h"

namespace heddle::bench {

/// What happened to one request. Times are after the start of the run.
struct Row {
  std::size_t model = 0;
  Duration due{};    ///< When it was to be sent; latencies count from here.
  Duration begun{};  ///< When that was begun.
  Duration first{};  ///< When the first content came; 0: none did.
  Duration last{};   ///< And the last.
  Duration ended{};
  std::int64_t prompt_tokens = 0;      ///< As the server counts them.
  std::int64_t completion_tokens = 0;  ///< Likewise; where it does not, pieces of content.
  std::uint64_t digest = 0;  ///< Of tokens and log probabilities, where they were asked for.
  std::string error{};       ///< Empty where all went well.

  /// To the first content, or to the end of an answer without any.
  [[nodiscard]] Duration ttft() const { return (first == Duration{} ? ended : first) - due; }
  /// Between tokens after the first; nothing for answers of one token, or in one piece.
  [[nodiscard]] std::optional<Duration> tpot() const;
};

/// What a request must keep to count as good.
struct Slo {
  std::optional<Duration> ttft{};
  std::optional<Duration> tpot{};

  [[nodiscard]] bool met_by(const Row& row) const;
};

/// Reads "ttft=200ms,tpot=50ms", of which either may be missing.
Result<Slo> parse_slo(std::string_view text);

/// Requests of one model, or of all.
struct Summary {
  std::string model{};
  std::int64_t requests = 0;
  std::int64_t failed = 0;
  std::int64_t good = 0;  ///< Met the objectives.
  std::int64_t prompt_tokens = 0;
  std::int64_t completion_tokens = 0;
  /// Of requests that did not fail [s].
  sim::Quantiles ttft{};
  sim::Quantiles tpot{};
  sim::Quantiles itl{};      ///< Between pieces of content.
  sim::Quantiles latency{};  ///< To the end.
};

/// All requests of a run that have ended.
class Results {
 public:
  Results(std::vector<std::string> models, Slo slo);

  /// `gaps` are those between the pieces of content.
  void add(Row row, const std::vector<Duration>& gaps);

  [[nodiscard]] const std::vector<Row>& rows() const { return rows_; }
  [[nodiscard]] const std::vector<Summary>& models() const { return models_; }
  [[nodiscard]] const Summary& all() const { return all_; }
  [[nodiscard]] const Slo& slo() const { return slo_; }
  /// How much later than due requests were begun [s]: the generator's own fault.
  [[nodiscard]] const sim::Quantiles& lateness() const { return lateness_; }
  /// Messages of failures and how often each came.
  [[nodiscard]] const std::map<std::string, std::int64_t>& errors() const { return errors_; }
  /// To the end of the last request.
  [[nodiscard]] Duration span() const { return span_; }
  /// A count as a rate over the span [1/s].
  [[nodiscard]] double per_second(std::int64_t count) const;

 private:
  std::vector<Row> rows_{};
  std::vector<Summary> models_{};
  Summary all_{};
  Slo slo_;
  sim::Quantiles lateness_{};
  std::map<std::string, std::int64_t> errors_{};
  Duration span_{};
};

}  // namespace heddle::bench
