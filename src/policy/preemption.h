#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/time.h"

namespace heddle::policy {

/// Pages of one device.
struct DevicePages {
  DeviceId device{};
  std::int64_t pages = 0;
  friend bool operator==(const DevicePages&, const DevicePages&) = default;
};

/// An engine that runs and could be swapped out as a whole, on all its devices at once.
struct SwapCandidate {
  ModelId model{};
  std::vector<DevicePages> holds{};  ///< That swapping it out frees.
  std::int64_t queue = 0;            ///< Its requests, waiting and in flight.
  Duration oldest_wait{};            ///< How long the oldest of these has waited or run.
  Instant last_used{};
  Instant running_since{};
  Duration swap_out{};  ///< To save it.
  Duration swap_in{};   ///< To bring it back.
  /// What swapping it out while it is idle is expected to cost [s]; nullopt: its swaps.
  std::optional<double> worth{};
  bool held = false;           ///< Somebody asked that it stay.
  bool in_transition = false;  ///< Being swapped in or out.
};

enum class PreemptionVariant : std::uint8_t {
  /// "Engine-Agnostic Model Hot-Swapping for Cost-Effective LLM Inference", 3.5: shortest queue
  /// first, then least recently used, until there is enough. May swap out three small ones before
  /// one that would have done.
  kPaper,
  /// The subset that costs least: see preemption_cost.
  kLeastCost,
};

struct PreemptionOptions {
  PreemptionVariant variant = PreemptionVariant::kLeastCost;
  /// An engine stays for at least so many times its swap-in time, or models that are hot by turns
  /// only swap. 0 as in the paper.
  std::int64_t residence_swaps = 3;
  /// A request that has waited for so long counts twice.
  Duration ageing = std::chrono::seconds(10);
  /// Requests in flight may end for so long, at most, before the engine is frozen with them.
  Duration drain_most = std::chrono::seconds(2);
};

enum class PreemptionOutcome : std::uint8_t {
  kEnough,   ///< Nothing is missing.
  kPreempt,  ///< Swap out `victims`.
  kWait,     ///< Not yet: at `retry_at`, or when a transition ends, or a hold.
  kNever,    ///< Not with all candidates together.
};

struct Preemption {
  PreemptionOutcome outcome = PreemptionOutcome::kNever;
  std::vector<ModelId> victims{};     ///< In order of kPaper.
  Duration drain{};                   ///< How long their requests in flight may take to end.
  std::optional<Instant> retry_at{};  ///< When the next minimum residence ends.
  friend bool operator==(const Preemption&, const Preemption&) = default;
};

/// Seconds of waiting that swapping an engine out and in again causes. An idle one costs its worth,
/// or where that is not known its swaps. One with requests surely comes back:
///   max(swap_out + swap_in, worth) * (1 + queue * (1 + oldest_wait / ageing)).
[[nodiscard]] double preemption_cost(const SwapCandidate& candidate, Duration ageing);

/// Whom to swap out so that `missing` pages come free on each device named there (SwapServeLLM,
/// section 3.5; the requester must not be among the candidates). `slack` is what the waiting
/// request has left before it is late.
/// kLeastCost is exact for up to 16 candidates on those devices (ties: fewer victims, then the
/// order of kPaper); with more, the cheapest go first and then those that were not needed are
/// spared. Pure; independent of the order of candidates. O(n log n + 2^min(n, 16)).
[[nodiscard]] Preemption choose_swap_victims(std::span<const SwapCandidate> candidates,
                                             std::span<const DevicePages> missing,
                                             Instant now,
                                             Duration slack,
                                             const PreemptionOptions& options);

}  // namespace heddle::policy
