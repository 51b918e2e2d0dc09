#include "policy/launch.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <optional>
#include <tuple>

#include "base/check.h"

namespace heddle::policy {
namespace {

using Index = ReplicaMap::Index;
using Group = std::vector<Index>;

/// Subsets of one server that are looked at when no aligned block will do.
constexpr int kSubsets = 512;

/// What taking a group of devices whole costs; less is better.
struct Cost {
  LostWorth lost{};
  std::vector<ReplicaId> dies{};

  [[nodiscard]] auto rank(LaunchVariant variant) const {
    const auto count = static_cast<std::int64_t>(dies.size());
    const bool least = variant == LaunchVariant::kLeastLost;
    return std::tuple(least ? lost : LostWorth{}, count);
  }
};

/// nullopt: the group cannot be taken.
std::optional<Cost> cost_of(const ReplicaMap& map,
                            std::span<const Index> group,
                            const LaunchWant& want,
                            std::optional<ReplicaId> hit) {
  for (const Index device : group) {
    if (!map.devices()[device].launchable) {
      return std::nullopt;
    }
  }
  Cost cost;
  for (const ReplicaId id : map.touching(group)) {
    if (id == hit) {
      continue;
    }
    const PlacedReplica& replica = map.entry(id).replica;
    const bool instance =
        replica.state == ReplicaState::kServing || replica.state == ReplicaState::kDraining;
    if (instance || (replica.pinned && replica.model != want.model)) {
      return std::nullopt;
    }
    cost.lost.add(replica.worth);
    cost.dies.push_back(id);
  }
  return cost;
}

/// Whether the devices are large enough once all replicas there are gone.
bool large_enough(const ReplicaMap& map, std::span<const Index> group, std::int64_t pages) {
  return std::all_of(group.begin(), group.end(), [&](Index device) {
    std::int64_t room = map.devices()[device].free_pages;
    for (const ReplicaId id : map.touching(std::span(&device, 1))) {
      room += map.entry(id).replica.pages;
    }
    return room >= pages;
  });
}

class Best {
 public:
  Best(const ReplicaMap& map, const LaunchWant& want, LaunchVariant variant)
      : map_(map), want_(want), variant_(variant) {}

  void consider(LaunchOutcome outcome, std::span<const Index> group, std::optional<ReplicaId> hit) {
    auto cost = cost_of(map_, group, want_, hit);
    if (!cost || (best_ && best_->rank(variant_) <= cost->rank(variant_)) ||
        (!hit && !large_enough(map_, group, want_.pages))) {
      return;
    }
    launch_ = {.outcome = outcome, .replica = hit.value_or(ReplicaId{}), .lost = cost->lost};
    for (const Index device : group) {
      launch_.devices.push_back(map_.devices()[device].id);
    }
    best_ = std::move(cost);
  }

  [[nodiscard]] bool found() const { return best_.has_value(); }
  [[nodiscard]] bool free() const { return best_ && best_->dies.empty(); }

  [[nodiscard]] Launch take() {
    if (best_) {
      launch_.dies = std::move(best_->dies);
    }
    return std::move(launch_);
  }

 private:
  const ReplicaMap& map_;
  const LaunchWant& want_;
  LaunchVariant variant_;
  std::optional<Cost> best_{};
  Launch launch_{};
};

/// The model's replicas in this state; kFirst takes the first that can be had.
void consider_replicas(const ReplicaMap& map,
                       const LaunchWant& want,
                       ReplicaState state,
                       LaunchVariant variant,
                       Best& best) {
  const LaunchOutcome outcome =
      state == ReplicaState::kReady ? LaunchOutcome::kHit : LaunchOutcome::kAttach;
  for (const ReplicaId id : map.of_model(want.model)) {
    const ReplicaMap::Entry& entry = map.entry(id);
    if (entry.replica.state == state) {
      best.consider(outcome, entry.devices, id);
    }
    if (best.found() && variant == LaunchVariant::kFirst) {
      return;
    }
  }
}

void consider_blocks(const ReplicaMap& map, Index size, Best& best) {
  Group group(size);
  for (const ReplicaMap::Server& server : map.servers()) {
    for (Index at = 0; at + size <= server.count && !best.free(); at += size) {
      std::iota(group.begin(), group.end(), server.first + at);
      best.consider(LaunchOutcome::kMiss, group, std::nullopt);
    }
  }
}

void consider_subsets(const ReplicaMap& map, Index size, Best& best) {
  for (const ReplicaMap::Server& server : map.servers()) {
    Group usable;
    for (Index device = server.first; device < server.first + server.count; ++device) {
      if (map.devices()[device].launchable) {
        usable.push_back(device);
      }
    }
    if (usable.size() < size) {
      continue;
    }
    // Subsets in lexicographic order: a mask of chosen devices, permuted.
    std::vector<char> mask(usable.size(), 0);
    std::fill(mask.begin(), mask.begin() + size, 1);
    int tries = kSubsets;
    do {
      Group group;
      for (std::size_t i = 0; i < usable.size(); ++i) {
        if (mask[i] != 0) {
          group.push_back(usable[i]);
        }
      }
      best.consider(LaunchOutcome::kMiss, group, std::nullopt);
    } while (--tries > 0 && !best.free() && std::prev_permutation(mask.begin(), mask.end()));
  }
}

}  // namespace

std::string_view outcome_name(LaunchOutcome outcome) {
  switch (outcome) {
    case LaunchOutcome::kHit:
      return "hit";
    case LaunchOutcome::kAttach:
      return "attach";
    case LaunchOutcome::kMiss:
      return "miss";
    case LaunchOutcome::kWait:
      return "wait";
  }
  return "?";
}

Launch choose_launch(const ReplicaMap& map, const LaunchWant& want, LaunchVariant variant) {
  HEDDLE_CHECK(want.devices > 0);
  Best best(map, want, variant);
  consider_replicas(map, want, ReplicaState::kReady, variant, best);
  if (!best.found()) {
    consider_replicas(map, want, ReplicaState::kLoading, variant, best);
  }
  const auto size = static_cast<Index>(want.devices);
  if (!best.found() && std::has_single_bit(size)) {
    consider_blocks(map, size, best);
  }
  if (!best.found() && size > 1) {
    consider_subsets(map, size, best);
  }
  return best.take();
}

Duration first_token_after(const PartialLoad& load) {
  HEDDLE_CHECK(load.layers > 0 && load.resident >= 0 && load.resident <= load.layers);
  const Duration all = load.layer_prefill * load.layers;
  if (load.resident == load.layers) {
    return all;
  }
  // Linear in l between the first missing layer and the last one: its maximum is at an end.
  const Duration first = load.layer_load + load.layer_prefill * (load.layers - load.resident);
  const Duration last = load.layer_load * (load.layers - load.resident) + load.layer_prefill;
  return std::max({all, first, last});
}

std::int64_t resident_layers_to_start(const PartialLoad& load) {
  HEDDLE_CHECK(load.layers > 0);
  if (load.layer_load <= load.layer_prefill) {
    return 1;
  }
  // L - floor((L - 1) c / load) = ceil(L - (L - 1) c / load), in whole nanoseconds.
  const std::int64_t overlapped =
      load.layer_prefill.count() * (load.layers - 1) / load.layer_load.count();
  return std::max<std::int64_t>(1, load.layers - overlapped);
}

}  // namespace heddle::policy
