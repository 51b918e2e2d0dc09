#include "sim/planes/weaver.h"

#include <algorithm>

namespace heddle::sim {
namespace {

using namespace std::chrono_literals;

constexpr Duration kTick = 1s;
/// A pair is worth it where the hot model's rate is so many times the cold one's.
constexpr double kHotter = 2;

}  // namespace

/// In every server, the hottest with the coldest, while there is a difference.
void WeaverPlane::pair_up(const World& world) {
  const auto rate = [&](ReplicaId id) {
    const std::size_t model = world.replica(id)->model.value();
    return model < inputs_.demand.size() ? inputs_.demand[model].requests_per_second : 0;
  };
  for (const Host& host : world.hosts()) {
    std::vector<ReplicaId> here;
    for (const GpuId gpu : host.gpus) {
      for (const ReplicaId id : world.gpu(gpu).replicas) {
        const Replica& replica = *world.replica(id);
        if (replica.gpus[0] == gpu && replica.gpus.size() == 1) {
          here.push_back(id);
        }
      }
    }
    std::sort(here.begin(), here.end(), [&](ReplicaId a, ReplicaId b) {
      return std::pair(-rate(a), a) < std::pair(-rate(b), b);
    });
    for (std::size_t i = 0; i < here.size() / 2; ++i) {
      const ReplicaId cold = here[here.size() - 1 - i];
      if (rate(here[i]) >= kHotter * rate(cold)) {
        pairs_[here[i]] = cold;
      }
    }
  }
}

void WeaverPlane::adjust(const World& world, Actions& actions) {
  for (const auto& [hot_id, cold_id] : pairs_) {
    const Replica* hot = world.replica(hot_id);
    const Replica* cold = world.replica(cold_id);
    if (hot != nullptr && cold != nullptr && hot->serves() && cold->serves()) {
      const double share =
          share_ >= 0 ? share_
                      : watch_.choose(world, *hot, cold->gpus[0], hot->engine->waiting() > 0).share;
      actions.weave(
          hot_id, {.host = cold->gpus[0], .share = share, .split = split_}, Reason::kOffload);
    }
  }
}

void WeaverPlane::decide(const Notice& notice, const World& world, Actions& actions) {
  if (notice.kind == NoticeKind::kTimer) {
    if (pairs_.empty()) {
      pair_up(world);
    }
    adjust(world, actions);
    return actions.timer(world.now() + kTick, 0);
  }
  if (notice.kind == NoticeKind::kArrival) {
    for (const ReplicaId id : world.replicas_of(notice.model)) {
      watch_.arrived(id, {});
    }
  }
  if (notice.kind == NoticeKind::kGone) {
    watch_.forget(notice.replica);
    std::erase_if(pairs_, [&](const auto& pair) {
      return pair.first == notice.replica || pair.second == notice.replica;
    });
  }
  dedicated_.decide(notice, world, actions);
  if (notice.kind == NoticeKind::kStart) {
    actions.timer(world.now(), 0);
  }
}

}  // namespace heddle::sim
