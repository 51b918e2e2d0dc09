#include "sim/planes/weaver.h"

#include <algorithm>

namespace heddle::sim {
namespace {

using namespace std::chrono_literals;

constexpr Duration kTick = 1s;
/// A pair is worth it where the hot model's rate is so many times the cold one's.
constexpr double kHotter = 2;
/// One message between the GPUs, and the wait for the kernel that runs.
constexpr Duration kMessage = 2us;
constexpr Duration kWait = 20us;

double kv_use(const World& world, const Replica& replica) {
  const Gpu& gpu = world.gpu(replica.gpus[0]);
  const std::int64_t room = gpu.pages - replica.stages[0].weight_pages;
  const std::int64_t used = world.memory().reserved(replica.kv, ledger::device_pool(gpu.id));
  return static_cast<double>(used) / static_cast<double>(std::max<std::int64_t>(1, room));
}

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

double WeaverPlane::choose(const World& world, const Replica& hot, const Replica& cold) {
  const policy::ModelShape& shape = world.model(hot.model).shape;
  const StepModel& step = world.step_model(hot.model, world.gpu(hot.gpus[0]).host);
  std::int64_t context = 0;
  for (const Sequence& sequence : hot.engine->running_sequences()) {
    context += sequence.computed;
  }
  const HostSpec& host = world.host_spec(hot.gpus[0]);
  const double link = host.links.nvlink > 0 ? host.links.nvlink : host.links.pcie;
  const auto sequences = static_cast<std::int64_t>(hot.engine->running() / 2);
  const double bytes = static_cast<double>(
      policy::offload_bytes(sequences, shape.heads, shape.kv_heads, shape.head_dim, 2));
  const double cold_use = kv_use(world, cold);
  const double before = std::exchange(use_before_[cold.id], cold_use);
  const policy::ShareChoice choice = policy::choose_share(
      {.attention = Duration(context * step.context_ps() / shape.layers / 1000),
       .communication = kMessage + span_of(bytes / link),
       .margin = kWait,
       .hot_kv_bytes =
           (world.gpu(hot.gpus[0]).pages - hot.stages[0].weight_pages) * world.page_bytes(),
       .cold_free_kv_bytes = world.free_pages(cold.gpus[0]) * world.page_bytes(),
       .hot_kv_use = kv_use(world, hot),
       .hot_queues = hot.engine->waiting() > 0,
       .hot_requests_per_second = static_cast<double>(std::exchange(arrived_[hot.id], 0)),
       .cold_kv_use = cold_use,
       .cold_kv_growth = std::max(0.0, cold_use - before),
       .peer_access = true});
  return choice.share;
}

void WeaverPlane::adjust(const World& world, Actions& actions) {
  for (const auto& [hot_id, cold_id] : pairs_) {
    const Replica* hot = world.replica(hot_id);
    const Replica* cold = world.replica(cold_id);
    if (hot != nullptr && cold != nullptr && hot->serves() && cold->serves()) {
      const double share = share_ >= 0 ? share_ : choose(world, *hot, *cold);
      actions.weave(hot_id, cold_id, share, Reason::kOffload);
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
      ++arrived_[id];
    }
  }
  if (notice.kind == NoticeKind::kGone) {
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
