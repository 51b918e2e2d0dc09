#include "sim/planes/weaving.h"

#include <algorithm>
#include <utility>

#include "sim/guest_stall.h"

namespace heddle::sim {
namespace {

using namespace std::chrono_literals;

/// One message between the GPUs, and the wait for the kernel that runs.
constexpr Duration kMessage = 2us;
constexpr Duration kWait = 20us;
/// Weight of the latest second in what is known of a hot instance's requests.
constexpr double kNewest = 0.2;

}  // namespace

double kv_use(const World& world, GpuId gpu) {
  const auto used = static_cast<double>(kv_held(world, gpu));
  return used / std::max(1.0, used + static_cast<double>(world.free_pages(gpu)));
}

policy::ShareChoice WeaveWatch::choose(const World& world,
                                       const Replica& hot,
                                       GpuId gpu,
                                       bool queued) {
  const ModelShape& shape = world.model(hot.model).shape;
  const StepModel& step = world.step_model(hot.model, world.gpu(hot.gpus[0]).host);
  std::int64_t context = 0;
  for (const Sequence& sequence : hot.engine->running_sequences()) {
    context += sequence.computed;
  }
  const HostSpec& host = world.host_spec(hot.gpus[0]);
  const double link = host.links.nvlink > 0 ? host.links.nvlink : host.links.pcie;
  const auto sequences = static_cast<std::int64_t>(hot.engine->running() / 2);
  const auto bytes =
      static_cast<double>(offload_bytes(sequences, shape.heads, shape.kv_heads, shape.head_dim, 2));
  const double use = kv_use(world, gpu);
  const auto before = hosts_.find(gpu);
  const double growth =
      before == hosts_.end() || world.now() <= before->second.at
          ? 0
          : (use - before->second.kv_use) / to_seconds(world.now() - before->second.at);
  hosts_[gpu] = {.at = world.now(), .kv_use = use};
  Load& load = hot_[hot.id];
  const Arrived arrived = std::exchange(arrived_[hot.id], {});
  const double covered = to_seconds(world.now() - std::max(load.at, hot.serving_since));
  if (covered > 0) {
    const double weight = load.at == Instant{} ? 1 : kNewest;
    load.reading += weight * (to_seconds(arrived.reading) / covered - load.reading);
    load.at = world.now();
  }
  const std::int64_t room = kv_held(world, hot.gpus[0]) + world.free_pages(hot.gpus[0]);
  const std::int64_t guests = world.memory().reserved(hot.guest_kv, ledger::device_pool(gpu));
  return policy::choose_share(
      {.attention = Duration(context * step.context_ps() / shape.layers / 1000),
       .communication = kMessage + from_seconds(bytes / link),
       .margin = kWait,
       .hot_kv_bytes = room * world.page_bytes(),
       .cold_free_kv_bytes = (world.free_pages(gpu) + guests) * world.page_bytes(),
       .hot_kv_use = kv_use(world, hot.gpus[0]),
       .hot_queues = queued,
       .hot_reading = load.reading,
       .cold_kv_use = use,
       .cold_kv_growth = std::max(0.0, growth),
       .peer_access = true});
}

void WeaveWatch::forget(ReplicaId replica) {
  hot_.erase(replica);
  arrived_.erase(replica);
}

}  // namespace heddle::sim
