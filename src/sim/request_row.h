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

}  // namespace heddle::sim
