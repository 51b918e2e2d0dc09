#include "sim/planes/prism.h"

#include <algorithm>

namespace heddle::sim {
namespace {

using namespace std::chrono_literals;

constexpr Duration kTick = 5s;
constexpr Duration kRateSeen = 60s;
constexpr std::size_t kGapsKept = 32;
/// A model that was moved stays for so long.
constexpr Duration kStay = 30s;
/// Who waits for room looks again so soon.
constexpr Duration kRetry = 500ms;
/// For how long a load may wait for pages of a GPU before it looks for another.
constexpr Duration kPatience = 2s;
/// Prompts worth so much time are with the engines ahead of what they read now.
constexpr Duration kAhead = 100ms;
constexpr std::int64_t kLeastKvTokens = 2048;
/// Servers that an activation looks at: those with most room.
constexpr std::size_t kHosts = 8;
constexpr std::uint64_t kRetryTag = 1;

}  // namespace

PrismPlane::PrismPlane(PlaneInputs inputs, Flags& flags)
    : inputs_(std::move(inputs)),
      planner_(
          static_cast<KvPlanner>(std::clamp(static_cast<int>(flags.number("planner", 2)), 0, 2))),
      migrate_(flags.on("migrate", true)),
      by_requests_(flags.on("requests", false)),
      gpu_queues_({.rule = flags.on("queue", true) ? policy::QueueRule::kMooreHodgson
                                                   : policy::QueueRule::kArrival,
                   .ahead = kAhead}) {}

/// Before the first request models lie where the offline rates put them, as many as fit.
void PrismPlane::begin(const World& world, Actions& actions) {
  std::vector<policy::KvModel> all;
  for (std::size_t i = 0; i < world.models().size(); ++i) {
    const ModelId id(i);
    models_.push_back({.tokens = policy::SlidingSum(kRateSeen, world.now()),
                       .requests = policy::SlidingSum(kRateSeen, world.now())});
    policy::KvModel model = kv_model(world, id);
    if (i < inputs_.demand.size()) {
      const OfflineDemand& offline = inputs_.demand[i];
      model.demand = policy::kv_demand(
          offline.requests_per_second * (offline.input_tokens + offline.output_tokens),
          world.model(id).kv_bytes(),
          std::max<Duration>(1ms, world.model(id).slo_tpot));
    }
    all.push_back(model);
  }
  for (PerModel& each : models_) {
    const ModelId id(static_cast<std::uint64_t>(&each - models_.data()));
    each.threshold = idle_threshold({}, activation(world, id));
  }
  gpu_queues_.resize(world.gpus().size());
  const KvPlan plan = plan_kv_placement(all, devices(world), {.planner = planner_});
  for (const policy::KvHome& home : plan.homes) {
    start(world, actions, home.model, home.devices, Reason::kPressure);
  }
  for (const Host& host : world.hosts()) {
    room_.update(world, host.id);
  }
  actions.timer(world.now() + kTick, 0);
}

double PrismPlane::demand(const World& world, ModelId model) {
  PerModel& each = models_[model.value()];
  const ModelSpec& spec = world.model(model);
  const double seconds = to_seconds(kRateSeen);
  if (by_requests_) {
    return request_demand(each.requests.sum(world.now()) / seconds,
                          std::max<Duration>(1ms, spec.slo_ttft));
  }
  return policy::kv_demand(each.tokens.sum(world.now()) / seconds,
                           spec.kv_bytes(),
                           std::max<Duration>(1ms, spec.slo_tpot));
}

policy::KvModel PrismPlane::kv_model(const World& world, ModelId model) {
  const ModelSpec& spec = world.model(model);
  policy::KvModel view{
      .model = model,
      .demand = demand(world, model),
      .bytes =
          (world.weight_pages(model) + world.overhead_pages(model)) * world.page_bytes() * spec.tp,
      .parts = spec.tp,
      .movable = spec.tp == 1 && world.now() >= models_[model.value()].moved + kStay};
  if (const std::optional<ReplicaId> home = home_of(world, model)) {
    view.at = world.replica(*home)->gpus;
    std::sort(view.at.begin(), view.at.end());
  }
  return view;
}

std::vector<policy::KvDevice> PrismPlane::devices(const World& world) const {
  std::vector<policy::KvDevice> views;
  for (const Gpu& gpu : world.gpus()) {
    if (gpu.up) {
      views.push_back({.id = gpu.id, .host = gpu.host, .bytes = gpu.pages * world.page_bytes()});
    }
  }
  return views;
}

/// The replica that takes the model's requests, or will.
std::optional<ReplicaId> PrismPlane::home_of(const World& world, ModelId model) const {
  std::optional<ReplicaId> home;
  for (const ReplicaId id : world.replicas_of(model)) {
    const ReplicaPhase state = world.replica(id)->state;
    const bool comes = state == ReplicaPhase::kWaiting || state == ReplicaPhase::kLoading;
    if (state == ReplicaPhase::kServing && !leaving_.contains(id)) {
      return id;
    }
    home = comes ? id : home;
  }
  return home;
}

Duration PrismPlane::activation(const World& world, ModelId model) {
  const HostSpec& host = world.host_spec(HostId(0));
  const double rate = host.links.spread > 0 ? host.links.spread : host.links.pcie;
  return from_seconds(static_cast<double>(world.model(model).weight_bytes()) / rate);
}

ReplicaId PrismPlane::start(
    const World& world, Actions& actions, ModelId model, std::vector<GpuId> gpus, Reason reason) {
  const HostSpec& host = world.host_spec(gpus[0]);
  StartSpec spec{.model = model, .stages = {{.gpus = gpus}}};
  if (!world.cached(world.gpu(gpus[0]).host, model)) {
    spec.source = WeightSource::kRemote;
    spec.cache_image = true;
  } else if (gpus.size() == 1 && host.links.spread > 0) {
    spec.source = WeightSource::kSpread;
  }
  spec.deadline = world.now() + activation(world, model);
  models_[model.value()].moved = world.now();
  return actions.start(spec, reason);
}

std::optional<IdleModel> PrismPlane::idle_view(const World& world, ModelId model) const {
  const PerModel& each = models_[model.value()];
  const std::optional<ReplicaId> home = home_of(world, model);
  if (!home || each.in_system > 0 || !world.replica(*home)->serves()) {
    return std::nullopt;
  }
  return IdleModel{
      .model = model,
      .bytes = (world.weight_pages(model) + world.overhead_pages(model)) * world.page_bytes(),
      .idle = world.now() - each.idle_since,
      .threshold = each.threshold,
      .activation = activation(world, model),
      .ttft = world.model(model).slo_ttft};
}

/// Frees pages of one GPU by evicting models idle there, for `need_pages` and whatever waits to be
/// loaded there. False: they are not enough.
bool PrismPlane::make_room(
    const World& world, Actions& actions, GpuId gpu, std::int64_t need_pages, ModelId for_whom) {
  std::int64_t missing = need_pages - world.free_pages(gpu);
  std::vector<IdleModel> idle;
  for (const ReplicaId id : world.gpu(gpu).replicas) {
    const Replica& replica = *world.replica(id);
    const std::int64_t pages = replica.stages[0].weight_pages;
    if (replica.state == ReplicaPhase::kEvicting) {
      missing -= pages;
    } else if (replica.state == ReplicaPhase::kWaiting) {
      missing += pages + world.overhead_pages(replica.model);
    } else if (const auto view = idle_view(world, replica.model)) {
      idle.push_back(*view);
    }
  }
  if (missing <= 0) {
    return true;
  }
  const auto victims = choose_idle_evictions(idle, missing * world.page_bytes(), IdleOrder::kPaper);
  if (!victims) {
    return false;
  }
  for (const ModelId victim : *victims) {
    actions.evict(*home_of(world, victim), Reason::kMakeRoom, for_whom);
  }
  return true;
}

/// Starts a model where pressure will be least, not counting models that could go.
bool PrismPlane::activate(const World& world, Actions& actions, ModelId model) {
  std::vector<policy::KvModel> present;
  std::vector<policy::KvDevice> devices;
  std::set<ModelId> seen;
  for (const HostId host : room_.most(world, model, kHosts)) {
    for (const GpuId id : world.host(host).gpus) {
      const Gpu& gpu = world.gpu(id);
      if (!gpu.up) {
        continue;
      }
      devices.push_back({.id = id, .host = host, .bytes = gpu.pages * world.page_bytes()});
      for (const ReplicaId replica : gpu.replicas) {
        const ModelId each = world.replica(replica)->model;
        const auto idle = idle_view(world, each);
        const bool goes = idle && idle->idle > idle->threshold;
        if (!goes && seen.insert(each).second) {
          present.push_back(kv_model(world, each));
        }
      }
    }
  }
  const std::int64_t kv = world.kv_pages(model, kLeastKvTokens);
  policy::KvModel wanted = kv_model(world, model);
  wanted.at.clear();
  wanted.bytes += kv * world.page_bytes() * wanted.parts;
  const auto home = choose_kv_home(wanted, policy::kv_loads(present, devices));
  if (!home) {
    return false;
  }
  const std::int64_t need = world.weight_pages(model) + world.overhead_pages(model) + kv;
  for (const GpuId gpu : *home) {
    make_room(world, actions, gpu, need, model);  // Else it waits for requests to end.
  }
  starting_.insert(start(world, actions, model, *home, Reason::kPressure));
  room_.update(world, world.gpu(home->front()).host);
  return true;
}

/// Loads that still wait for pages ask again for room, or look for another GPU.
void PrismPlane::hurry(const World& world, Actions& actions) {
  const std::set<ReplicaId> starting = starting_;
  for (const ReplicaId id : starting) {
    const Replica* replica = world.replica(id);
    if (replica == nullptr || replica->state != ReplicaPhase::kWaiting) {
      starting_.erase(id);
    } else if (world.now() >= replica->created + kPatience) {
      starting_.erase(id);
      actions.evict(id, Reason::kPressure, std::nullopt);
    } else {
      for (const GpuId gpu : replica->gpus) {
        make_room(
            world, actions, gpu, world.kv_pages(replica->model, kLeastKvTokens), replica->model);
      }
    }
  }
}

void PrismPlane::look_again_soon(const World& world, Actions& actions) {
  if (!looks_again_ && (!starting_.empty() || !homeless_.models().empty())) {
    looks_again_ = true;
    actions.timer(world.now() + kRetry, kRetryTag);
  }
}

/// A model's waiting requests go to the queue of its GPU, or wait until it has one.
void PrismPlane::enqueue(const World& world, Actions& actions, ModelId model) {
  const std::optional<ReplicaId> home = home_of(world, model);
  if (!home && !exhausted_.contains(model) && !activate(world, actions, model)) {
    exhausted_.insert(model);
  }
  if (!home) {
    return look_again_soon(world, actions);
  }
  if (!world.replica(*home)->serves()) {
    return;
  }
  const GpuId gpu = world.replica(*home)->gpus[0];
  while (!homeless_.empty(model)) {
    gpu_queues_.add(world, homeless_.pop(model), *home);
  }
  pass(world, actions, gpu);
}

/// Prism's local scheduler on one GPU.
void PrismPlane::pass(const World& world, Actions& actions, GpuId gpu) {
  const GpuQueues::Left left = gpu_queues_.pass(world, actions, gpu);
  for (const LiveId id : left.homeless) {
    homeless_.push(world, id);
  }
  for (const ModelId model : left.rejected) {
    ended(world, model);
  }
  if (left.blocked) {
    make_room(world, actions, gpu, left.blocked->second, left.blocked->first);
  }
}

void PrismPlane::arrived(const World& world, Actions& actions, const Notice& notice) {
  PerModel& each = models_[notice.model.value()];
  const LiveRequest& request = world.request(notice.request);
  gpu_queues_.read(notice.request);
  if (notice.tag == 0) {
    each.requests.add(world.now(), 1);
    each.tokens.add(world.now(), static_cast<double>(request.prompt));
    if (each.in_system++ == 0) {
      each.gaps.push_back(world.now() - each.idle_since);
      if (each.gaps.size() > kGapsKept) {
        each.gaps.erase(each.gaps.begin());
      }
      each.threshold = idle_threshold(each.gaps, activation(world, notice.model));
    }
  }
  homeless_.push(world, notice.request);
  enqueue(world, actions, notice.model);
}

void PrismPlane::ended(const World& world, ModelId model) {
  PerModel& each = models_[model.value()];
  if (--each.in_system == 0) {
    each.idle_since = world.now();
  }
}

/// At most two models move to where pressure is less: the new replica loads, and when it serves the
/// old one ends what it has.
void PrismPlane::rebalance(const World& world, Actions& actions) {
  std::vector<policy::KvModel> present;
  for (std::size_t i = 0; i < models_.size(); ++i) {
    policy::KvModel model = kv_model(world, ModelId(i));
    if (!model.at.empty()) {
      model.movable = model.movable && moving_.empty();
      present.push_back(std::move(model));
    }
  }
  const std::vector<policy::KvDevice> devices = this->devices(world);
  const KvPlan plan = plan_kv_placement(present, devices, {.planner = planner_});
  const HostSpec& host = world.host_spec(HostId(0));
  for (const policy::KvMove& move : policy::choose_kv_moves(
           present,
           devices,
           {.horizon = kRateSeen,
            .bytes_per_second = host.links.spread > 0 ? host.links.spread : host.links.pcie,
            .homes = plan.homes})) {
    const std::int64_t need = world.weight_pages(move.model) + world.overhead_pages(move.model);
    const std::optional<ReplicaId> old = home_of(world, move.model);
    if (old && world.replica(*old)->serves() && world.free_pages(move.to) >= need) {
      moving_[start(world, actions, move.model, {move.to}, Reason::kBalance)] = *old;
    }
  }
}

void PrismPlane::retry(const World& world, Actions& actions) {
  exhausted_.clear();
  const std::set<ModelId> wanting = homeless_.models();
  for (const ModelId model : wanting) {
    enqueue(world, actions, model);
  }
}

void PrismPlane::decide(const Notice& notice, const World& world, Actions& actions) {
  switch (notice.kind) {
    case NoticeKind::kStart:
      return begin(world, actions);
    case NoticeKind::kTimer:
      if (notice.tag == kRetryTag) {
        looks_again_ = false;
        hurry(world, actions);
        retry(world, actions);
        return look_again_soon(world, actions);
      }
      if (migrate_) {
        rebalance(world, actions);
      }
      for (const Gpu& gpu : world.gpus()) {
        pass(world, actions, gpu.id);
      }
      retry(world, actions);
      return actions.timer(world.now() + kTick, 0);
    case NoticeKind::kArrival:
      return arrived(world, actions, notice);
    case NoticeKind::kFirstToken:
      gpu_queues_.read(notice.request);
      return pass(world, actions, world.replica(notice.replica)->gpus[0]);
    case NoticeKind::kFinished: {
      const GpuId gpu = world.replica(notice.replica)->gpus[0];
      gpu_queues_.read(notice.request);
      models_[notice.model.value()].tokens.add(
          world.now(), static_cast<double>(world.request(notice.request).generate));
      ended(world, notice.model);
      return pass(world, actions, gpu);
    }
    case NoticeKind::kServing: {
      const auto old = moving_.find(notice.replica);
      if (old != moving_.end()) {
        leaving_.insert(old->second);
        actions.drain(old->second, Reason::kBalance);
        moving_.erase(old);
      }
      room_.update(world, world.gpu(world.replica(notice.replica)->gpus[0]).host);
      return enqueue(world, actions, notice.model);
    }
    case NoticeKind::kDrained:
      return actions.evict(notice.replica, Reason::kBalance, std::nullopt);
    case NoticeKind::kGone:
      moving_.erase(notice.replica);
      leaving_.erase(notice.replica);
      room_.update(world, world.gpu(notice.gpu).host);
      return retry(world, actions);
    case NoticeKind::kGpuDown:
    case NoticeKind::kGpuUp: {
      room_.update(world, world.gpu(notice.gpu).host);
      for (const LiveId id : gpu_queues_.take(world, notice.gpu)) {
        homeless_.push(world, id);
      }
      return retry(world, actions);
    }
    default:
      return;
  }
}

}  // namespace heddle::sim
