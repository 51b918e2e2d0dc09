#include <algorithm>
#include <tuple>

#include "sim/planes/heddle.h"
#include "sim/planes/kv_plan.h"

namespace heddle::sim {
namespace {

using namespace std::chrono_literals;

/// Servers that a decision looks at, beside those where the model is already.
constexpr std::size_t kByRoom = 4;
constexpr std::size_t kByFetches = 4;
constexpr std::int64_t kLeastKvTokens = 2048;

/// GPU time per step of whatever is active on a GPU.
Duration neighbours(const World& world, GpuId gpu) {
  std::int64_t sum = 0;
  for (const ReplicaId id : world.gpu(gpu).active) {
    sum += world.replica(id)->published_ps;
  }
  return Duration(sum / 1000);
}

}  // namespace

std::vector<HostId> HeddlePlane::all_hosts(const World& world, ModelId model) {
  std::vector<HostId> hosts;
  for (const Host& host : world.hosts()) {
    if (host.up && fits(world, model, host.id)) {
      hosts.push_back(host.id);
    }
  }
  return hosts;
}

/// Servers worth looking at, of those that the model fits: with the model, with its image, with
/// room, with quiet networks. All of a small cluster.
std::vector<HostId> HeddlePlane::candidate_hosts(const World& world, ModelId model) {
  if (world.hosts().size() <= kByRoom + kByFetches) {
    return all_hosts(world, model);
  }
  std::set<HostId> hosts;
  for (const HostId host : by_room_.first(world, model, kByRoom)) {
    hosts.insert(host);
  }
  for (const HostId host : by_fetches_.first(world, model, kByFetches)) {
    hosts.insert(host);
  }
  std::erase_if(models_[model.value()].images,
                [&](HostId host) { return !world.cached(host, model); });
  hosts.insert(models_[model.value()].images.begin(), models_[model.value()].images.end());
  for (const ReplicaId id : world.replicas_of(model)) {
    hosts.insert(world.gpu(world.replica(id)->gpus[0]).host);
  }
  std::erase_if(hosts,
                [&](HostId host) { return !world.host(host).up || !fits(world, model, host); });
  return {hosts.begin(), hosts.end()};
}

StartTerms HeddlePlane::terms_for(const World& world, const LiveRequest& request) {
  const ModelSpec& spec = world.model(request.model);
  const StepModel& step = world.step_model(request.model, HostId(0));
  const std::int64_t kv = world.kv_pages(request.model, kLeastKvTokens) * world.page_bytes();
  const double stay = std::clamp(3 * models_[request.model.value()].demand.mean_gap(), 10.0, 300.0);
  return {.prefill = Duration((step.base_ps(request.prompt, 1) + step.fixed_ps() +
                               step.chunk_ps({.tokens = request.prompt})) /
                              1000),
          .tpot = Duration((std::max(step.launch_ps(),
                                     step.base_ps(1, 1) + step.decode_ps() + step.fixed_ps())) /
                           1000),
          .bytes = spec.weight_bytes() + kv * spec.tp,
          .kv_bytes = kv * spec.tp,
          .stay = from_seconds(stay)};
}

StartSpec HeddlePlane::load_spec(const World& world, ModelId model, std::vector<GpuId> gpus) const {
  const HostSpec& host = world.host_spec(gpus[0]);
  const bool cached = world.cached(world.gpu(gpus[0]).host, model);
  StartSpec spec{.model = model, .stages = {{.gpus = gpus}}};
  spec.source = !cached                                     ? WeightSource::kRemote
                : gpus.size() == 1 && host.links.spread > 0 ? WeightSource::kSpread
                                                            : WeightSource::kHost;
  spec.cache_image = !cached;
  spec.beside = gpus.size() > 1 ? from_seconds(host.startup.communicator) : Duration{};
  spec.after = from_seconds(host.startup.attach);
  spec.revocable_idle = true;
  return spec;
}

void HeddlePlane::propose_queue(const World& world, const LiveRequest& request, Options& options) {
  const std::int64_t batch = world.model(request.model).max_sequences;
  const double service = models_[request.model.value()].demand.mean_service();
  std::optional<Plan> best;
  PlannedAction planned{.kind = PlannedAction::Kind::kQueue, .reason = Reason::kRunning};
  for (const ReplicaId id : world.replicas_of(request.model)) {
    const Replica& replica = *world.replica(id);
    if (!replica.serves()) {
      continue;
    }
    const auto load = static_cast<std::int64_t>(replica.load()) + gpu_queues_.queued(id);
    const double turns = static_cast<double>(std::max<std::int64_t>(0, load + 1 - batch)) /
                         static_cast<double>(batch);
    Plan plan = queue_plan({.devices = replica.gpus,
                            .ttft = gpu_queues_.backlog(world, replica.gpus[0]) +
                                    prefill_time(world, request, replica.gpus[0]) +
                                    from_seconds(turns * service),
                            .tpot = replica.engine->step()});
    if (!best || plan.ttft < best->ttft) {
      best = std::move(plan);
      planned.replica = id;
    }
  }
  if (best) {
    options.plans.push_back(std::move(*best));
    options.planned_actions.push_back(planned);
  }
}

/// Replicas that are loaded, or on their way, in the pool.
void HeddlePlane::propose_resident(const World& world,
                                   const LiveRequest& request,
                                   const StartTerms& terms,
                                   Options& options) {
  for (const ReplicaId id : world.replicas_of(request.model)) {
    const Replica& replica = *world.replica(id);
    const Duration attach = from_seconds(world.host_spec(replica.gpus[0]).startup.attach);
    const bool loads =
        replica.state == ReplicaPhase::kLoading && !replica.spec.serve && !replica.attached;
    if (replica.state == ReplicaPhase::kWarm &&
        world.free_pages(replica.gpus[0]) >= world.overhead_pages(request.model)) {
      Plan plan = activation_plan(replica.gpus, attach, 0, terms);
      plan.mechanism = Mechanism::kHit;
      options.plans.push_back(std::move(plan));
      options.planned_actions.push_back(
          {.kind = PlannedAction::Kind::kServe, .replica = id, .reason = Reason::kHit});
    } else if (loads) {
      Plan plan = activation_plan(
          replica.gpus, attach + load_time(world, request.model, replica.gpus[0], true), 0, terms);
      plan.mechanism = Mechanism::kAttach;
      options.plans.push_back(std::move(plan));
      options.planned_actions.push_back(
          {.kind = PlannedAction::Kind::kAttach, .replica = id, .reason = Reason::kAttach});
    }
  }
}

/// Who lies where on these servers. Idle instances are replicas like any other.
policy::ReplicaMap HeddlePlane::map_of(const World& world, std::span<const HostId> hosts) const {
  std::vector<policy::MapDevice> devices;
  std::vector<policy::PlacedReplica> placed;
  std::set<ReplicaId> seen;
  for (const HostId host : hosts) {
    for (const GpuId id : world.host(host).gpus) {
      const Gpu& gpu = world.gpu(id);
      policy::MapDevice device{.id = id,
                               .server = static_cast<std::int64_t>(host.value()),
                               .free_pages = world.free_pages(id),
                               .prewarmable = gpu.up,
                               .launchable = gpu.up};
      for (const ReplicaId each : gpu.replicas) {
        const Replica& replica = *world.replica(each);
        if (replica.state == ReplicaPhase::kEvicting || replica.state == ReplicaPhase::kGone) {
          continue;
        }
        // Who has stages on several servers does not die for anybody here.
        const bool wide =
            world.gpu(replica.gpus.front()).host != world.gpu(replica.gpus.back()).host;
        const bool goes = !wide && may_go(world, replica);
        const bool loads = goes && (replica.state == ReplicaPhase::kLoading ||
                                    replica.state == ReplicaPhase::kWaiting);
        device.prewarmable = device.prewarmable && goes;
        device.launchable = device.launchable && goes;
        if (!wide && seen.insert(each).second) {
          placed.push_back({.id = each,
                            .model = replica.model,
                            .state = loads  ? policy::ReplicaState::kLoading
                                     : goes ? policy::ReplicaState::kReady
                                     : replica.state == ReplicaPhase::kDraining
                                         ? policy::ReplicaState::kDraining
                                         : policy::ReplicaState::kServing,
                            .devices = replica.gpus,
                            .pages = replica.stages[0].weight_pages,
                            .worth = {.tier = 0, .score = worth_of(world, replica)}});
        }
      }
      devices.push_back(device);
    }
  }
  policy::ReplicaMap map(std::move(devices));
  for (policy::PlacedReplica& replica : placed) {
    map.add(std::move(replica));
  }
  return map;
}

void HeddlePlane::propose_launch(const World& world,
                                 const LiveRequest& request,
                                 std::span<const HostId> hosts,
                                 const StartTerms& terms,
                                 Options& options) {
  const ModelId model = request.model;
  const Launch launch =
      choose_launch(map_of(world, hosts),
                    {.model = model,
                     .devices = world.model(model).tp,
                     .pages = world.weight_pages(model) + world.overhead_pages(model) +
                              world.kv_pages(model, kLeastKvTokens)},
                    LaunchVariant::kLeastLost);
  if (launch.outcome == LaunchOutcome::kWait) {
    return;
  }
  const GpuId gpu = launch.devices[0];
  const bool cached = world.cached(world.gpu(gpu).host, model);
  const Duration attach = from_seconds(world.host_spec(gpu).startup.attach);
  const Duration load = load_time(world, model, gpu, cached) + unmapping(world, launch.dies);
  PlannedAction planned{.replica = launch.replica, .dies = launch.dies};
  switch (launch.outcome) {
    case LaunchOutcome::kHit:
      if (world.replica(launch.replica)->state != ReplicaPhase::kWarm) {
        return;  // An idle instance, which takes requests as it is.
      }
      planned.kind = PlannedAction::Kind::kServe;
      planned.reason = Reason::kHit;
      break;
    case LaunchOutcome::kAttach:
      planned.kind = PlannedAction::Kind::kAttach;
      planned.reason = Reason::kAttach;
      break;
    default:
      planned.kind = PlannedAction::Kind::kStart;
      planned.reason = Reason::kMiss;
      planned.spec = load_spec(world, model, launch.devices);
  }
  const auto plan =
      launch_plan(launch, {.hit = attach, .attach = attach + load, .load = attach + load}, terms);
  if (plan) {
    options.plans.push_back(*plan);
    options.planned_actions.push_back(std::move(planned));
  }
}

double HeddlePlane::demand(const World& world, ModelId model) const {
  return policy::kv_demand(models_[model.value()].demand.token_rate(world.now()),
                           world.model(model).kv_bytes(),
                           std::max<Duration>(1ms, world.model(model).slo_tpot));
}

/// Into the pool, from host memory: where KV pressure will be least, and, where somebody would have
/// to make room there, where it is least of the GPUs that have room, and where least is lost.
void HeddlePlane::propose_activation(const World& world,
                                     const LiveRequest& request,
                                     std::span<const HostId> hosts,
                                     const StartTerms& terms,
                                     Options& options) {
  const std::int64_t need = world.weight_pages(request.model) +
                            world.overhead_pages(request.model) +
                            world.kv_pages(request.model, kLeastKvTokens);
  const std::int64_t tp = world.model(request.model).tp;
  std::vector<policy::KvDevice> open;
  std::vector<policy::KvDevice> roomy;
  std::vector<policy::KvDevice> cheapest;
  double least = 0;
  for (const HostId host : hosts) {
    if (!world.cached(host, request.model)) {
      continue;
    }
    std::vector<std::pair<double, policy::KvDevice>> here;
    for (const GpuId id : world.host(host).gpus) {
      const auto device = pool_device(world, id, request.model);
      const auto dies = device ? victims_on(world, id, need) : std::nullopt;
      if (!dies) {
        continue;
      }
      open.push_back(*device);
      if (dies->empty()) {
        roomy.push_back(*device);
      }
      here.emplace_back(lost_by(world, *dies), *device);
    }
    if (std::ssize(here) < tp) {
      continue;
    }
    std::sort(here.begin(), here.end(), [](const auto& a, const auto& b) {
      return std::tie(a.first, a.second.id) < std::tie(b.first, b.second.id);
    });
    here.resize(static_cast<std::size_t>(tp));
    if (cheapest.empty() || here.back().first < least) {
      least = here.back().first;
      cheapest.clear();
      for (const auto& [lost, device] : here) {
        cheapest.push_back(device);
      }
    }
  }
  std::set<std::vector<GpuId>> proposed;
  const auto propose = [&](const std::vector<policy::KvDevice>& devices) {
    const auto home = choose_kv_home({.model = request.model,
                                      .demand = demand(world, request.model),
                                      .bytes = need * tp * world.page_bytes(),
                                      .parts = tp},
                                     devices);
    if (home && proposed.insert(*home).second) {
      propose_activation_on(world, request, *home, need, terms, options);
    }
    return home.has_value();
  };
  propose(open);
  if (!propose(roomy)) {
    propose(cheapest);
  }
}

/// A GPU as the shared pool sees it; nullopt where the model may not go.
std::optional<policy::KvDevice> HeddlePlane::pool_device(const World& world,
                                                         GpuId id,
                                                         ModelId model) const {
  const Gpu& gpu = world.gpu(id);
  if (!gpu.up) {
    return std::nullopt;
  }
  policy::KvDevice device{.id = id, .host = gpu.host, .bytes = gpu.pages * world.page_bytes()};
  for (const ReplicaId each : gpu.replicas) {
    const Replica& replica = *world.replica(each);
    const bool goes = may_go(world, replica);
    if (replica.model == model || (dedicated(replica.model) && !goes)) {
      return std::nullopt;
    }
    if (!goes) {
      device.demand += demand(world, replica.model);
      device.taken += (replica.stages[0].weight_pages +
                       world.memory().reserved(replica.kv, ledger::device_pool(id))) *
                      world.page_bytes();
    }
  }
  return device;
}

void HeddlePlane::propose_activation_on(const World& world,
                                        const LiveRequest& request,
                                        const std::vector<GpuId>& gpus,
                                        std::int64_t need,
                                        const StartTerms& terms,
                                        Options& options) {
  std::set<ReplicaId> dies;
  Duration shared{};
  for (const GpuId gpu : gpus) {
    const auto here = victims_on(world, gpu, need);
    dies.insert(here->begin(), here->end());
    shared = std::max(shared, neighbours(world, gpu));
  }
  PlannedAction planned{.kind = PlannedAction::Kind::kStart,
                        .spec = load_spec(world, request.model, gpus),
                        .dies = {dies.begin(), dies.end()},
                        .reason = Reason::kPressure};
  const Duration ready =
      std::max(planned.spec.beside, load_time(world, request.model, gpus[0], true)) +
      from_seconds(world.host_spec(gpus[0]).startup.attach);
  Plan plan = activation_plan(gpus, ready, lost_by(world, planned.dies), terms);
  plan.tpot += shared;
  options.plans.push_back(std::move(plan));
  options.planned_actions.push_back(std::move(planned));
}

policy::StartModel HeddlePlane::start_model(const World& world, const LiveRequest& request) {
  const ModelSpec& spec = world.model(request.model);
  const StartupProfile& costs = world.host_spec(HostId(0)).startup;
  const StartTerms terms = terms_for(world, request);
  policy::StartModel view{.bytes = spec.weight_bytes(),
                          .kv_per_token = spec.kv_bytes(),
                          .prompt_tokens = request.prompt,
                          .expected_tokens = std::max<std::int64_t>(1, request.generate)};
  view.times = {.libraries = from_seconds(costs.attach),
                .hop = from_seconds(costs.hop),
                .prefill = terms.prefill,
                .decode = terms.tpot};
  for (std::int64_t s = 2; s <= policy::kMostStages; ++s) {
    view.times.group.at(static_cast<std::size_t>(s)) =
        from_seconds(costs.attach + costs.group * static_cast<double>(s) / 4);
  }
  view.times.group[1] = from_seconds(costs.attach);
  return view;
}

/// A GPU as a place for a replica from the store; nullopt if the replica cannot go there.
std::optional<policy::StartDevice> HeddlePlane::start_device(const World& world,
                                                             ModelId model,
                                                             GpuId id) const {
  const Gpu& gpu = world.gpu(id);
  policy::StartDevice device{
      .id = id,
      .host = gpu.host,
      .free_bytes = (world.free_pages(id) - world.overhead_pages(model)) * world.page_bytes()};
  bool open = gpu.up;
  double worth = 0;
  for (const ReplicaId each : gpu.replicas) {
    const Replica& replica = *world.replica(each);
    const std::int64_t bytes = replica.stages[0].weight_pages * world.page_bytes();
    if (may_go(world, replica)) {
      device.revocable_bytes += bytes;
      worth += worth_of(world, replica);
    } else {
      device.shared = true;
      device.free_bytes -= replica.state == ReplicaPhase::kWaiting ? bytes : 0;
      open = open && !dedicated(replica.model);
    }
    open = open && replica.model != model;
  }
  if (!open || device.free_bytes + device.revocable_bytes <= 0) {
    return std::nullopt;
  }
  device.value =
      device.revocable_bytes > 0 ? worth / static_cast<double>(device.revocable_bytes) : 0;
  return device;
}

/// From the store, over one server's network or several.
void HeddlePlane::propose_pipeline(const World& world,
                                   const LiveRequest& request,
                                   std::span<const HostId> hosts,
                                   const StartTerms& terms,
                                   Options& options) {
  std::vector<policy::StartHost> servers;
  std::vector<policy::StartDevice> devices;
  for (const HostId host : hosts) {
    policy::Nic& nic = nics_[host.value()];
    nic.advance(world.now());
    servers.push_back({.id = host, .nic = &nic, .pcie = world.host_spec(host).links.pcie});
    for (const GpuId id : world.host(host).gpus) {
      if (const auto device = start_device(world, request.model, id)) {
        devices.push_back(*device);
      }
    }
  }
  const Duration left = request.arrival + world.model(request.model).slo_ttft - world.now();
  const auto start = policy::choose_cold_start(start_model(world, request),
                                               {.now = world.now(),
                                                .ttft_left = std::max(Duration(1), left),
                                                .tpot = world.model(request.model).slo_tpot,
                                                .hosts = servers,
                                                .devices = devices},
                                               {.kv_share = terms.kv_bytes, .fill_below = 0});
  if (!start || (!pipelines_ && start->stages.size() > 1)) {
    return;
  }
  PlannedAction planned{.kind = PlannedAction::Kind::kStart, .reason = Reason::kGroup};
  planned.spec = {.model = request.model, .source = WeightSource::kRemote, .revocable_idle = true};
  for (const policy::StartStage& stage : start->stages) {
    const std::int64_t need =
        stage.reserve_bytes / world.page_bytes() + world.overhead_pages(request.model);
    const auto dies = victims_on(world, stage.device, need);
    if (!dies) {
      return;
    }
    planned.dies.insert(planned.dies.end(), dies->begin(), dies->end());
    planned.spec.stages.push_back({.gpus = {stage.device},
                                   .weights = 1.0 / static_cast<double>(start->stages.size()),
                                   .reserve_all = stage.full});
  }
  std::sort(planned.dies.begin(), planned.dies.end());
  planned.dies.erase(std::unique(planned.dies.begin(), planned.dies.end()), planned.dies.end());
  const StartupProfile& costs = world.host_spec(start->stages[0].host).startup;
  const auto depth = static_cast<double>(start->stages.size());
  planned.spec.after = from_seconds(costs.attach + (depth > 1 ? costs.group * depth / 4 : 0));
  planned.spec.cache_image = start->stages.size() == 1;
  planned.spec.deadline = start->stages[0].fetch_deadline;
  planned.fetches = start->stages;
  Plan plan = pipeline_plan(*start, terms);
  Duration shared{};
  for (const policy::StartStage& stage : start->stages) {
    shared = std::max(shared, neighbours(world, stage.device));
  }
  plan.tpot += shared;
  options.plans.push_back(std::move(plan));
  options.planned_actions.push_back(std::move(planned));
}

HeddlePlane::Options HeddlePlane::options_for(const World& world, ModelId model) {
  Options options = options_on(world, model, candidate_hosts(world, model));
  if (options.plans.empty() && world.hosts().size() > kByRoom + kByFetches) {
    options = options_on(world, model, all_hosts(world, model));
  }
  return options;
}

HeddlePlane::Options HeddlePlane::options_on(const World& world,
                                             ModelId model,
                                             std::span<const HostId> hosts) {
  const LiveRequest& request = world.request(waiting_.front(model));
  const StartTerms terms = terms_for(world, request);
  Options options;
  propose_queue(world, request, options);
  if (world.model(model).external) {
    propose_swap_in(world, request, hosts, terms, options);
    return options;
  }
  if (dedicated(model)) {
    propose_launch(world, request, hosts, terms, options);
  } else {
    propose_resident(world, request, terms, options);
    propose_activation(world, request, hosts, terms, options);
  }
  const bool cached = std::any_of(
      hosts.begin(), hosts.end(), [&](HostId host) { return world.cached(host, model); });
  const Duration tpot = world.model(model).slo_tpot;
  const bool in_pace =
      std::any_of(options.plans.begin(), options.plans.end(), [&](const auto& plan) {
        return tpot <= Duration{} || plan.tpot <= tpot;
      });
  if (world.model(model).tp == 1 && (!cached || !in_pace)) {
    propose_pipeline(world, request, hosts, terms, options);
  } else if (!cached && !dedicated(model)) {
    propose_launch(world, request, hosts, terms, options);
  }
  return options;
}

}  // namespace heddle::sim
