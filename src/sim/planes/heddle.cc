#include "sim/planes/heddle.h"

#include <algorithm>

#include "policy/consolidation.h"
#include "policy/prewarm.h"
#include "sim/planes/kv_plan.h"

namespace heddle::sim {
namespace {

using namespace std::chrono_literals;

constexpr Duration kTick = 500ms;
constexpr std::int64_t kDaysKept = 8;
constexpr Duration kAhead = 100ms;
constexpr std::int64_t kLeastKvTokens = 2048;
/// Byte-seconds that a second of somebody's waiting is worth: a GPU of 72 GB for three seconds.
/// What is proposed for one request holds equal bytes for equally long, or loses nothing, so that
/// any price above 0 chooses alike.
constexpr double kValuePrice = 2e11;
/// For how long a load may wait for pages.
constexpr Duration kPatience = 2s;
/// Models that look again when a replica is gone.
constexpr std::size_t kRetries = 8;

}  // namespace

HeddlePlane::HeddlePlane(Flags& flags)
    : pipelines_(flags.on("pipeline", true)),
      prewarms_(flags.on("prewarm", true)),
      weaves_(flags.on("weave", true)),
      gpu_queues_({.rule = flags.on("queue", true) ? policy::QueueRule::kMooreHodgson
                                                   : policy::QueueRule::kArrival,
                   .ahead = kAhead}) {
  calendar_ = calendar_of(flags);
}

/// Weights that lie in host memory come to GPUs as far as they fit there.
void HeddlePlane::begin(const World& world, Actions& actions) {
  for (std::size_t i = 0; i < world.models().size(); ++i) {
    const Instant now = world.now();
    models_.push_back({.demand = policy::DemandMeter(now, calendar_, kDaysKept)});
    if (world.model(ModelId(i)).external) {
      models_.back().model_class = ClassKeeper(ModelClass::kExternal);
    }
  }
  gpu_queues_.resize(world.gpus().size());
  for (const Host& host : world.hosts()) {
    nics_.emplace_back(
        std::max<std::int64_t>(1, static_cast<std::int64_t>(world.host_spec(host.id).links.nic)),
        policy::NicRule::kEarliestDeadline);
    for (const auto& [model, image] : host.cache) {
      models_[model.value()].images.insert(host.id);
    }
    index_host(world, host.id);
  }
  std::vector<policy::KvModel> models;
  std::vector<policy::KvDevice> devices;
  for (std::size_t i = 0; i < models_.size(); ++i) {
    const ModelId id(i);
    if (models_[i].images.empty() || world.model(id).external) {
      continue;  // An external engine is suspended until somebody asks for it.
    }
    const std::int64_t pages =
        world.weight_pages(id) + world.overhead_pages(id) + world.kv_pages(id, kLeastKvTokens);
    models.push_back({.model = id,
                      .demand = static_cast<double>(world.model(id).weight_bytes()),
                      .bytes = pages * world.model(id).tp * world.page_bytes(),
                      .parts = world.model(id).tp});
  }
  for (const Gpu& gpu : world.gpus()) {
    devices.push_back({.id = gpu.id, .host = gpu.host, .bytes = gpu.pages * world.page_bytes()});
  }
  // Nothing is known of anybody's load, so that equal work on every GPU is the best guess: a step
  // reads the weights. Bin packing would put all that is small on one GPU, where they slow each
  // other; only where GPUs are too few for an even spread does it place more.
  const KvPlan even = plan_kv_placement(models, devices, {.planner = KvPlanner::kGreedy});
  const KvPlan packed = plan_kv_placement(models, devices, {});
  const KvPlan& best = packed.unplaced.size() < even.unplaced.size() ? packed : even;
  for (const policy::KvHome& home : best.homes) {
    actions.start(load_spec(world, home.model, home.devices), Reason::kPressure);
    active_.insert(home.model);
  }
  actions.timer(world.now() + kTick, 0);
}

void HeddlePlane::index_host(const World& world, HostId host) {
  if (!world.host(host).up) {
    by_room_.erase(host);
    by_fetches_.erase(host);
    return;
  }
  std::int64_t room = 0;
  for (const GpuId gpu : world.host(host).gpus) {
    room += world.free_pages(gpu);
  }
  by_room_.put(world, host, -room);
  by_fetches_.put(
      world, host, static_cast<std::int64_t>(world.links(host).users(world.host(host).nic)));
}

void HeddlePlane::arrived(const World& world, Actions& actions, const Notice& notice) {
  gpu_queues_.read(notice.request);
  if (notice.tag == 0) {
    const LiveRequest& request = world.request(notice.request);
    models_[notice.model.value()].demand.arrived(
        world.now(), request.prompt + request.generate, calendar_);
    active_.insert(notice.model);
  }
  waiting_.push(world, notice.request);
  route(world, actions, notice.model);
}

/// Hands waiting requests to instances that take them in time; where none does, does what is best.
void HeddlePlane::route(const World& world, Actions& actions, ModelId model) {
  std::set<GpuId> touched;
  const std::int64_t batch = world.model(model).max_sequences;
  while (!waiting_.empty(model)) {
    const LiveRequest& request = world.request(waiting_.front(model));
    const Duration left = request.arrival + world.model(model).slo_ttft - world.now();
    std::optional<ReplicaId> best;
    std::int64_t least = batch;
    std::int64_t coming = 0;
    Instant soonest = Instant::max();
    for (const ReplicaId id : world.replicas_of(model)) {
      const Replica& replica = *world.replica(id);
      const auto load = static_cast<std::int64_t>(replica.load()) + gpu_queues_.queued(id);
      if (comes(replica)) {
        coming += batch;
        const auto ready = ready_.find(id);
        soonest = std::min(soonest, ready == ready_.end() ? world.now() : ready->second);
      }
      if (replica.serves() && load < least) {
        least = load;
        best = id;
      }
    }
    const GpuId gpu = best ? world.replica(*best)->gpus[0] : GpuId{};
    const Duration first = best
                               ? gpu_queues_.backlog(world, gpu) + prefill_time(world, request, gpu)
                               : Duration::max();
    // In time, or else no later than with what is on its way.
    if (best && (first <= left || (coming > 0 && world.now() + first <= soonest))) {
      watch_.arrived(*best, prefill_time(world, request, gpu));
      gpu_queues_.add(world, waiting_.pop(model), *best);
      touched.insert(gpu);
    } else if (static_cast<std::int64_t>(waiting_.size(model)) <= coming ||
               !plan(world, actions, model)) {
      break;
    }
  }
  for (const GpuId gpu : touched) {
    pass(world, actions, gpu);
  }
}

void HeddlePlane::pass(const World& world, Actions& actions, GpuId gpu) {
  const GpuQueues::Left left = gpu_queues_.pass(world, actions, gpu);
  for (const LiveId id : left.homeless) {
    waiting_.push(world, id);
    active_.insert(world.request(id).model);  // The next tick finds it another.
  }
  for (const ModelId model : left.rejected) {
    models_[model.value()].demand.left(world.now(), std::nullopt, calendar_);
    active_.insert(model);
  }
  if (left.blocked) {
    const auto dies = victims_on(world, gpu, left.blocked->second);
    for (const ReplicaId id : dies.value_or(std::vector<ReplicaId>{})) {
      actions.evict(id, Reason::kMakeRoom, left.blocked->first);
    }
    if (!dies && recall(world, actions, gpu)) {
      pass(world, actions, gpu);
    }
  }
}

/// Decides on a model's oldest waiting request. False: it goes on waiting.
bool HeddlePlane::plan(const World& world, Actions& actions, ModelId model) {
  const LiveRequest& request = world.request(waiting_.front(model));
  const ModelSpec& spec = world.model(model);
  const Options options = options_for(world, model);
  const PlanChoice choice =
      choose_plan(options.plans,
                  {.ttft_left = request.arrival + spec.slo_ttft - world.now(),
                   .tpot = spec.slo_tpot > Duration{} ? spec.slo_tpot : Duration(1h),
                   .model_class = models_[model.value()].model_class.present(),
                   .parts = spec.tp,
                   .value_price = kValuePrice,
                   .waiting = static_cast<std::int64_t>(waiting_.size(model))});
  return choice.plan && carry_out(world,
                                  actions,
                                  model,
                                  options.plans[*choice.plan],
                                  options.planned_actions[*choice.plan]);
}

/// Does what a plan says, unless something was done to its GPUs in the same instant.
bool HeddlePlane::carry_out(const World& world,
                            Actions& actions,
                            ModelId model,
                            const Plan& plan,
                            const PlannedAction& planned) {
  if (planned.kind == PlannedAction::Kind::kQueue) {
    const GpuId gpu = world.replica(planned.replica)->gpus[0];
    const LiveId next = waiting_.pop(model);
    watch_.arrived(planned.replica, prefill_time(world, world.request(next), gpu));
    gpu_queues_.add(world, next, planned.replica);
    pass(world, actions, world.replica(planned.replica)->gpus[0]);
    return true;
  }
  policy::Action action{
      .kind = policy::ActionKind::kStart, .model = model, .devices = plan.devices};
  for (const ReplicaId id : planned.dies) {
    action.victims.push_back(world.replica(id)->model);
  }
  const std::vector<policy::Action> proposals{action};
  if (policy::make_diff(proposals, not_before_, world.now()).actions.empty()) {
    return false;
  }
  const Instant ready = world.now() + plan.ttft;
  for (const ReplicaId id : planned.dies) {
    actions.evict(id, Reason::kMakeRoom, model);
  }
  switch (planned.kind) {
    case PlannedAction::Kind::kServe: {
      const GpuId gpu = world.replica(planned.replica)->gpus[0];
      const Duration attach = from_seconds(world.host_spec(gpu).startup.attach);
      actions.serve(planned.replica, attach, planned.reason);  // Else once the others are unmapped.
      ready_[planned.replica] = ready;
      return false;
    }
    case PlannedAction::Kind::kAttach:
      actions.attach(planned.replica, planned.reason);
      ready_[planned.replica] = ready;
      break;
    default: {
      const ReplicaId id = actions.start(planned.spec, planned.reason);
      ready_[id] = ready;
      for (std::size_t i = 0; i < planned.fetches.size(); ++i) {
        const policy::StartStage& stage = planned.fetches[i];
        nics_[stage.host.value()].start({.id = fetch_id(id, i),
                                         .bytes = std::max<std::int64_t>(1, stage.fetch_bytes),
                                         .deadline = stage.fetch_deadline});
        fetches_[id].push_back(stage.host);
      }
      for (const Stage& stage :
           world.replica(id) ? world.replica(id)->stages : std::vector<Stage>{}) {
        const HostId host = world.gpu(stage.spec.gpus[0]).host;
        index_host(world, host);
        if (planned.spec.cache_image) {
          models_[model.value()].images.insert(host);
        }
      }
    }
  }
  return static_cast<std::int64_t>(waiting_.size(model)) > world.model(model).max_sequences;
}

void HeddlePlane::end_fetches(ReplicaId id) {
  const auto found = fetches_.find(id);
  if (found != fetches_.end()) {
    for (std::size_t i = 0; i < found->second.size(); ++i) {
      nics_[found->second[i].value()].end(fetch_id(id, i));
    }
    fetches_.erase(found);
  }
}

/// After the first token a pipeline becomes as many workers as its load asks for.
void HeddlePlane::consolidate(const World& world, Actions& actions, ReplicaId id) {
  const Replica* replica = world.replica(id);
  if (replica == nullptr || replica->stages.size() < 2 || replica->merging > 0) {
    return;
  }
  const ModelSpec& spec = world.model(replica->model);
  std::vector<policy::GroupMember> members;
  for (const Stage& stage : replica->stages) {
    members.push_back({.device = stage.spec.gpus[0], .full = stage.spec.reserve_all});
  }
  const auto load = static_cast<std::int64_t>(replica->load() + waiting_.size(replica->model));
  const policy::Consolidation choice = policy::choose_consolidation(
      {.weights = spec.weight_bytes(),
       .kv_per_token = spec.kv_bytes(),
       .wanted = std::max<std::int64_t>(1, (load + spec.max_sequences - 1) / spec.max_sequences),
       .members = members});
  for (std::size_t i = 0; i < members.size() && !choice.survivors.empty(); ++i) {
    if (members[i].full && members[i].device == choice.survivors[0].device) {
      return actions.merge(
          id, i, choice.kind == policy::ConsolidationKind::kScaleUp, Reason::kConsolidate);
    }
  }
}

/// Instances of models that have GPUs of their own follow their load.
void HeddlePlane::scale(const World& world, Actions& actions, ModelId model) {
  std::vector<policy::InstanceView> views;
  std::int64_t starting = 0;
  for (const ReplicaId id : world.replicas_of(model)) {
    const Replica& replica = *world.replica(id);
    starting += comes(replica) ? 1 : 0;
    if (replica.serves()) {
      views.push_back(
          {.id = id,
           .running = static_cast<std::int64_t>(replica.load()) + gpu_queues_.queued(id),
           .started = replica.serving_since});
    }
  }
  const policy::Scaling scaling =
      policy::choose_scaling(models_[model.value()].demand.load(world.now()),
                             world.model(model).max_sequences,
                             views,
                             starting,
                             world.now(),
                             {.least = 1});
  for (const ReplicaId id : scaling.stop) {
    const std::vector<policy::Action> proposals{{.kind = policy::ActionKind::kScaleDown,
                                                 .model = model,
                                                 .devices = world.replica(id)->gpus}};
    if (!policy::make_diff(proposals, not_before_, world.now()).actions.empty()) {
      actions.drain(id, Reason::kScaleDown);
    }
  }
  if (scaling.start <= 0 || !dedicated(model)) {
    return;
  }
  const std::vector<HostId> hosts = candidate_hosts(world, model);
  const Launch launch =
      choose_launch(map_of(world, hosts),
                    {.model = model,
                     .devices = world.model(model).tp,
                     .pages = world.weight_pages(model) + world.overhead_pages(model) +
                              world.kv_pages(model, kLeastKvTokens)},
                    LaunchVariant::kLeastLost);
  const bool hit = launch.outcome == LaunchOutcome::kHit;
  if (launch.outcome == LaunchOutcome::kWait ||
      (hit && world.replica(launch.replica)->state != ReplicaPhase::kWarm)) {
    return;
  }
  PlannedAction planned{
      .kind = PlannedAction::Kind::kStart, .replica = launch.replica, .dies = launch.dies};
  planned.reason = hit ? Reason::kHit : Reason::kScaleUp;
  if (launch.outcome == LaunchOutcome::kMiss) {
    planned.spec = load_spec(world, model, launch.devices);
  } else {
    planned.kind = hit ? PlannedAction::Kind::kServe : PlannedAction::Kind::kAttach;
  }
  carry_out(world, actions, model, {.devices = launch.devices}, planned);
}

void HeddlePlane::forecast(const World& world, Actions& actions) {
  const std::int64_t window = calendar_.window_at(world.now());
  if (window == window_) {
    return;
  }
  first_window_ = window_ < 0 ? window : first_window_;
  for (PerModel& each : models_) {
    each.demand.advance(world.now(), calendar_);
    const std::optional<policy::Load> real = each.demand.history().at(window_);
    if (real && window_ > first_window_) {
      record_.judge(each.demand.expected().load.mean, real->mean);
    }
    each.demand.foresee(window_, window);
  }
  window_ = window;
  prewarm(world, actions);
}

/// Weights that the forecast expects, or a hot model's last peak, go where they cost nobody more
/// than they are worth.
void HeddlePlane::prewarm(const World& world, Actions& actions) {
  std::vector<policy::ModelDemand> demands;
  for (std::size_t i = 0; i < models_.size(); ++i) {
    const ModelId id(i);
    if (!dedicated(id)) {
      continue;
    }
    const policy::DemandMeter& demand = models_[i].demand;
    std::int64_t instances = 0;
    for (const ReplicaId replica : world.replicas_of(id)) {
      instances += world.replica(replica)->serves() || comes(*world.replica(replica)) ? 1 : 0;
    }
    const GpuId gpu(0);
    demands.push_back(policy::gate_demand(
        {.model = id,
         .mean_load = demand.expected().load.mean,
         .peak_load = std::max(demand.expected().load.mean, demand.expected().load.peak),
         .batch = world.model(id).max_sequences,
         .instances = instances,
         .devices = world.model(id).tp,
         .pages_per_device = world.weight_pages(id),
         .load_time = load_time(world, id, gpu, true),
         .hit_time = Duration(1ms)},
        demand.expected(),
        policy::Heat::kHot,
        policy::recent_peak(demand.history(), window_, 12)));
  }
  std::vector<HostId> hosts;
  for (const Host& host : world.hosts()) {
    hosts.push_back(host.id);
  }
  if (demands.empty()) {
    return;
  }
  for (const policy::PrewarmDecision& decision :
       policy::plan_prewarm(map_of(world, hosts),
                            demands,
                            {.score = policy::ScoreVariant::kValue,
                             .placement = policy::PrewarmVariant::kCorrected})) {
    const policy::Action action{.kind = policy::ActionKind::kPrewarm,
                                .model = decision.model,
                                .devices = decision.devices,
                                .worth = decision.worth.score};
    if (decision.action == policy::PrewarmAction::kEvict) {
      const Replica* replica = world.replica(decision.replica);
      if (replica != nullptr && may_go(world, *replica)) {
        actions.evict(decision.replica, Reason::kMakeRoom, decision.made_room_for);
      }
    } else if (decision.action == policy::PrewarmAction::kLoad &&
               !policy::make_diff(std::vector{action}, not_before_, world.now()).actions.empty()) {
      StartSpec spec = load_spec(world, decision.model, decision.devices);
      spec.serve = false;
      spec.link_class = LinkClass::kPrewarm;
      spec.value = decision.worth.score;
      actions.start(
          spec, decision.kind == policy::ReplicaKind::kBasic ? Reason::kForecast : Reason::kBurst);
    }
  }
}

/// A load that still waits for its pages was planned on a free GPU that is no longer: plan again.
void HeddlePlane::give_up_waiting(const World& world, Actions& actions, ModelId model) {
  const std::vector<ReplicaId> replicas = world.replicas_of(model);
  for (const ReplicaId id : replicas) {
    const Replica& replica = *world.replica(id);
    if (replica.state == ReplicaPhase::kWaiting && world.now() >= replica.created + kPatience) {
      actions.evict(id, Reason::kPressure, std::nullopt);
    }
  }
}

/// An engine with requests and no pages: who is worth least on its GPUs goes, or else itself.
void HeddlePlane::relieve(const World& world, Actions& actions, const Notice& notice) {
  const Replica* replica = world.replica(notice.replica);
  if (replica == nullptr || !replica->engine || !replica->engine->starved()) {
    return;
  }
  bool helped = false;
  for (const GpuId gpu : replica->gpus) {
    const std::int64_t some = world.kv_pages(notice.model, kLeastKvTokens);
    const auto dies = victims_on(world, gpu, world.free_pages(gpu) + some);
    for (const ReplicaId id : dies.value_or(std::vector<ReplicaId>{})) {
      helped = helped || id != notice.replica;
      actions.evict(id, Reason::kMakeRoom, notice.model);
    }
  }
  if (!helped && world.gpu(replica->gpus[0]).replicas.size() > 1) {
    actions.evict(notice.replica, Reason::kPressure, std::nullopt);
  }
}

void HeddlePlane::tick(const World& world, Actions& actions) {
  not_before_.expire(world.now());
  const std::set<ModelId> active = active_;
  for (const ModelId model : active) {
    PerModel& each = models_[model.value()];
    const double capacity =
        policy::kScaleUpShare * static_cast<double>(world.model(model).max_sequences);
    const GpuId gpu = world.replicas_of(model).empty()
                          ? GpuId(0)
                          : world.replica(world.replicas_of(model)[0])->gpus[0];
    each.model_class.tick({.external = world.model(model).external,
                           .parts = world.model(model).tp,
                           .utilisation = each.demand.load(world.now()) / capacity,
                           .on_host = !each.images.empty() || !world.replicas_of(model).empty(),
                           .median_gap = from_seconds(each.demand.mean_gap()),
                           .activation = load_time(world, model, gpu, true)});
    if (dedicated(model)) {
      scale(world, actions, model);
    }
    give_up_waiting(world, actions, model);
    route(world, actions, model);
    if (each.demand.in_system() == 0 && !dedicated(model)) {
      active_.erase(model);
    }
  }
  if (prewarms_) {
    forecast(world, actions);
  }
  weave(world, actions);
  actions.timer(world.now() + kTick, 0);
}

void HeddlePlane::refresh_values(const World& world, Actions& actions, ModelId model) {
  for (const ReplicaId id : world.replicas_of(model)) {
    actions.set_value(id, worth_of(world, *world.replica(id)));
  }
}

void HeddlePlane::gone(const World& world, Actions& actions, const Notice& notice) {
  end_fetches(notice.replica);
  ready_.erase(notice.replica);
  watch_.forget(notice.replica);
  for (const LiveId id : gpu_queues_.take(world, notice.gpu, notice.replica)) {
    waiting_.push(world, id);
  }
  index_host(world, world.gpu(notice.gpu).host);
  route(world, actions, notice.model);
  std::vector<ModelId> others;  // Some; the rest have their turn with the next tick.
  for (const ModelId each : waiting_.models()) {
    if (others.size() == kRetries) {
      break;
    }
    others.push_back(each);
  }
  for (const ModelId each : others) {
    route(world, actions, each);
  }
}

void HeddlePlane::decide(const Notice& notice, const World& world, Actions& actions) {
  switch (notice.kind) {
    case NoticeKind::kStart:
      return begin(world, actions);
    case NoticeKind::kTimer:
      return tick(world, actions);
    case NoticeKind::kArrival:
      return arrived(world, actions, notice);
    case NoticeKind::kFirstToken:
      gpu_queues_.read(notice.request);
      consolidate(world, actions, notice.replica);
      return pass(world, actions, world.replica(notice.replica)->gpus[0]);
    case NoticeKind::kFinished: {
      gpu_queues_.read(notice.request);
      models_[notice.model.value()].demand.left(
          world.now(), world.now() - world.request(notice.request).arrival, calendar_);
      active_.insert(notice.model);
      refresh_values(world, actions, notice.model);
      route(world, actions, notice.model);
      return pass(world, actions, world.replica(notice.replica)->gpus[0]);
    }
    case NoticeKind::kServing:
      end_fetches(notice.replica);
      ready_.erase(notice.replica);
      index_host(world, world.gpu(world.replica(notice.replica)->gpus[0]).host);
      return route(world, actions, notice.model);
    case NoticeKind::kWarm:
    case NoticeKind::kDrained:
      refresh_values(world, actions, notice.model);
      index_host(world, world.gpu(world.replica(notice.replica)->gpus[0]).host);
      return route(world, actions, notice.model);
    case NoticeKind::kStarved:
      return relieve(world, actions, notice);
    case NoticeKind::kGone:
      return gone(world, actions, notice);
    case NoticeKind::kGpuDown:
      for (const LiveId id : gpu_queues_.take(world, notice.gpu)) {
        waiting_.push(world, id);
      }
      index_host(world, world.gpu(notice.gpu).host);
      return;
    case NoticeKind::kGpuUp:
      return index_host(world, world.gpu(notice.gpu).host);
    default:
      return;
  }
}

}  // namespace heddle::sim
