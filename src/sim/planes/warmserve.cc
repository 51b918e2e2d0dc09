#include "sim/planes/warmserve.h"

#include <algorithm>

#include "sim/planes/reclaim.h"
#include "sim/planes/routing.h"

namespace heddle::sim {
namespace {

using namespace std::chrono_literals;

constexpr Duration kTick = 500ms;
constexpr Duration kLoadSeen = 5s;
constexpr std::int64_t kDaysKept = 8;
/// Servers that a launch looks at, beside those where the model is: those with most free GPUs.
constexpr std::size_t kHosts = 8;
/// What a tier is worth beside any score, where the order of both is one number.
constexpr double kTier = 1e6;

Reason reason_of(policy::ReplicaKind kind) {
  return kind == policy::ReplicaKind::kBasic ? Reason::kForecast : Reason::kBurst;
}

/// How prewarming and launching see a replica; nullopt: not at all.
std::optional<policy::ReplicaState> seen_as(const Replica& replica) {
  switch (replica.state) {
    case ReplicaPhase::kWarm:
      return policy::ReplicaState::kReady;
    case ReplicaPhase::kWaiting:
    case ReplicaPhase::kLoading:
      return replica.spec.serve || replica.attached ? policy::ReplicaState::kServing
                                                    : policy::ReplicaState::kLoading;
    case ReplicaPhase::kStarting:
    case ReplicaPhase::kServing:
      return policy::ReplicaState::kServing;
    case ReplicaPhase::kDraining:
      return policy::ReplicaState::kDraining;
    case ReplicaPhase::kEvicting:
    case ReplicaPhase::kGone:
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

WarmServePlane::WarmServePlane(Prewarming prewarming, Flags& flags)
    : forecasting_(prewarming == Prewarming::kForecast && flags.on("prewarm", true)),
      proactive_(forecasting_ && flags.on("proactive", true)),
      evict_aware_(flags.on("placement", true)),
      paper_(flags.on("paper", false)) {
  calendar_ = calendar_of(flags);
  if (paper_) {
    forecast_options_.only = policy::Expert::kCorrected;
    forecast_options_.weights = policy::ErrorWeights::kPrinted;
    forecast_options_.peak_deviations = 0;
  }
}

void WarmServePlane::begin(const World& world, Actions& actions) {
  for (std::size_t i = 0; i < world.models().size(); ++i) {
    models_.push_back({.average = policy::LoadAverage(kLoadSeen, world.now()),
                       .history = policy::LoadHistory(calendar_.windows_per_day, kDaysKept),
                       .meter = policy::LoadMeter(world.now())});
    overhead_pages_ = std::max(overhead_pages_, world.overhead_pages(ModelId(i)));
  }
  for (const Host& host : world.hosts()) {
    update_room(world, host.id);
  }
  actions.timer(world.now() + kTick, 0);
}

void WarmServePlane::change(const World& world, ModelId model, std::int64_t by) {
  PerModel& each = models_[model.value()];
  each.in_system += by;
  each.average.set(world.now(), each.in_system);
  each.meter.change(world.now(), by, calendar_, each.history);
  active_.insert(model);
}

std::vector<policy::InstanceView> WarmServePlane::instances(const World& world, ModelId model) {
  std::vector<policy::InstanceView> views;
  for (const ReplicaId id : world.replicas_of(model)) {
    const Replica* replica = world.replica(id);
    if (replica->serves()) {
      views.push_back({.id = id,
                       .running = static_cast<std::int64_t>(replica->load()),
                       .started = replica->serving_since});
    }
  }
  return views;
}

bool WarmServePlane::comes(const Replica& replica) {
  const bool loads =
      replica.state == ReplicaPhase::kWaiting || replica.state == ReplicaPhase::kLoading;
  return replica.state == ReplicaPhase::kStarting ||
         (loads && (replica.spec.serve || replica.attached));
}

std::int64_t WarmServePlane::starting(const World& world, ModelId model) {
  const std::vector<ReplicaId>& replicas = world.replicas_of(model);
  return std::count_if(
      replicas.begin(), replicas.end(), [&](ReplicaId id) { return comes(*world.replica(id)); });
}

/// Pages of a draining instance's GPUs that prewarming may have now (WarmServe Eq. 1).
std::int64_t WarmServePlane::room_in_grace(const World& world, const Replica& replica) const {
  const auto grace = grace_.find(replica.id);
  if (!proactive_ || grace == grace_.end()) {
    return 0;
  }
  const PoolId pool = ledger::device_pool(replica.gpus[0]);
  const std::int64_t used = world.memory().reserved(replica.kv, pool);
  const std::int64_t kept = kv_reserve({.kv_pages = grace->second.kv_pages,
                                        .kv_pages_used = used,
                                        .requests = static_cast<std::int64_t>(replica.load()),
                                        .batch = world.model(replica.model).max_sequences},
                                       ReserveVariant::kPaper);
  std::int64_t free = INT64_MAX;
  for (const GpuId gpu : replica.gpus) {
    free = std::min(free, world.free_pages(gpu));
  }
  return std::max<std::int64_t>(0, free - (kept - used) - overhead_pages_);
}

/// GPUs that an instance could start on.
void WarmServePlane::update_room(const World& world, HostId host) {
  room_.update(world, host, [&](const Gpu& gpu) {
    return gpu.up && std::none_of(gpu.replicas.begin(), gpu.replicas.end(), [&](ReplicaId id) {
             const auto state = seen_as(*world.replica(id));
             return state == policy::ReplicaState::kServing ||
                    state == policy::ReplicaState::kDraining;
           });
  });
}

policy::ReplicaMap WarmServePlane::map_of(const World& world, std::span<const HostId> hosts) const {
  std::vector<policy::MapDevice> devices;
  std::vector<GpuId> gpus;
  for (const HostId host : hosts) {
    gpus.insert(gpus.end(), world.host(host).gpus.begin(), world.host(host).gpus.end());
  }
  for (const GpuId each : gpus) {
    const Gpu& gpu = world.gpu(each);
    policy::MapDevice device{
        .id = gpu.id,
        .server = static_cast<std::int64_t>(gpu.host.value()),
        .free_pages = std::max<std::int64_t>(0, world.free_pages(gpu.id) - overhead_pages_),
        .prewarmable = gpu.up,
        .launchable = gpu.up};
    for (const ReplicaId id : gpu.replicas) {
      const Replica* replica = world.replica(id);
      const auto state = seen_as(*replica);
      if (state == policy::ReplicaState::kServing) {
        device.prewarmable = device.launchable = false;
      } else if (state == policy::ReplicaState::kDraining) {
        device.launchable = false;
        device.prewarmable = device.prewarmable && proactive_;
        device.free_pages = room_in_grace(world, *replica);
      }
    }
    devices.push_back(device);
  }
  policy::ReplicaMap map(std::move(devices));
  std::set<ReplicaId> added;
  for (const GpuId gpu : gpus) {
    for (const ReplicaId id : world.gpu(gpu).replicas) {
      const Replica* replica = world.replica(id);
      const auto state = seen_as(*replica);
      if (state && added.insert(id).second) {
        const auto worth = worth_.find(id);
        map.add({.id = id,
                 .model = replica->model,
                 .state = *state,
                 .devices = replica->gpus,
                 .pages = replica->stages[0].weight_pages,
                 .worth = worth == worth_.end() ? policy::ReplicaWorth{} : worth->second});
      }
    }
  }
  return map;
}

StartSpec WarmServePlane::load_spec(const World& world,
                                    ModelId model,
                                    std::vector<GpuId> gpus) const {
  const StartupProfile& costs = world.host_spec(gpus[0]).startup;
  const bool cached = world.cached(world.gpu(gpus[0]).host, model);
  StartSpec spec{.model = model,
                 .stages = {{.gpus = gpus}},
                 .source = cached ? WeightSource::kHost : WeightSource::kRemote};
  spec.cache_image = !cached;
  spec.beside = gpus.size() > 1 ? from_seconds(costs.communicator) : Duration{};
  return spec;
}

bool WarmServePlane::launch(const World& world, Actions& actions, ModelId model, Reason reason) {
  const LaunchVariant variant = forecasting_ ? LaunchVariant::kLeastLost : LaunchVariant::kFirst;
  const std::vector<HostId> candidates = room_.near(world, model, kHosts);
  const Launch launch =
      choose_launch(map_of(world, candidates),
                    {.model = model,
                     .devices = world.model(model).tp,
                     .pages = world.weight_pages(model) + world.overhead_pages(model) +
                              world.kv_pages(model, 2048)},
                    variant);
  wanting_.erase(model);
  if (launch.outcome == LaunchOutcome::kWait) {
    wanting_.insert(model);
    return false;
  }
  for (const ReplicaId id : launch.dies) {
    actions.evict(id, Reason::kMakeRoom, model);
  }
  const bool started = begin_launch(world, actions, model, reason, launch);
  update_room(world, world.gpu(launch.devices[0]).host);
  return started;
}

bool WarmServePlane::begin_launch(
    const World& world, Actions& actions, ModelId model, Reason reason, const Launch& launch) {
  switch (launch.outcome) {
    case LaunchOutcome::kHit: {
      const StartupProfile& costs = world.host_spec(world.replica(launch.replica)->gpus[0]).startup;
      if (!actions.serve(launch.replica, from_seconds(costs.attach), Reason::kHit)) {
        wanting_.insert(model);  // What dies has not been unmapped yet.
      }
      return true;
    }
    case LaunchOutcome::kAttach:
      actions.attach(launch.replica, Reason::kAttach);
      return true;
    default: {
      StartSpec spec = load_spec(world, model, launch.devices);
      spec.after = from_seconds(world.host_spec(launch.devices[0]).startup.attach);
      actions.start(spec, reason);
      return true;
    }
  }
}

/// As the authors' code does it, an instance counts from the moment its start begins: who is sent
/// to one that starts waits for it.
void WarmServePlane::route(const World& world, Actions& actions, ModelId model) {
  const std::int64_t batch = world.model(model).max_sequences;
  while (!queues_.empty(model)) {
    std::vector<policy::InstanceView> views = instances(world, model);
    for (const ReplicaId id : world.replicas_of(model)) {
      if (comes(*world.replica(id))) {
        views.push_back({.id = id, .running = static_cast<std::int64_t>(assigned_[id].size())});
      }
    }
    const Route route = choose_route(views, 0, batch);
    if (route.action == RouteAction::kSend) {
      const LiveId request = queues_.pop(model);
      if (world.replica(route.instance)->serves()) {
        actions.dispatch(request, route.instance, Reason::kRunning);
      } else {
        assigned_[route.instance].push_back(request);
      }
    } else if (!launch(world, actions, model, Reason::kMiss) || wanting_.contains(model)) {
      return;
    }
  }
}

/// Hands over who waited for an instance that now serves, or is gone.
void WarmServePlane::hand_over(const World& world, Actions& actions, ReplicaId id, ModelId model) {
  const auto found = assigned_.find(id);
  if (found == assigned_.end()) {
    return;
  }
  const std::vector<LiveId> requests = std::move(found->second);
  assigned_.erase(found);
  const Replica* replica = world.replica(id);
  for (const LiveId request : requests) {
    if (replica != nullptr && replica->serves()) {
      actions.dispatch(request, id, Reason::kRunning);
    } else {
      queues_.push(world, request);
    }
  }
  route(world, actions, model);
}

/// Replicas on a GPU that failed are gone without a word of their own.
void WarmServePlane::reassign_lost(const World& world, Actions& actions) {
  std::vector<std::pair<ReplicaId, ModelId>> lost;
  for (const auto& [id, requests] : assigned_) {
    if (world.replica(id) == nullptr && !requests.empty()) {
      lost.emplace_back(id, world.request(requests.front()).model);
    }
  }
  for (const auto& [id, model] : lost) {
    hand_over(world, actions, id, model);
  }
}

void WarmServePlane::scale(const World& world, Actions& actions, ModelId model) {
  PerModel& each = models_[model.value()];
  const policy::Scaling scaling = policy::choose_scaling(each.average.mean(world.now()),
                                                         world.model(model).max_sequences,
                                                         instances(world, model),
                                                         starting(world, model),
                                                         world.now(),
                                                         {});
  for (std::int64_t i = 0; i < scaling.start; ++i) {
    if (!launch(world, actions, model, Reason::kScaleUp)) {
      break;
    }
  }
  for (const ReplicaId id : scaling.stop) {
    const Replica* replica = world.replica(id);
    std::int64_t capacity = INT64_MAX;
    for (const GpuId gpu : replica->gpus) {
      capacity = std::min(
          capacity, world.gpu(gpu).pages - world.weight_pages(model) - world.overhead_pages(model));
    }
    grace_[id] = {.kv_pages = capacity};
    actions.drain(id, Reason::kScaleDown);
    stale_ = true;
  }
}

void WarmServePlane::forecast(const World& world) {
  const std::int64_t window = calendar_.window_at(world.now());
  if (window == window_) {
    return;
  }
  first_window_ = window_ < 0 ? window : first_window_;
  for (PerModel& each : models_) {
    each.meter.advance(world.now(), calendar_, each.history);
    if (const auto real = each.history.at(window_); real && window_ > first_window_) {
      record_.judge(each.expected.mean, real->mean);
    }
    if (window_ >= 0) {
      each.forecaster.score(each.history, window_, forecast_options_);
    }
    each.expected = each.forecaster.forecast(each.history, window, forecast_options_).load;
  }
  window_ = window;
  stale_ = true;
}

std::vector<policy::ModelDemand> WarmServePlane::demands(const World& world) const {
  std::vector<policy::ModelDemand> demands;
  for (std::size_t i = 0; i < models_.size(); ++i) {
    const ModelId id(i);
    const ModelSpec& spec = world.model(id);
    const HostSpec& host = world.host_spec(HostId(0));
    const double load =
        static_cast<double>(spec.weight_bytes()) / static_cast<double>(spec.tp) / host.links.pcie;
    const auto running = static_cast<std::int64_t>(instances(world, id).size());
    demands.push_back({.model = id,
                       .mean_load = models_[i].expected.mean,
                       .peak_load = std::max(models_[i].expected.mean, models_[i].expected.peak),
                       .batch = spec.max_sequences,
                       .instances = running + starting(world, id),
                       .devices = spec.tp,
                       .pages_per_device = world.weight_pages(id),
                       .load_time = from_seconds(load),
                       .hit_time = from_seconds(host.startup.attach)});
  }
  return demands;
}

void WarmServePlane::prewarm(const World& world, Actions& actions) {
  std::vector<HostId> hosts;
  for (const Host& host : world.hosts()) {
    hosts.push_back(host.id);
  }
  const policy::PrewarmOptions options{
      .score = paper_ ? policy::ScoreVariant::kPaper : policy::ScoreVariant::kCorrected,
      .placement = paper_ ? policy::PrewarmVariant::kPaper : policy::PrewarmVariant::kCorrected};
  for (const policy::PrewarmDecision& decision :
       policy::plan_prewarm(map_of(world, hosts), demands(world), options)) {
    const double value = decision.worth.tier * kTier + decision.worth.score;
    switch (decision.action) {
      case policy::PrewarmAction::kKeep:
        worth_[decision.replica] = decision.worth;
        actions.set_value(decision.replica, value);
        break;
      case policy::PrewarmAction::kEvict:
        actions.evict(decision.replica, Reason::kMakeRoom, decision.made_room_for);
        break;
      case policy::PrewarmAction::kLoad: {
        std::vector<GpuId> gpus = decision.devices;
        if (!evict_aware_) {  // The ablation: wherever there is room first, whatever is there.
          const std::int64_t need = world.weight_pages(decision.model) + overhead_pages_;
          const auto first =
              first_group(world, world.model(decision.model).tp, [&](const Gpu& gpu) {
                return world.free_pages(gpu.id) >= need &&
                       std::none_of(gpu.replicas.begin(), gpu.replicas.end(), [&](ReplicaId id) {
                         return world.replica(id)->model == decision.model ||
                                world.replica(id)->engine != nullptr;
                       });
              });
          if (!first) {
            break;
          }
          gpus = *first;
        }
        StartSpec spec = load_spec(world, decision.model, gpus);
        spec.serve = false;
        spec.link_class = LinkClass::kPrewarm;
        spec.value = value;
        worth_[actions.start(spec, reason_of(decision.kind))] = decision.worth;
        break;
      }
      case policy::PrewarmAction::kSkip:
        break;
    }
  }
}

void WarmServePlane::tick(const World& world, Actions& actions) {
  const std::set<ModelId> active = active_;
  for (const ModelId model : active) {
    scale(world, actions, model);
    route(world, actions, model);
    if (models_[model.value()].in_system == 0 && instances(world, model).empty() &&
        starting(world, model) == 0) {
      active_.erase(model);
    }
  }
  if (forecasting_) {
    forecast(world);
    if (std::exchange(stale_, false)) {
      prewarm(world, actions);
    }
  }
  actions.timer(world.now() + kTick, 0);
}

void WarmServePlane::decide(const Notice& notice, const World& world, Actions& actions) {
  if (notice.kind == NoticeKind::kGone || notice.kind == NoticeKind::kGpuDown ||
      notice.kind == NoticeKind::kGpuUp) {
    update_room(world, world.gpu(notice.gpu).host);
  } else if (notice.kind == NoticeKind::kDrained) {
    update_room(world, world.gpu(world.replica(notice.replica)->gpus[0]).host);
  }
  switch (notice.kind) {
    case NoticeKind::kStart:
      return begin(world, actions);
    case NoticeKind::kTimer:
      return tick(world, actions);
    case NoticeKind::kArrival:
      if (notice.tag == 0) {
        change(world, notice.model, 1);
      }
      queues_.push(world, notice.request);
      return route(world, actions, notice.model);
    case NoticeKind::kFinished:
      change(world, notice.model, -1);
      stale_ = stale_ || grace_.contains(notice.replica);
      return route(world, actions, notice.model);
    case NoticeKind::kServing:
      hand_over(world, actions, notice.replica, notice.model);
      [[fallthrough]];
    case NoticeKind::kWarm:
      stale_ = true;
      return route(world, actions, notice.model);
    case NoticeKind::kDrained:
    case NoticeKind::kGone: {
      hand_over(world, actions, notice.replica, notice.model);
      grace_.erase(notice.replica);
      worth_.erase(notice.replica);
      stale_ = true;
      const std::set<ModelId> wanting = wanting_;
      for (const ModelId model : wanting) {
        wanting_.erase(model);
        route(world, actions, model);
      }
      return;
    }
    case NoticeKind::kGpuDown:
      return reassign_lost(world, actions);
    default:
      return;
  }
}

}  // namespace heddle::sim
