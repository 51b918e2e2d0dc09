#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "policy/replica_map.h"
#include "policy/replica_score.h"

namespace heddle::policy {

enum class PrewarmVariant : std::uint8_t {
  /// WarmServe Algorithm 1: only free memory is used; replicas go when an instance is launched.
  kPaper,
  /// A replica may evict others that are each worth less, and all together less, than itself; an
  /// instance in its grace period counts as the replica that it will be. One that serves counts
  /// with
  /// the worth that it has in the map: beside it, a replica is the first to go when it grows.
  kCorrected,
  /// To compare with: the same replicas and the same limit to what may be evicted for them, but
  /// the place is not chosen by worth: where most memory is free, else where the victim was
  /// used longest ago. Replicas of one device, or of given blocks.
  kRoomiest,
};

struct PrewarmOptions {
  ScoreVariant score = ScoreVariant::kCorrected;
  PrewarmVariant placement = PrewarmVariant::kCorrected;
  /// Replicas are worth what the map says; else what the ranks that they fill are, and nothing if
  /// they fill none.
  bool worth_known = false;
  /// Groups whose victims are weighed for one replica: the search for the least lost is bounded.
  std::int64_t victim_groups = 64;
};

enum class PrewarmAction : std::uint8_t {
  kKeep,   ///< The replica stays; `worth` is its new one.
  kLoad,   ///< Load the model on `devices`, in this order of ranks.
  kEvict,  ///< Drop the replica: cancel it if it is loading.
  kSkip,   ///< The model should have this replica, and there is no place for it.
};

enum class PrewarmReason : std::uint8_t {
  kWanted,    ///< Keep: it fills one of the model's ranks.
  kSurplus,   ///< Keep: nobody wants it; worth nothing, so the first to go.
  kIsolated,  ///< Load: what it shares devices with is worth less.
  kShared,    ///< Load: nowhere else; it shares devices with something worth more.
  kMadeRoom,  ///< Load after, or evict for, the eviction of what is worth less.
  kNoRoom,    ///< Skip.
};

struct PrewarmDecision {
  PrewarmAction action = PrewarmAction::kKeep;
  PrewarmReason reason = PrewarmReason::kWanted;
  ModelId model{};
  ReplicaId replica{};    ///< Of kKeep and kEvict; a kLoad's is given by whoever carries it out.
  std::int64_t rank = 0;  ///< Among the model's desired replicas. Meaningless when surplus.
  ReplicaKind kind = ReplicaKind::kBasic;
  ReplicaWorth worth{};
  ModelId made_room_for{};          ///< Of kEvict.
  std::vector<DeviceId> devices{};  ///< Of kLoad.
  friend bool operator==(const PrewarmDecision&, const PrewarmDecision&) = default;
};

/// Which replicas to hold and where, for a new forecast or freed memory (WarmServe section 5.2,
/// Algorithm 1). Every model's existing replicas fill its first ranks (ready before draining before
/// loading) and are worth what these are; the rest of its ranks are placed in order of worth (ties:
/// the longer to load, then the lower model id), each by GroupIndex. A model is never twice on one
/// device.
/// Decisions: keeps by replica id; then loads, evictions before the load that they make room for,
/// and skips, in order of worth. Pages counted free by an eviction are free only once they are
/// unmapped: a load waits for the evictions before it.
/// Pure. O((M + R + D) log D) for M models, R replicas, D devices.
[[nodiscard]] std::vector<PrewarmDecision> plan_prewarm(ReplicaMap map,
                                                        std::span<const ModelDemand> models,
                                                        const PrewarmOptions& options);

}  // namespace heddle::policy
