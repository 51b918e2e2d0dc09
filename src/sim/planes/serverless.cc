#include "sim/planes/serverless.h"

#include <algorithm>
#include <utility>

namespace heddle::sim {
namespace {

/// Servers that a start looks at: those with most free GPUs.
constexpr std::size_t kHosts = 16;

}  // namespace

ServerlessPlane::ServerlessPlane(ServerlessKind kind, Flags& flags)
    : kind_(kind),
      keep_alive_(from_seconds(flags.number("keep_alive", 30))),
      target_(static_cast<std::int64_t>(flags.number("target", 8))),
      cache_(flags.on("cache", kind == ServerlessKind::kLlm)),
      kv_bytes_(flags.number("kv_gb", 5) * 1e9) {}

/// Stages of a start, by what overlaps what. A stock engine does everything in turn. ServerlessLLM
/// streams from the store, or from memory, to the GPU, after the container is there.
StartSpec ServerlessPlane::cold_start(const World& world, ModelId model, GpuId gpu) const {
  const StartupProfile& costs = world.host_spec(gpu).startup;
  StartSpec spec{.model = model};
  spec.before = from_seconds(costs.container + costs.context + costs.library);
  spec.after = from_seconds(costs.engine);
  if (cache_ && world.cached(world.gpu(gpu).host, model)) {
    spec.source = WeightSource::kHost;
    spec.per_byte = costs.cached_per_byte;
    spec.stream = true;
    return spec;
  }
  spec.source = WeightSource::kRemote;
  spec.cache_image = cache_;
  spec.stream = kind_ == ServerlessKind::kLlm;
  spec.per_byte = kind_ == ServerlessKind::kLlm ? 0 : costs.load_per_byte;
  return spec;
}

std::int64_t ServerlessPlane::pages_needed(const World& world, ModelId model) const {
  const double kv = kv_bytes_ / static_cast<double>(world.model(model).tp);
  return world.weight_pages(model) + std::max(world.overhead_pages(model), world.pages(kv));
}

/// GPUs of one server that have room for the model, ServerlessLLM's for it alone.
std::optional<std::vector<GpuId>> ServerlessPlane::group_on(const World& world,
                                                            ModelId model,
                                                            HostId host) const {
  const std::int64_t need = pages_needed(world, model);
  std::vector<GpuId> group;
  for (const GpuId id : world.host(host).gpus) {
    const Gpu& gpu = world.gpu(id);
    if (gpu.up && unpromised_pages(world, id) >= need &&
        (kind_ == ServerlessKind::kVllm || gpu.replicas.empty())) {
      group.push_back(id);
      if (std::ssize(group) == world.model(model).tp) {
        return group;
      }
    }
  }
  return std::nullopt;
}

/// The server that loads fastest: one that has the weights in memory, else, of those with most free
/// GPUs, the one whose network has the least to do. Stock engines: the first server with room.
std::optional<std::vector<GpuId>> ServerlessPlane::choose(const World& world, ModelId model) {
  std::set<HostId>& images = images_[model];
  std::erase_if(images, [&](HostId host) { return !world.cached(host, model); });
  for (const HostId host : images) {
    if (auto near = group_on(world, model, host)) {
      return near;
    }
  }
  if (kind_ == ServerlessKind::kVllm) {
    for (const Host& host : world.hosts()) {
      if (auto first = group_on(world, model, host.id)) {
        return first;
      }
    }
    return std::nullopt;
  }
  std::optional<std::vector<GpuId>> best;
  double soonest = 0;
  std::vector<HostId> hosts = room_.most(world, model, kHosts);
  std::sort(hosts.begin(), hosts.end());
  for (const HostId host : hosts) {
    auto group = group_on(world, model, host);
    const HostLinks& links = world.links(host);
    const LinkId nic = world.host(host).nic;
    const double load = static_cast<double>(links.users(nic) + 1) / std::max(1.0, links.rate(nic));
    if (group && (!best || load < soonest)) {
      best = std::move(group);
      soonest = load;
    }
  }
  return best;
}

void ServerlessPlane::update_room(const World& world, HostId host) {
  room_.update(world, host, [](const Gpu& gpu) { return gpu.up && gpu.replicas.empty(); });
}

bool ServerlessPlane::start_one(const World& world, Actions& actions, ModelId model) {
  const std::int64_t tp = world.model(model).tp;
  const std::int64_t need = pages_needed(world, model);
  const std::optional<std::vector<GpuId>> gpus =
      exhausted_.is(tp, need) ? std::nullopt : choose(world, model);
  if (!gpus) {
    if (!exhausted_.is(tp, need)) {
      exhausted_.add(tp, need);
    }
    short_of_gpus_.insert(model);
    return false;
  }
  StartSpec spec = cold_start(world, model, gpus->front());
  spec.stages = {{.gpus = *gpus}};
  if (kind_ == ServerlessKind::kVllm) {
    spec.kv_limit = world.pages(kv_bytes_ / static_cast<double>(world.model(model).tp)) -
                    world.overhead_pages(model);
  }
  actions.start(spec, Reason::kMiss);
  update_room(world, world.gpu(gpus->front()).host);
  return true;
}

void ServerlessPlane::scale_up(const World& world, Actions& actions, ModelId model) {
  short_of_gpus_.erase(model);
  const std::int64_t coming =
      count_replicas(world, model, {ReplicaPhase::kWaiting, ReplicaPhase::kLoading});
  const auto queued = static_cast<std::int64_t>(queues_.size(model));
  std::int64_t wanted = (queued + target_ - 1) / target_ - coming;
  wanted = kind_ == ServerlessKind::kLlm ? std::min<std::int64_t>(wanted, 1) : wanted;
  while (wanted-- > 0 && start_one(world, actions, model)) {
  }
}

void ServerlessPlane::decide(const Notice& notice, const World& world, Actions& actions) {
  switch (notice.kind) {
    case NoticeKind::kStart:
      for (const Host& host : world.hosts()) {
        update_room(world, host.id);
      }
      return;
    case NoticeKind::kGpuDown:
      return update_room(world, world.gpu(notice.gpu).host);
    case NoticeKind::kArrival:
      queues_.push(world, notice.request);
      break;
    case NoticeKind::kTimer:
      return evict_when_idle(world, actions, ReplicaId(notice.tag), keep_alive_);
    case NoticeKind::kServing:
      if (cache_) {
        images_[notice.model].insert(world.gpu(world.replica(notice.replica)->gpus[0]).host);
      }
      [[fallthrough]];
    case NoticeKind::kFinished:
      dispatch_waiting(world, actions, queues_, notice.model, target_);
      return evict_when_idle(world, actions, notice.replica, keep_alive_);
    case NoticeKind::kGone:
    case NoticeKind::kGpuUp: {
      exhausted_.clear();
      update_room(world, world.gpu(notice.gpu).host);
      const std::set<ModelId> retry = short_of_gpus_;
      for (const ModelId model : retry) {
        scale_up(world, actions, model);
      }
      if (notice.kind == NoticeKind::kGpuUp) {
        return;
      }
      break;
    }
    default:
      return;
  }
  dispatch_waiting(world, actions, queues_, notice.model, target_);
  if (!queues_.empty(notice.model)) {
    scale_up(world, actions, notice.model);
  }
}

}  // namespace heddle::sim
