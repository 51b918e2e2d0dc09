#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "policy/replica_map.h"

namespace heddle::policy {

enum class LaunchVariant : std::uint8_t {
  kLeastLost,  ///< WarmServe's text: what dies for the instance is worth the least in sum.
  kFirst,      ///< Its authors' code: the first replica found, else the fewest replicas that die.
};

enum class LaunchOutcome : std::uint8_t {
  kHit,     ///< `replica` is loaded: transfer it to the instance.
  kAttach,  ///< `replica` is loading: start on the layers it has and make its load urgent.
  kMiss,    ///< Load the model on `devices`.
  kWait,    ///< No group of devices can be had now.
};

[[nodiscard]] std::string_view outcome_name(LaunchOutcome outcome);

struct LaunchWant {
  ModelId model{};
  std::int64_t devices = 1;
  std::int64_t pages = 0;  ///< On each device, at the least: weights and the smallest KV cache.
};

struct Launch {
  LaunchOutcome outcome = LaunchOutcome::kWait;
  ReplicaId replica{};              ///< Of kHit and kAttach.
  std::vector<DeviceId> devices{};  ///< That the instance takes whole, in order of its ranks.
  std::vector<ReplicaId> dies{};    ///< All other replicas that touch them, everywhere; cancel
                                    ///< those that load.
  LostWorth lost{};                 ///< What these were worth.
  friend bool operator==(const Launch&, const Launch&) = default;
};

/// Where a new instance of a model starts (WarmServe section 5.2): on a loaded replica whose
/// devices no instance has; else on one that is loading; else on the group of one server where the
/// least is lost. Among equals: the fewest replicas that die, then the lowest device. Groups with a
/// pinned replica of another model are left alone.
/// A hit or attach costs O(replicas of the model); a miss O(devices and the replicas on them).
[[nodiscard]] Launch choose_launch(const ReplicaMap& map,
                                   const LaunchWant& want,
                                   LaunchVariant variant);

/// The times that decide when an instance on a partly loaded replica gives its first token.
struct PartialLoad {
  std::int64_t layers = 1;
  std::int64_t resident = 0;  ///< Layers there already; the others come in order.
  Duration layer_load{};      ///< For one more layer to come.
  Duration layer_prefill{};   ///< For one layer to run over the prompt at hand.
};

/// From attaching to the first token: max over layers l of (time until l is resident + time to run
/// layers l .. L-1). Equal to layers * layer_prefill when nothing stalls.
[[nodiscard]] Duration first_token_after(const PartialLoad& load);

/// Layers that must be resident for prefill never to wait: 1 if a layer loads as fast as it runs,
/// else ceil(L - (L - 1) c b / s), with s / b the time to load a layer and c to run it. When to
/// launch, not how much to hold: at usual link speeds it is 80 to 97 % of the layers.
[[nodiscard]] std::int64_t resident_layers_to_start(const PartialLoad& load);

}  // namespace heddle::policy
