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

/// What a host could lend more [pages]: what is free and not lent, but for a reserve.
std::int64_t spare(const World& world, GpuId host) {
  const ledger::PoolId pool = ledger::device_pool(host);
  std::int64_t empty = 0;
  for (const ReplicaId id : world.gpu(host).hosts) {
    const Replica& hot = *world.replica(id);
    empty += hot.lent_pages - world.memory().reserved(hot.guest_kv, pool);
  }
  const std::int64_t free = world.free_pages(host) - empty;
  return std::max<std::int64_t>(0, free - (kv_held(world, host) + free) / policy::kHostKeeps);
}

/// The GPU that takes guests of `hot`: the one that has them already, else the GPU of the same
/// server with most room, whether a model runs there or none.
std::optional<GpuId> HeddlePlane::guest_host(const World& world, const Replica& hot) {
  if (hot.guest_host) {
    return hot.guest_host;
  }
  std::optional<GpuId> best;
  const auto rank = [&](GpuId gpu) { return std::tuple(-world.free_pages(gpu), gpu); };
  const auto weaves = [&](ReplicaId id) { return world.replica(id)->guest_host.has_value(); };
  for (const GpuId gpu : world.host(world.gpu(hot.gpus[0]).host).gpus) {
    const Gpu& host = world.gpu(gpu);
    if (gpu != hot.gpus[0] && host.up &&
        std::none_of(host.replicas.begin(), host.replicas.end(), weaves) &&
        (!best || rank(gpu) < rank(*best))) {
      best = gpu;
    }
  }
  return best;
}

/// Requests of the host itself wait for memory: whose guests have most there takes them home.
/// False: there are none.
bool HeddlePlane::recall(const World& world, Actions& actions, GpuId host) {
  const std::vector<ReplicaId>& hosts = world.gpu(host).hosts;
  const auto pages = [&](ReplicaId id) {
    return world.memory().reserved(world.replica(id)->guest_kv, ledger::device_pool(host));
  };
  const auto most = std::max_element(
      hosts.begin(), hosts.end(), [&](ReplicaId a, ReplicaId b) { return pages(a) < pages(b); });
  if (most == hosts.end() || pages(*most) == 0) {
    return false;
  }
  actions.weave(*most, {.host = host}, Reason::kMakeRoom);
  return true;
}

/// KV of those who are short of it goes to neighbours that have it to spare, before anybody is
/// started for it: a running instance with more KV needs no load and no GPU. That a queue is long
/// says nothing here, as it may be prompts that are slow to read. As live (core/manager), a host
/// lends pages by the share, and the engine moves first positions there.
void HeddlePlane::weave(const World& world, Actions& actions) {
  if (!weaves_ || world.now() < weave_at_) {
    return;
  }
  weave_at_ = world.now() + kLook;
  for (const ModelId model : active_) {
    for (const ReplicaId id : world.replicas_of(model)) {
      const Replica& hot = *world.replica(id);
      if (!can_weave(world, hot) || hot.load() == 0 || !world.gpu(hot.gpus[0]).hosts.empty()) {
        continue;
      }
      const std::optional<GpuId> host = guest_host(world, hot);
      if (!host) {
        continue;
      }
      const double share = watch_.choose(world, hot, *host, false).share;
      const std::int64_t home = kv_held(world, hot.gpus[0]) + world.free_pages(hot.gpus[0]);
      const auto quota = static_cast<std::int64_t>(share / (1 - share) * static_cast<double>(home));
      const std::int64_t more =
          std::clamp<std::int64_t>(quota - hot.lent_pages, 0, spare(world, *host));
      const bool idle = share <= 0 && hot.engine->blocks(KvPlace::kGuest) == 0;
      if (more > 0 || hot.lent_pages > 0) {
        const std::int64_t pages = idle ? 0 : hot.lent_pages + more;
        actions.weave(id, {.host = *host, .pages = pages}, Reason::kOffload);
      }
    }
  }
}

}  // namespace heddle::sim
