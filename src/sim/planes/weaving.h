#pragma once

#include <map>

#include "policy/weave.h"
#include "sim/world.h"

namespace heddle::sim {

/// What a share of guests is chosen by (policy/weave.h), from one look at a pair to the next.
class WeaveWatch {
 public:
  /// A request was sent to `replica`, where reading its prompt takes so long.
  void arrived(ReplicaId replica, Duration reading) { arrived_[replica].reading += reading; }
  /// The share of `hot`'s KV that should be on `host`, another GPU of the same server. `queued`:
  /// requests wait for KV of `hot`. O(sequences).
  [[nodiscard]] policy::ShareChoice choose(const World& world,
                                           const Replica& hot,
                                           GpuId host,
                                           bool queued);
  /// A replica is gone.
  void forget(ReplicaId replica);

 private:
  struct Seen {
    Instant at{};
    double kv_use = 0;
  };
  std::map<GpuId, Seen> hosts_{};  ///< At the last look.
  struct Load {
    Instant at{};        ///< Of the last look.
    double reading = 0;  ///< Part of the time for their prompts.
  };
  std::map<ReplicaId, Load> hot_{};
  struct Arrived {
    Duration reading{};
  };
  std::map<ReplicaId, Arrived> arrived_{};  ///< Since the last look.
};

/// Part of what weights and guests leave of a GPU that its own KV has. O(replicas there).
[[nodiscard]] double kv_use(const World& world, GpuId gpu);

}  // namespace heddle::sim
