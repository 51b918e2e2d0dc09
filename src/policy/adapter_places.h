#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>

/// Which of a model's instances a request for one of its LoRA adapters goes to.
///
/// An adapter that is not there is read, takes pages, and drives out another where pages lack. A
/// request more makes the steps of its instance a little longer. So an instance that has the
/// adapter is preferred while it has but few requests more than another; and where none has it, the
/// one with the fewest adapters, so that instances divide adapters among them.
namespace heddle::policy {

/// An instance, as a request for an adapter sees it.
struct AdapterPlace {
  std::int64_t load = 0;      ///< Requests there.
  bool has = false;           ///< The adapter is there, or on its way.
  std::int64_t adapters = 0;  ///< How many of them are.
};

/// Places in order, the best first.
struct PlaceRank {
  std::int64_t load = 0;  ///< Requests, less what the adapter is worth.
  bool lacks = false;     ///< The adapter is not there.
  std::int64_t adapters = 0;
  friend auto operator<=>(const PlaceRank&, const PlaceRank&) = default;
};

/// Requests that an adapter is worth, of `batch` that an instance should bear at most.
[[nodiscard]] constexpr std::int64_t adapter_worth(std::int64_t batch) {
  return std::max<std::int64_t>(batch / 8, 1);
}

/// An adapter that is there counts where a request more is within what the instance should bear.
[[nodiscard]] constexpr PlaceRank rank_of(const AdapterPlace& place, std::int64_t batch) {
  const bool counts = place.has && place.load < batch;
  return {.load = place.load - (counts ? adapter_worth(batch) : 0),
          .lacks = !counts,
          .adapters = place.adapters};
}

}  // namespace heddle::policy
