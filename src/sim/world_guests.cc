#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "sim/guest_stall.h"
#include "sim/guest_times.h"
#include "sim/world.h"

namespace heddle::sim {
namespace {

/// The models of a host are told again when their guests' part of its time has changed by this
/// part.
constexpr double kChangedPart = 0.2;
/// Part of a GPU's time that guests take at most.
constexpr double kMostGuests = 0.8;

}  // namespace

void World::weave(ReplicaId hot_id, const Weave& how, Reason reason) {
  Replica* hot = find(hot_id);
  Gpu& host = gpus_[how.host.value()];
  const bool lends = how.share > 0 || how.pages > 0;
  const bool can =
      hot != nullptr && (lends ? hot->serves() && host.up : hot->guest_host.has_value());
  if (!can || hot->guest_host.value_or(how.host) != how.host) {
    return;
  }
  const bool began = hot->weaves();
  const bool more = how.pages > hot->lent_pages;
  const bool was_lent = hot->lent_pages > 0;
  hot->guest_share = how.share;
  hot->guest_split = how.split;
  hot->lent_pages = how.pages;
  if (!lends) {
    const bool empty = hot->engine->blocks(KvPlace::kGuest) == 0;
    if (was_lent && !empty) {
      note("recall", reason, *hot);
    }
    if (was_lent || empty) {
      send_guests_home(*hot, /*lost=*/false);  // Another may be its host next time.
    }
    return;
  }
  if (!began) {
    note("weave", reason, *hot);
  }
  if (!hot->guest_host) {
    const std::vector<ledger::Demand> nothing{{.pool = ledger::device_pool(host.id), .pages = 0}};
    hot->guest_kv = memory_.reserve(now_, LeaseKind::kKvGuest, {.model = hot->model}, nothing);
    hot->guest_host = host.id;
    host.hosts.push_back(hot_id);
  }
  time_guests(*hot);
  if (more) {
    hot->engine->wake(now_);  // KV may move before its next step.
    schedule_engine(*hot);
  }
}

/// What the guests of `hot` cost it, and their host.
void World::time_guests(Replica& hot) {
  if (!hot.engine || !hot.guest_host) {
    return;
  }
  const Gpu& host = gpus_[hot.guest_host->value()];
  const ModelShape& shape = model(hot.model).shape;
  const StepModel& home = step_model(hot.model, gpus_[hot.gpus[0].value()].host);
  const StepModel& away = step_model(hot.model, host.host);
  hot.engine->settle(now_);
  std::array<std::int64_t, kKvPlaces> contexts{};
  std::int64_t guests = 0;
  for (const Sequence& sequence : hot.engine->running_sequences()) {
    const std::int64_t moved = sequence.tokens_at(KvPlace::kGuest, sequence.computed);
    contexts[0] += sequence.computed - moved;
    contexts[1] += moved;
    guests += sequence.uses(KvPlace::kGuest) ? 1 : 0;
  }
  std::vector<Duration> kernels;
  for (const ReplicaId id : host.active) {
    const Replica& cold = at(id);
    // Its kernels are as long as ever; guests' attention comes between them.
    const double alone = static_cast<double>(cold.published_ps) * (1 - guests_on(host));
    const std::vector<Duration> own =
        step_kernels(model(cold.model).shape, Duration(static_cast<std::int64_t>(alone / 1000)));
    kernels.insert(kernels.end(), own.begin(), own.end());
  }
  const LinkRates& links = host_spec(host.id).links;
  const double link = links.nvlink > 0 ? links.nvlink : links.pcie;
  const Duration step = hot.engine->step();
  const auto of_layer = [&](std::int64_t ps) { return Duration(ps / shape.layers / 1000); };
  const bool first_positions = hot.lent_pages > 0;
  const std::int64_t kv_heads = first_positions ? 0 : shape.kv_heads;
  const auto bytes =
      static_cast<double>(offload_bytes(guests, shape.heads, kv_heads, shape.head_dim, 2));
  const GuestTimes times =
      guest_times({.hot = shape,
                   .hot_step = step,
                   .home = of_layer(contexts[0] * home.context_ps()),
                   .away = of_layer(contexts[1] * away.context_ps()) + from_seconds(bytes / link),
                   .link = link,
                   .context_ps = away.context_ps(),
                   .poll = from_seconds(host_spec(host.id).gpu.poll),
                   .kernels = kernels,
                   .split = hot.guest_split,
                   .first_positions = first_positions});
  hot.engine->set_guest_cost(times.hot);
  const double attention = static_cast<double>(contexts[1] * away.context_ps()) * 1e-12;
  hot.guest_busy = step > Duration{} ? attention / to_seconds(step) : 0;
  hot.guest_overhead = contexts[1] > 0 ? times.host_overhead : Duration{};
  pace_host(hot);
}

/// Part of a GPU's time that guests take.
double World::guests_on(const Gpu& gpu) {
  double busy = 0;
  for (const ReplicaId hot : gpu.hosts) {
    busy += at(hot).guest_busy;
  }
  return std::min(busy, kMostGuests);
}

/// Tells those that run on the host how much of it guests take, when that has changed by more than
/// a little.
void World::pace_host(Replica& hot) {
  const bool changed =
      std::abs(hot.guest_busy - hot.guest_busy_told) > kChangedPart * hot.guest_busy_told;
  for (const ReplicaId id : gpus_[hot.guest_host->value()].active) {
    Replica& cold = at(id);
    set_pace(cold);
    if (changed) {
      cold.engine->interrupt(now_);
      schedule_engine(cold);
    }
  }
  hot.guest_busy_told = changed ? hot.guest_busy : hot.guest_busy_told;
}

/// Ends all dealings of a replica with the host of its guests. First positions that are not `lost`
/// move home as far as there is room; all else is computed again.
void World::send_guests_home(Replica& hot, bool lost) {
  if (!hot.guest_host) {
    return;
  }
  hot.guest_share = 0;
  hot.lent_pages = 0;
  hot.guest_busy = 0;
  hot.guest_overhead = {};
  pace_host(hot);
  Gpu& host = gpus_[std::exchange(hot.guest_host, std::nullopt)->value()];
  std::erase(host.hosts, hot.id);
  if (hot.engine) {
    hot.engine->return_guests(now_, lost ? 0 : kv_room(hot, KvPlace::kOwn).mine);
    schedule_engine(hot);
  }
  memory_.release(now_, std::exchange(hot.guest_kv, LeaseId(0)));
  retry_waiting(host.id);
}

/// Frees pages of guests for what is the GPU's own: the guests of whoever has most there go home.
/// False: there are none.
bool World::recall_guests(GpuId gpu, Reason reason) {
  const PoolId pool = ledger::device_pool(gpu);
  Replica* most = nullptr;
  for (const ReplicaId id : gpus_[gpu.value()].hosts) {
    Replica& hot = at(id);
    const std::int64_t pages = memory_.reserved(hot.guest_kv, pool);
    if (pages > (most == nullptr ? 0 : memory_.reserved(most->guest_kv, pool))) {
      most = &hot;
    }
  }
  if (most == nullptr) {
    return false;
  }
  note("recall", reason, *most);
  send_guests_home(*most, /*lost=*/reason == Reason::kFault);
  return true;
}

std::int64_t World::reserve_kv(Replica& replica, KvPlace place, std::int64_t blocks, bool whole) {
  if (place == KvPlace::kOwn) {
    return resize_kv(replica, replica.kv, replica.stages, blocks, replica.kv_limit, whole);
  }
  if (!replica.guest_host) {
    return 0;
  }
  const std::vector<Stage> away{{.spec = {.gpus = {*replica.guest_host}},
                                 .kv_bytes_per_block = replica.stages[0].kv_bytes_per_block}};
  const std::int64_t limit = replica.lent_pages > 0 ? replica.lent_pages : -1;
  return resize_kv(replica, replica.guest_kv, away, blocks, limit, whole);
}

std::int64_t kv_held(const World& world, GpuId gpu) {
  std::int64_t pages = 0;
  for (const ReplicaId id : world.gpu(gpu).replicas) {
    pages += world.memory().reserved(world.replica(id)->kv, ledger::device_pool(gpu));
  }
  return pages;
}

/// What a replica's engine may have of KV at home, and of what is lent to its first positions.
KvRoom World::kv_room(const Replica& replica, KvPlace place) const {
  const bool home = place == KvPlace::kOwn;
  if (!home && replica.lent_pages == 0) {
    return {};
  }
  const GpuId gpu = home ? replica.gpus[0] : *replica.guest_host;
  const PoolId pool = ledger::device_pool(gpu);
  const double per_page = static_cast<double>(page_bytes()) / replica.stages[0].kv_bytes_per_block;
  const auto blocks = [per_page](std::int64_t pages) {
    return static_cast<std::int64_t>(static_cast<double>(pages) * per_page);
  };
  const std::int64_t limit = home ? replica.kv_limit : replica.lent_pages;
  const std::int64_t mine =
      memory_.reserved(home ? replica.kv : replica.guest_kv, pool) + memory_.free(pool);
  return {.mine = blocks(limit >= 0 ? std::min(mine, limit) : mine),
          .all = blocks(kv_held(*this, gpu) + memory_.free(pool))};
}

}  // namespace heddle::sim
