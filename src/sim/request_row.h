#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/ids.h"
#include "base/time.h"

namespace heddle::sim {

/// What a model's requests are held to; zero: nothing.
struct Objective {
  Duration ttft{};
  Duration tpot{};
};

/// How a request ended; every table, file and page has these three words for it.
enum class RequestEnd : std::uint8_t {
  kCompleted,
  kRefused,   ///< The policy, or a limit, turned it away.
  kUnserved,  ///< It still waited, or ran, when the run ended.
};
[[nodiscard]] constexpr std::string_view name(RequestEnd end) {
  return end == RequestEnd::kCompleted ? "completed"
         : end == RequestEnd::kRefused ? "refused"
                                       : "unserved";
}

/// One request that has ended, for whoever wants a row of each.
struct RequestRow {
  RequestId number{};
  ModelId model{};
  Instant arrival{};
  std::int64_t input_tokens = 0;
  std::int64_t output_tokens = 0;
  std::optional<Instant> first_token{};
  std::optional<Instant> finished{};  ///< None: it did not complete.
  RequestEnd end = RequestEnd::kCompleted;
  std::int64_t preemptions = 0;
  bool cold = false;  ///< No instance of its model served when it came.
};

/// What a request met of its objective; one that did not complete met nothing.
struct Met {
  std::optional<Duration> ttft{};  ///< Its time to the first token, if it completed.
  std::optional<Duration> tpot{};  ///< Then from one token to the next, where there are two.
  bool in_time = false;
  bool in_pace = false;

  [[nodiscard]] bool both() const { return in_time && in_pace; }
};
[[nodiscard]] inline Met met(const RequestRow& row, const Objective& objective) {
  Met met;
  if (row.finished) {
    met.ttft = *row.first_token - row.arrival;
    if (row.output_tokens > 1) {
      met.tpot = (*row.finished - *row.first_token) / (row.output_tokens - 1);
    }
    met.in_time = objective.ttft == Duration{} || *met.ttft <= objective.ttft;
    met.in_pace = objective.tpot == Duration{} || met.tpot.value_or(Duration{}) <= objective.tpot;
  }
  return met;
}

}  // namespace heddle::sim
