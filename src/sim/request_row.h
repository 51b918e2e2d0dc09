#pragma once

#include <cstdint>
#include <optional>

#include "base/ids.h"
#include "base/time.h"

namespace heddle::sim {

/// What a model's requests are held to; zero: nothing.
struct Objective {
  Duration ttft{};
  Duration tpot{};
};

/// One request that has ended, for whoever wants a row of each.
struct RequestRow {
  RequestId number{};
  ModelId model{};
  Instant arrival{};
  std::int64_t input_tokens = 0;
  std::int64_t output_tokens = 0;
  std::optional<Instant> first_token{};
  std::optional<Instant> finished{};  ///< None: it was refused, or never served.
  std::int64_t preemptions = 0;
  bool cold = false;  ///< No instance of its model served when it came.
};

}  // namespace heddle::sim
