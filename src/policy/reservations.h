#pragma once

#include <cstdint>
#include <optional>

#include "base/ids.h"
#include "base/time.h"

namespace heddle::policy {

/// A device that is kept for a model whose requests have waited for long: what came to wait later
/// goes there only where that does not delay it.
struct Reservation {
  ModelId model{};
  Instant since{};         ///< When the first of its requests began to wait.
  std::int64_t pages = 0;  ///< That it needs on the device.
  Instant from{};          ///< It cannot have all its devices before, as far as that is known.
  friend bool operator==(const Reservation&, const Reservation&) = default;
};

/// Once a model has waited for so long, estimates of when others leave are not believed any more.
inline constexpr Duration kNobodyPasses = std::chrono::seconds(30);

/// One that came later and would go to the device first.
struct Passer {
  Instant since{};                ///< When the first of its requests began to wait.
  std::int64_t left_pages = 0;    ///< Free on the device beside it; < 0: others leave for it.
  std::optional<Instant> gone{};  ///< When it can have left again, if that is known.
};

/// Whether it may (SwapServeLLM, section 3.4, with EASY's backfill): it has waited for longer, or
/// there is room for both, or it can have left again before the other's turn, which has not waited
/// for kNobodyPasses. So the model that waits for longest is delayed by nobody, and all have their
/// turn to be that.
[[nodiscard]] bool may_pass(const Reservation& reservation, const Passer& passer, Instant now);

}  // namespace heddle::policy
