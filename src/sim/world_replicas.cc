#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "sim/world.h"

namespace heddle::sim {
namespace {

// Phases of a load; each ends when nothing of it is outstanding.
constexpr std::uint8_t kBefore = 0;
constexpr std::uint8_t kFetch = 1;
constexpr std::uint8_t kCopy = 2;
constexpr std::uint8_t kAfter = 3;
constexpr std::uint8_t kRest = 4;   // The part that serving did not wait for.
constexpr std::uint8_t kMerge = 5;  // The rest of a pipeline's weights.

Duration span(double seconds) {
  return policy::to_duration(seconds);
}

}  // namespace

ReplicaId World::start(const StartSpec& spec, Reason reason) {
  HEDDLE_CHECK(!spec.stages.empty());
  const ReplicaId id(replicas_.size());
  auto made = std::make_unique<Replica>();
  Replica& replica = *made;
  replicas_.push_back(std::move(made));
  replica.id = id;
  replica.model = spec.model;
  replica.spec = spec;
  replica.value = spec.value;
  replica.kv_limit = spec.kv_limit;
  replica.created = replica.used = now_;
  const ModelSpec& model = this->model(spec.model);
  const auto tp = static_cast<double>(model.tp);
  for (const StageSpec& stage : spec.stages) {
    const double weights = static_cast<double>(model.weight_bytes()) / tp;
    const double block =
        static_cast<double>(model.kv_bytes() * EngineOptions{}.tokens_per_block) / tp;
    replica.stages.push_back(
        {.spec = stage,
         .weight_pages = pages(weights * (stage.reserve_all ? 1 : stage.weights)),
         .kv_bytes_per_block = block * stage.weights});
    replica.gpus.insert(replica.gpus.end(), stage.gpus.begin(), stage.gpus.end());
  }
  by_model_[spec.model.value()].push_back(id);
  bool possible = true;
  for (const GpuId gpu : replica.gpus) {
    possible = possible && gpus_[gpu.value()].up;
  }
  for (const ledger::Demand& demand : weight_demands(replica)) {
    possible = possible && demand.pages <= gpus_[demand.pool.value()].pages;
  }
  note("start", reason, replica);
  ++counts_.starts;
  ++(spec.serve ? counts_.misses : counts_.prewarms);
  if (!possible) {
    forget(replica);
    return id;
  }
  for (const GpuId gpu : replica.gpus) {
    use_gpu(gpu, replica);
  }
  try_begin(replica);
  return id;
}

/// The same number of pages on each GPU of a replica.
std::vector<ledger::Demand> World::demands(const Replica& replica, std::int64_t pages) {
  std::vector<ledger::Demand> made;
  for (const GpuId gpu : replica.gpus) {
    made.push_back({.pool = ledger::device_pool(gpu), .pages = pages});
  }
  return made;
}

std::vector<ledger::Demand> World::weight_demands(const Replica& replica) const {
  std::vector<ledger::Demand> demands;
  for (const Stage& stage : replica.stages) {
    for (const GpuId gpu : stage.spec.gpus) {
      demands.push_back({.pool = ledger::device_pool(gpu), .pages = stage.weight_pages});
    }
  }
  return demands;
}

/// Takes the pages of a load and begins it, or waits for them.
void World::try_begin(Replica& replica) {
  const LeaseKind kind = !replica.spec.serve         ? LeaseKind::kWeightsWarm
                         : replica.stages.size() > 1 ? LeaseKind::kShardPipe
                                                     : LeaseKind::kWeightsActive;
  const ledger::Holder holder{.model = replica.model};
  const LeaseId lease = memory_.reserve(now_, kind, holder, weight_demands(replica));
  if (lease != LeaseId(0) && replica.spec.serve) {
    replica.overhead = memory_.reserve(
        now_, LeaseKind::kOverhead, holder, demands(replica, overhead_pages(replica.model)));
    if (replica.overhead == LeaseId(0)) {
      memory_.release(now_, lease);
    }
  }
  if (lease == LeaseId(0) || (replica.spec.serve && replica.overhead == LeaseId(0))) {
    for (const GpuId gpu : replica.gpus) {
      waiting_for_pages_[gpu.value()].insert(replica.id);
    }
    return;
  }
  for (const GpuId gpu : replica.gpus) {
    waiting_for_pages_[gpu.value()].erase(replica.id);
  }
  replica.weights = lease;
  replica.state = ReplicaState::kLoading;
  begin_phase(replica, kBefore);
}

void World::phase_timer(Replica& replica, Duration after) {
  if (after > Duration{}) {
    ++replica.outstanding;
    queue_.push(now_ + after,
                {.kind = EventKind::kPhase,
                 .index = static_cast<std::uint32_t>(replica.id.value()),
                 .stamp = replica.stamp});
  }
}

void World::begin_phase(Replica& replica, std::uint8_t phase) {
  const StartSpec& spec = replica.spec;
  replica.phase = phase;
  replica.outstanding = 1;  // So that what ends at once does not end the phase.
  const double bytes = static_cast<double>(model(replica.model).weight_bytes());
  switch (phase) {
    case kBefore:
      phase_timer(replica, spec.before);
      break;
    case kFetch: {
      phase_timer(replica, spec.beside - spec.before);
      fetch(replica, std::max(0.0, spec.start_part - spec.present), spec.link_class);
      const double spread = host_spec(replica.gpus[0]).links.spread;
      if (spec.source == WeightSource::kSpread && spread > 0) {
        phase_timer(replica, span(bytes * spec.start_part / spread));
      }
      break;
    }
    case kCopy:
      if (!spec.stream) {
        copy(replica, std::max(0.0, spec.start_part - spec.present), spec.link_class);
      }
      break;
    case kAfter: {
      double largest = 0;
      for (const StageSpec& stage : spec.stages) {
        largest = std::max(largest, stage.weights);
      }
      phase_timer(replica, spec.after + span(spec.per_byte * bytes * largest));
      break;
    }
    default:
      break;
  }
  phase_step_done(replica.id);
}

/// Starts the flows that bring `part` of the weights.
void World::fetch(Replica& replica, double part, LinkClass link_class) {
  const double bytes = static_cast<double>(model(replica.model).weight_bytes()) * part;
  for (const Stage& stage : replica.stages) {
    const double share = bytes * stage.spec.weights;
    const Host& host = hosts_[gpus_[stage.spec.gpus[0].value()].host.value()];
    switch (replica.spec.source) {
      case WeightSource::kRemote:
        add_flow(replica, host.nic, share, link_class);
        counts_.bytes_fetched += share;
        break;
      case WeightSource::kDisk:
        add_flow(replica, host.disk, share, link_class);
        break;
      case WeightSource::kHost:
        add_flow(replica, host.memory, share, link_class);
        touch_image(host.id, replica.model);
        break;
      case WeightSource::kSpread:
        add_flow(replica, host.memory, share, link_class);
        add_flow(replica, host.nvlink, share, link_class);
        touch_image(host.id, replica.model);
        counts_.bytes_loaded += share;
        return;
      case WeightSource::kNothing:
        return;
    }
  }
  if (replica.spec.stream) {
    copy(replica, part, link_class);
  }
}

void World::copy(Replica& replica, double part, LinkClass link_class) {
  const double bytes = static_cast<double>(model(replica.model).weight_bytes()) * part;
  for (const Stage& stage : replica.stages) {
    const double each = bytes * stage.spec.weights / static_cast<double>(stage.spec.gpus.size());
    for (const GpuId gpu : stage.spec.gpus) {
      add_flow(replica, gpus_[gpu.value()].pcie, each, link_class);
      counts_.bytes_loaded += each;
    }
  }
}

void World::add_flow(Replica& replica, std::size_t link, double bytes, LinkClass link_class) {
  if (bytes <= 0 || link_states_[link].nominal <= 0) {
    return;  // A link of no stated speed holds nobody up.
  }
  const FlowId id(++flows_given_);
  flow_owner_.emplace(id, FlowOwner{.replica = replica.id, .link = link});
  replica.flows.push_back(id);
  ++replica.outstanding;
  links_[link].add(now_, id, bytes, link_class, replica.spec.deadline);
  schedule_link(link);
}

void World::schedule_link(std::size_t link) {
  const std::optional<Instant> next = links_[link].next_done();
  const std::uint64_t stamp = ++link_states_[link].stamp;
  if (next) {
    queue_.push(
        std::max(*next, now_),
        {.kind = EventKind::kLink, .index = static_cast<std::uint32_t>(link), .stamp = stamp});
  }
}

void World::link_event(std::size_t link, std::uint64_t stamp) {
  if (stamp != link_states_[link].stamp) {
    return;
  }
  for (const FlowId flow : links_[link].take_done(now_)) {
    const ReplicaId owner = flow_owner_.at(flow).replica;
    flow_owner_.erase(flow);
    std::erase(at(owner).flows, flow);
    phase_step_done(owner);
  }
  schedule_link(link);
}

void World::phase_step_done(ReplicaId id) {
  Replica& replica = at(id);
  if (--replica.outstanding > 0) {
    return;
  }
  if (replica.state == ReplicaState::kStarting) {
    replica.state = ReplicaState::kServing;
    replica.serving_since = now_;
    return notify({.kind = NoticeKind::kServing, .replica = id, .model = replica.model});
  }
  switch (replica.phase) {
    case kBefore:
    case kFetch:
    case kCopy:
      return begin_phase(replica, static_cast<std::uint8_t>(replica.phase + 1));
    case kAfter:
      return loaded(replica);
    case kRest:
      replica.loaded = 1;
      return;
    default:
      return merged(replica);
  }
}

void World::loaded(Replica& replica) {
  replica.loaded = replica.spec.start_part;
  if (replica.spec.cache_image) {
    for (const Stage& stage : replica.stages) {
      cache(gpus_[stage.spec.gpus[0].value()].host, replica.model);
    }
  }
  const bool serve = replica.spec.serve || replica.attached;
  if (serve && open_engine(replica)) {
    replica.state = ReplicaState::kServing;
    replica.serving_since = now_;
    notify({.kind = NoticeKind::kServing, .replica = replica.id, .model = replica.model});
  } else {
    replica.state = ReplicaState::kWarm;
    notify({.kind = NoticeKind::kWarm, .replica = replica.id, .model = replica.model});
  }
  if (replica.loaded < 1) {
    replica.phase = kRest;
    replica.outstanding = 1;
    fetch(replica, 1 - replica.loaded, replica.spec.link_class);
    phase_step_done(replica.id);
  }
}

/// Reserves what an engine needs beside weights and creates it. False: there is no room.
bool World::open_engine(Replica& replica) {
  const ledger::Holder holder{.model = replica.model};
  if (replica.stages.size() == 1 &&
      !memory_.transfer(now_, replica.weights, LeaseKind::kWeightsActive)) {
    return false;
  }
  if (replica.overhead == LeaseId(0)) {
    replica.overhead = memory_.reserve(
        now_, LeaseKind::kOverhead, holder, demands(replica, overhead_pages(replica.model)));
  }
  if (replica.overhead == LeaseId(0)) {
    for (const GpuId gpu : replica.gpus) {
      revoke_warm(gpu, replica.model);
    }
    memory_.transfer(now_, replica.weights, LeaseKind::kWeightsWarm);
    return false;
  }
  replica.kv = memory_.reserve(now_, LeaseKind::kKvOwn, holder, demands(replica, 0));
  const ModelSpec& spec = model(replica.model);
  const HostId host = gpus_[replica.gpus[0].value()].host;
  replica.engine = std::make_unique<Engine>(step_model(replica.model, host),
                                            EngineOptions{.max_sequences = spec.max_sequences,
                                                          .max_batch_tokens = spec.max_batch_tokens,
                                                          .grow_ahead = replica.spec.grow_ahead,
                                                          .mps_percent = replica.spec.mps_percent});
  set_conditions(replica);
  return true;
}

void World::close_engine(Replica& replica) {
  if (!replica.engine) {
    return;
  }
  counts_.tokens += replica.engine->tokens_done();
  ++replica.stamp;
  replica.engine.reset();
  publish(replica);
  send_guests_home(replica);
  for (LeaseId* lease : {&replica.kv, &replica.guest_kv, &replica.overhead}) {
    if (*lease != LeaseId(0)) {
      memory_.release(now_, *lease);
      *lease = LeaseId(0);
    }
  }
  for (const GpuId gpu : replica.gpus) {
    starved_[gpu.value()].erase(replica.id);
  }
}

bool World::serve(ReplicaId id, Duration after, Reason reason) {
  Replica* replica = find(id);
  if (replica == nullptr || replica->state != ReplicaState::kWarm || !open_engine(*replica)) {
    return false;
  }
  note("serve", reason, *replica);
  counts_.hits += reason == Reason::kHit ? 1 : 0;
  replica->state = ReplicaState::kStarting;
  replica->used = now_;
  replica->outstanding = 1 + (replica->phase == kRest ? replica->outstanding : 0);
  phase_timer(*replica, std::max(after, Duration(1)));
  phase_step_done(id);
  return true;
}

void World::attach(ReplicaId id, Reason reason) {
  Replica* replica = find(id);
  if (replica == nullptr ||
      (replica->state != ReplicaState::kLoading && replica->state != ReplicaState::kWaiting)) {
    return;
  }
  note("attach", reason, *replica);
  ++counts_.attaches;
  replica->attached = true;
  replica->used = now_;
  replica->spec.link_class = LinkClass::kCritical;
  for (const FlowId flow : replica->flows) {
    const std::size_t link = flow_owner_.at(flow).link;
    links_[link].reclassify(now_, flow, LinkClass::kCritical);
    schedule_link(link);
  }
}

void World::drain(ReplicaId id, Reason reason) {
  Replica* replica = find(id);
  if (replica == nullptr || !replica->serves()) {
    return;
  }
  note("drain", reason, *replica);
  replica->state = ReplicaState::kDraining;
  if (replica->load() == 0) {
    drained(*replica);
  }
}

void World::drained(Replica& replica) {
  if (replica.merging > 0) {
    cancel_flows(replica);
    replica.merging = 0;
  }
  close_engine(replica);
  replica.state = ReplicaState::kWarm;
  memory_.transfer(now_, replica.weights, LeaseKind::kWeightsIdle);
  notify({.kind = NoticeKind::kDrained, .replica = replica.id, .model = replica.model});
  for (const GpuId gpu : replica.gpus) {
    retry_waiting(gpu);
  }
}

void World::requeue(Replica& replica, Reason reason) {
  if (!replica.engine) {
    return;
  }
  for (const Sequence& sequence : replica.engine->take_all()) {
    LiveRequest& request = requests_[sequence.id.value()];
    request.generated = sequence.generated;
    request.dispatched = false;
    ++counts_.resubmissions;
    note("requeue", reason, replica, std::nullopt, request.number);
    notify({.kind = NoticeKind::kArrival,
            .request = LiveId(sequence.id.value()),
            .model = replica.model});
  }
}

void World::stop(ReplicaId id, Reason reason) {
  Replica* replica = find(id);
  if (replica == nullptr || !replica->engine) {
    return;
  }
  note("stop", reason, *replica);
  requeue(*replica, reason);
  drained(*replica);
}

void World::evict(ReplicaId id, Reason reason, std::optional<ModelId> for_whom) {
  Replica* replica = find(id);
  if (replica == nullptr || replica->state == ReplicaState::kEvicting) {
    return;
  }
  note("evict", reason, *replica, for_whom);
  ++counts_.evictions;
  requeue(*replica, reason);
  close_engine(*replica);
  cancel_flows(*replica);
  if (replica->weights == LeaseId(0)) {
    return forget(*replica);
  }
  unmap(*replica);
}

/// Pages change hands only when they are unmapped, one mapper per GPU.
void World::unmap(Replica& replica) {
  replica.state = ReplicaState::kEvicting;
  ++replica.stamp;
  Duration longest{};
  for (const Stage& stage : replica.stages) {
    longest = std::max(longest,
                       span(host_spec(stage.spec.gpus[0]).startup.map_per_page *
                            static_cast<double>(stage.weight_pages)));
  }
  queue_.push(
      now_ + longest,
      {.kind = EventKind::kUnmapped, .index = static_cast<std::uint32_t>(replica.id.value())});
}

void World::unmapped(ReplicaId id) {
  if (Replica* replica = find(id); replica != nullptr) {
    forget(*replica);
  }
}

void World::cancel_flows(Replica& replica) {
  for (const FlowId flow : replica.flows) {
    const std::size_t link = flow_owner_.at(flow).link;
    links_[link].cancel(now_, flow);
    schedule_link(link);
    flow_owner_.erase(flow);
  }
  replica.flows.clear();
}

/// The end of a replica: nothing of it is left but its id.
void World::forget(Replica& replica) {
  cancel_flows(replica);
  close_engine(replica);
  for (const LeaseId lease : {replica.weights, replica.overhead}) {
    if (lease != LeaseId(0)) {
      memory_.release(now_, lease);
    }
  }
  std::erase(by_model_[replica.model.value()], replica.id);
  const std::vector<GpuId> gpus = replica.gpus;
  for (const GpuId gpu : gpus) {
    leave_gpu(gpu, replica);
    waiting_for_pages_[gpu.value()].erase(replica.id);
  }
  notify({.kind = NoticeKind::kGone, .replica = replica.id, .model = replica.model});
  replicas_[replica.id.value()].reset();
  for (const GpuId gpu : gpus) {
    retry_waiting(gpu);
  }
}

void World::use_gpu(GpuId gpu, Replica& replica) {
  std::set<ReplicaId>& users = gpus_[gpu.value()].replicas;
  if (users.empty()) {
    gpu_seconds_ = gpu_seconds();
    gpus_since_ = now_;
    ++gpus_used_;
  }
  users.insert(replica.id);
}

void World::leave_gpu(GpuId gpu, Replica& replica) {
  std::set<ReplicaId>& users = gpus_[gpu.value()].replicas;
  if (users.erase(replica.id) > 0 && users.empty()) {
    gpu_seconds_ = gpu_seconds();
    gpus_since_ = now_;
    --gpus_used_;
  }
}

/// Pages of a GPU came free: for loads that wait, then for engines that starve.
void World::retry_waiting(GpuId gpu) {
  const std::set<ReplicaId> waiting = waiting_for_pages_[gpu.value()];
  for (const ReplicaId id : waiting) {
    try_begin(at(id));
  }
  wake_starved(gpu);
}

void World::touch_image(HostId host, ModelId model) {
  Host& at = hosts_[host.value()];
  const auto found = at.cache.find(model);
  if (found != at.cache.end()) {
    at.by_use.erase({found->second.used, model});
    found->second.used = ++image_uses_;
    at.by_use.emplace(found->second.used, model);
  }
}

/// Host memory is a least-recently-used cache of whole images.
void World::cache(HostId id, ModelId model) {
  Host& host = hosts_[id.value()];
  if (host.cache.contains(model)) {
    return touch_image(id, model);
  }
  const std::int64_t need = pages(static_cast<double>(this->model(model).weight_bytes()));
  const PoolId pool = host_pool(id);
  while (memory_.free(pool) < need && !host.by_use.empty()) {
    const ModelId victim = host.by_use.begin()->second;
    host.by_use.erase(host.by_use.begin());
    memory_.release(now_, host.cache.at(victim).lease);
    host.cache.erase(victim);
  }
  const std::vector<ledger::Demand> demands{{.pool = pool, .pages = need}};
  const LeaseId lease = memory_.reserve(now_, LeaseKind::kImage, {.model = model}, demands);
  if (lease != LeaseId(0)) {
    host.cache.emplace(model, Host::Image{.lease = lease, .used = ++image_uses_});
    host.by_use.emplace(image_uses_, model);
  }
}

void World::merge(ReplicaId id, std::size_t stage, bool split, Reason reason) {
  Replica* replica = find(id);
  if (replica == nullptr || !replica->serves() || replica->merging > 0 ||
      replica->stages.size() < 2) {
    return;
  }
  HEDDLE_CHECK(replica->stages[stage].spec.reserve_all);
  note("merge", reason, *replica);
  replica->merging = stage + 1;
  replica->split = split;
  replica->phase = kMerge;
  replica->outstanding = 1;
  const Stage& kept = replica->stages[stage];
  const GpuId gpu = kept.spec.gpus[0];
  const double bytes =
      static_cast<double>(model(replica->model).weight_bytes()) * (1 - kept.spec.weights);
  const bool local = cached(gpus_[gpu.value()].host, replica->model);
  add_flow(*replica,
           local ? gpus_[gpu.value()].pcie : hosts_[gpus_[gpu.value()].host.value()].nic,
           bytes,
           LinkClass::kConsolidate);
  counts_.bytes_fetched += local ? 0 : bytes;
  phase_step_done(id);
}

/// The weights of a pipeline are whole on one worker: its requests' KV moves there, which they
/// wait for, and the others go.
void World::merged(Replica& replica) {
  const Stage kept = replica.stages[replica.merging - 1];
  const ModelSpec& spec = model(replica.model);
  double tokens = 0;
  for (const Sequence& sequence : replica.engine->running_sequences()) {
    tokens += static_cast<double>(sequence.computed);
  }
  const double bytes = tokens * static_cast<double>(spec.kv_bytes()) * (1 - kept.spec.weights);
  const Link& nic = links_[hosts_[gpus_[kept.spec.gpus[0].value()].host.value()].nic];
  counts_.bytes_kv_moved += bytes;
  replica.engine->interrupt(now_);
  if (bytes > 0 && nic.rate() > 0) {
    replica.engine->pause(span(bytes / nic.rate()));
  }
  std::vector<GpuId> left;
  std::vector<Stage> others;
  for (const Stage& stage : replica.stages) {
    if (stage.spec.gpus != kept.spec.gpus) {
      left.insert(left.end(), stage.spec.gpus.begin(), stage.spec.gpus.end());
      others.push_back(stage);
    }
  }
  for (const GpuId gpu : left) {
    const PoolId pool = ledger::device_pool(gpu);
    for (const LeaseId lease : {replica.weights, replica.kv, replica.overhead}) {
      memory_.shrink(now_, lease, pool, memory_.reserved(lease, pool));
    }
    std::erase(gpus_[gpu.value()].active, replica.id);
    leave_gpu(gpu, replica);
  }
  replica.stages = {kept};
  replica.stages[0].spec.weights = 1;
  replica.stages[0].kv_bytes_per_block =
      static_cast<double>(spec.kv_bytes() * EngineOptions{}.tokens_per_block) /
      static_cast<double>(spec.tp);
  replica.gpus = kept.spec.gpus;
  replica.spec.stages = {replica.stages[0].spec};
  memory_.transfer(now_, replica.weights, LeaseKind::kWeightsActive);
  replica.merging = 0;
  ++counts_.merges;
  set_conditions(replica);
  schedule_engine(replica);
  notify({.kind = NoticeKind::kMerged, .replica = replica.id, .model = replica.model});
  const StartSpec whole = replica.spec;
  for (const Stage& stage : others) {
    if (replica.split && stage.spec.reserve_all) {
      StartSpec again = whole;
      again.stages = {{.gpus = stage.spec.gpus}};
      again.present = stage.spec.weights;
      again.before = again.beside = again.after = {};
      again.link_class = LinkClass::kConsolidate;
      start(again, Reason::kScaleUp);
    }
  }
  for (const GpuId gpu : left) {
    retry_waiting(gpu);
  }
}

void World::set_value(ReplicaId id, double value) {
  if (Replica* replica = find(id); replica != nullptr) {
    replica->value = value;
  }
}

}  // namespace heddle::sim
