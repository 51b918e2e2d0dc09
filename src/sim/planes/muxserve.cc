#include "sim/planes/muxserve.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "sim/planes/static_partition.h"

namespace heddle::sim {
namespace {

/// What MuxServe keeps free beside weights for each model, beyond its overhead [bytes].
constexpr double kActivations = 6e9;
constexpr std::int64_t kBatch = 32;
constexpr std::array<std::int64_t, 7> kPercents{30, 40, 50, 60, 70, 80, 90};
/// A model that uses more of its quota wants more; one below can give.
constexpr double kPressed = 0.9;
/// Most that a quota grows by at a time.
constexpr double kGrowth = 0.1;
/// What a donor keeps free.
constexpr double kKept = 0.95;

}  // namespace

double mux_load(const World& world,
                ModelId model,
                const OfflineDemand& demand,
                std::int64_t batch,
                std::int64_t percent) {
  const StepModel& step = world.step_model(model, HostId(0));
  const auto prompt = std::max<std::int64_t>(1, static_cast<std::int64_t>(demand.input_tokens));
  const double context = demand.input_tokens + demand.output_tokens / 2;
  const auto seconds = [](std::int64_t ps) { return static_cast<double>(ps) * 1e-12; };
  const double decode = seconds(step.base_ps(batch, batch) + step.decode_ps() + step.fixed_ps()) +
                        static_cast<double>(batch) * context * seconds(step.context_ps());
  const double prefill = seconds(step.base_ps(prompt, 1) + step.chunk_ps({.tokens = prompt}));
  const double slow = mps_slowdown(Phase::kDecode, batch, percent);
  return demand.requests_per_second *
         (prefill + demand.output_tokens * decode * slow / static_cast<double>(batch));
}

const OfflineDemand& MuxServePlane::demand(ModelId model) const {
  static const OfflineDemand kNone{};
  return model.value() < inputs_.demand.size() ? inputs_.demand[model.value()] : kNone;
}

/// Models by falling rate times size, each on the group of GPUs that has most time left, which is
/// where it adds most throughput, among those with room.
void MuxServePlane::place(const World& world, Actions& actions) {
  const std::size_t count = world.models().size();
  std::vector<double> weight;
  for (std::size_t i = 0; i < count; ++i) {
    weight.push_back(demand(ModelId(i)).requests_per_second *
                     static_cast<double>(world.model(ModelId(i)).weight_bytes()));
  }
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return weight[a] != weight[b] ? weight[a] > weight[b] : a < b;
  });
  std::vector<std::int64_t> room;
  std::vector<double> load(world.gpus().size(), 0);
  for (const Gpu& gpu : world.gpus()) {
    room.push_back(gpu.pages);
  }
  std::vector<std::vector<GpuId>> placed(count);
  for (const std::size_t index : order) {
    const ModelId model(index);
    const std::int64_t tp = world.model(model).tp;
    const std::int64_t need = world.weight_pages(model) + world.overhead_pages(model);
    const std::int64_t spare = world.pages(kActivations / static_cast<double>(tp));
    double least = 1e30;
    for (const Host& host : world.hosts()) {
      std::vector<GpuId> fits;
      std::copy_if(host.gpus.begin(), host.gpus.end(), std::back_inserter(fits), [&](GpuId gpu) {
        return room[gpu.value()] >= need + spare;
      });
      if (static_cast<std::int64_t>(fits.size()) < tp) {
        continue;
      }
      std::sort(fits.begin(), fits.end(), [&](GpuId a, GpuId b) {
        return std::pair(load[a.value()], a) < std::pair(load[b.value()], b);
      });
      fits.resize(static_cast<std::size_t>(tp));
      if (load[fits.back().value()] < least) {
        least = load[fits.back().value()];
        placed[index] = fits;
      }
    }
    for (const GpuId gpu : placed[index]) {
      room[gpu.value()] -= need;
      load[gpu.value()] += mux_load(world, model, demand(model), kBatch, 100);
    }
  }
  const std::vector<std::int64_t> quotas = divide_kv(world, inputs_, placed);
  for (std::size_t i = 0; i < count; ++i) {
    if (placed[i].empty()) {
      continue;
    }
    StartSpec spec = whole(world, ModelId(i), placed[i]);
    if (kind_ == MuxKind::kQuotas) {
      spec.kv_limit = quotas[i];
      const auto enough = std::find_if(kPercents.begin(), kPercents.end(), [&](std::int64_t each) {
        return mux_load(world, ModelId(i), demand(ModelId(i)), kBatch, each) <= 1;
      });
      spec.mps_percent = enough == kPercents.end() ? 100 : *enough;
    }
    actions.start(placed_.emplace_back(spec), Reason::kStatic);
  }
}

/// Moves quota from models that use little of theirs to those that use nearly all.
void MuxServePlane::adjust_quotas(const World& world, Actions& actions, const Gpu& gpu) {
  const PoolId pool = ledger::device_pool(gpu.id);
  const auto use = [&](const Replica& replica) {
    return static_cast<double>(world.memory().reserved(replica.kv, pool)) /
           static_cast<double>(std::max<std::int64_t>(1, replica.kv_limit));
  };
  for (const ReplicaId id : gpu.replicas) {
    const Replica& pressed = *world.replica(id);
    if (pressed.gpus[0] != gpu.id || pressed.kv_limit < 0 || use(pressed) < kPressed) {
      continue;
    }
    auto want = static_cast<std::int64_t>(kGrowth * static_cast<double>(pressed.kv_limit));
    for (const ReplicaId other : gpu.replicas) {
      const Replica& donor = *world.replica(other);
      const double spare = kKept - use(donor);
      if (other == id || donor.gpus != pressed.gpus || use(donor) >= kPressed || spare <= 0) {
        continue;
      }
      const std::int64_t gives =
          std::min(want, static_cast<std::int64_t>(spare * static_cast<double>(donor.kv_limit)));
      actions.set_kv_limit(other, donor.kv_limit - gives, Reason::kQuota);
      actions.set_kv_limit(id, pressed.kv_limit + gives, Reason::kQuota);
      want -= gives;
    }
  }
}

void MuxServePlane::decide(const Notice& notice, const World& world, Actions& actions) {
  switch (notice.kind) {
    case NoticeKind::kStart:
      place(world, actions);
      if (kind_ == MuxKind::kQuotas) {
        actions.timer(world.now() + period_, 0);
      }
      return;
    case NoticeKind::kTimer:
      for (const Gpu& gpu : world.gpus()) {
        adjust_quotas(world, actions, gpu);
      }
      return actions.timer(world.now() + period_, 0);
    default:
      return serve_in_place(notice, world, actions, queues_, placed_);
  }
}

}  // namespace heddle::sim
