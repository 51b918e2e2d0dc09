#include <algorithm>

#include "sim/planes/heddle.h"

namespace heddle::sim {
namespace {

using namespace std::chrono_literals;

/// Between two looks at who is short of KV.
constexpr Duration kLook = 1s;

/// One of ours that serves on one GPU.
bool can_weave(const World& world, const Replica& replica) {
  return replica.serves() && replica.gpus.size() == 1 && replica.stages.size() == 1 &&
         !world.model(replica.model).external;
}

}  // namespace

/// Who takes guests of `hot`: who has them already, else an instance on the GPU of the same server
/// with most room, the one with the least to do.
std::optional<ReplicaId> HeddlePlane::guest_host(const World& world, const Replica& hot) {
  if (hot.guest_host) {
    return hot.guest_host;
  }
  std::optional<ReplicaId> best;
  const auto rank = [&](ReplicaId id) {
    const Replica& replica = *world.replica(id);
    return std::tuple(-world.free_pages(replica.gpus[0]), replica.load(), id);
  };
  for (const GpuId gpu : world.host(world.gpu(hot.gpus[0]).host).gpus) {
    for (const ReplicaId id : world.gpu(gpu).replicas) {
      const Replica& replica = *world.replica(id);
      if (gpu != hot.gpus[0] && can_weave(world, replica) && !replica.guest_host &&
          (!best || rank(id) < rank(*best))) {
        best = id;
      }
    }
  }
  return best;
}

/// KV of those who are short of it goes to neighbours that have it to spare, before anybody is
/// started for it: a running instance with more KV needs no load and no GPU. That a queue is long
/// says nothing here, as it may be prompts that are slow to read.
void HeddlePlane::weave(const World& world, Actions& actions) {
  if (!weaves_ || world.now() < weave_at_) {
    return;
  }
  weave_at_ = world.now() + kLook;
  for (const ModelId model : active_) {
    for (const ReplicaId id : world.replicas_of(model)) {
      const Replica& hot = *world.replica(id);
      if (!can_weave(world, hot) || hot.load() == 0 || !hot.guests_of.empty()) {
        continue;
      }
      const std::optional<ReplicaId> cold = guest_host(world, hot);
      if (!cold) {
        continue;
      }
      const double share = watch_.choose(world, hot, *world.replica(*cold), false).share;
      if (share > 0 || hot.guest_share > 0) {
        actions.weave(id, *cold, share, Reason::kOffload);
      }
    }
  }
}

}  // namespace heddle::sim
