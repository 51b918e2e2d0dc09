#include "sim/planes/launch.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <optional>
#include <tuple>

#include "base/check.h"

namespace heddle::sim {
namespace {

using Index = policy::ReplicaMap::Index;
using Group = std::vector<Index>;

/// Subsets of one server that are looked at when no aligned block will do.
constexpr int kSubsets = 512;

/// What taking a group of devices whole costs; less is better.
struct Cost {
  policy::LostWorth lost{};
  std::vector<policy::ReplicaId> dies{};

  [[nodiscard]] auto rank(LaunchVariant variant) const {
    const auto count = static_cast<std::int64_t>(dies.size());
    const bool least = variant == LaunchVariant::kLeastLost;
    return std::tuple(least ? lost : policy::LostWorth{}, count);
  }
};

/// nullopt: the group cannot be taken.
std::optional<Cost> cost_of(const policy::ReplicaMap& map,
                            std::span<const Index> group,
                            const LaunchWant& want,
                            std::optional<policy::ReplicaId> hit) {
  for (const Index device : group) {
    if (!map.devices()[device].launchable) {
      return std::nullopt;
    }
  }
  Cost cost;
  for (const policy::ReplicaId id : map.touching(group)) {
    if (id == hit) {
      continue;
    }
    const policy::PlacedReplica& replica = map.entry(id).replica;
    const bool instance = replica.state == policy::ReplicaState::kServing ||
                          replica.state == policy::ReplicaState::kDraining;
    if (instance || (replica.pinned && replica.model != want.model)) {
      return std::nullopt;
    }
    cost.lost.add(replica.worth);
    cost.dies.push_back(id);
  }
  return cost;
}

/// Whether the devices are large enough once all replicas there are gone.
bool large_enough(const policy::ReplicaMap& map, std::span<const Index> group, std::int64_t pages) {
  return std::all_of(group.begin(), group.end(), [&](Index device) {
    std::int64_t room = map.devices()[device].free_pages;
    for (const policy::ReplicaId id : map.touching(std::span(&device, 1))) {
      room += map.entry(id).replica.pages;
    }
    return room >= pages;
  });
}

class Best {
 public:
  Best(const policy::ReplicaMap& map, const LaunchWant& want, LaunchVariant variant)
      : map_(map), want_(want), variant_(variant) {}

  void consider(LaunchOutcome outcome,
                std::span<const Index> group,
                std::optional<policy::ReplicaId> hit) {
    auto cost = cost_of(map_, group, want_, hit);
    if (!cost || (best_ && best_->rank(variant_) <= cost->rank(variant_)) ||
        (!hit && !large_enough(map_, group, want_.pages))) {
      return;
    }
    launch_ = {
        .outcome = outcome, .replica = hit.value_or(policy::ReplicaId{}), .lost = cost->lost};
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
  const policy::ReplicaMap& map_;
  const LaunchWant& want_;
  LaunchVariant variant_;
  std::optional<Cost> best_{};
  Launch launch_{};
};

/// The model's replicas in this state; kFirst takes the first that can be had.
void consider_replicas(const policy::ReplicaMap& map,
                       const LaunchWant& want,
                       policy::ReplicaState state,
                       LaunchVariant variant,
                       Best& best) {
  const LaunchOutcome outcome =
      state == policy::ReplicaState::kReady ? LaunchOutcome::kHit : LaunchOutcome::kAttach;
  for (const policy::ReplicaId id : map.of_model(want.model)) {
    const policy::ReplicaMap::Entry& entry = map.entry(id);
    if (entry.replica.state == state) {
      best.consider(outcome, entry.devices, id);
    }
    if (best.found() && variant == LaunchVariant::kFirst) {
      return;
    }
  }
}

void consider_blocks(const policy::ReplicaMap& map, Index size, Best& best) {
  Group group(size);
  for (const policy::ReplicaMap::Server& server : map.servers()) {
    for (Index at = 0; at + size <= server.count && !best.free(); at += size) {
      std::iota(group.begin(), group.end(), server.first + at);
      best.consider(LaunchOutcome::kMiss, group, std::nullopt);
    }
  }
}

void consider_subsets(const policy::ReplicaMap& map, Index size, Best& best) {
  for (const policy::ReplicaMap::Server& server : map.servers()) {
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

Launch choose_launch(const policy::ReplicaMap& map, const LaunchWant& want, LaunchVariant variant) {
  HEDDLE_CHECK(want.devices > 0);
  Best best(map, want, variant);
  consider_replicas(map, want, policy::ReplicaState::kReady, variant, best);
  if (!best.found()) {
    consider_replicas(map, want, policy::ReplicaState::kLoading, variant, best);
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

}  // namespace heddle::sim
