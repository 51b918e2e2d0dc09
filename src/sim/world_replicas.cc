#include <algorithm>

#include "base/check.h"
#include "sim/world.h"

namespace heddle::sim {

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
  const std::int64_t kept = kept_pages(replica);
  for (const ledger::Demand& demand : weight_demands(replica)) {
    possible = possible && demand.pages + kept <= gpus_[demand.pool.value()].pages;
  }
  note("start", reason, replica);
  ++counts_.starts;
  ++(spec.serve && spec.link_class != LinkClass::kPrewarm ? counts_.misses : counts_.prewarms);
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

/// Guests give their pages back for a load that no eviction makes room for.
void World::recall_for(const Replica& replica) {
  for (const GpuId gpu : replica.gpus) {
    const std::set<ReplicaId>& there = gpus_[gpu.value()].replicas;
    const bool frees = std::any_of(there.begin(), there.end(), [this](ReplicaId id) {
      return at(id).state == ReplicaPhase::kEvicting;
    });
    if (!frees && replica.state == ReplicaPhase::kWaiting) {
      recall_guests(gpu, Reason::kMakeRoom);
    }
  }
}

/// KV that a replica has from its start on [pages of each GPU].
std::int64_t World::kept_pages(const Replica& replica) {
  return replica.spec.kv_kept ? std::max<std::int64_t>(replica.kv_limit, 0) : 0;
}

/// Takes the pages of a load: all, or none.
bool World::take_pages(Replica& replica) {
  const LeaseKind kind = !replica.spec.serve         ? LeaseKind::kWeightsWarm
                         : replica.stages.size() > 1 ? LeaseKind::kShardPipe
                                                     : LeaseKind::kWeightsActive;
  const ledger::Holder holder{.model = replica.model};
  replica.weights = memory_.reserve(now_, kind, holder, weight_demands(replica));
  bool all = replica.weights != LeaseId(0);
  if (all && replica.spec.serve) {
    replica.overhead = memory_.reserve(
        now_, LeaseKind::kOverhead, holder, demands(replica, overhead_pages(replica.model)));
    all = replica.overhead != LeaseId(0);
  }
  if (all && kept_pages(replica) > 0) {
    replica.kv =
        memory_.reserve(now_, LeaseKind::kKvOwn, holder, demands(replica, kept_pages(replica)));
    all = replica.kv != LeaseId(0);
  }
  for (LeaseId* lease : {&replica.weights, &replica.overhead, &replica.kv}) {
    if (!all && *lease != LeaseId(0)) {
      memory_.release(now_, *lease);
      *lease = LeaseId(0);
    }
  }
  return all;
}

/// Takes the pages of a load and begins it, or waits for them.
void World::try_begin(Replica& replica) {
  if (!take_pages(replica)) {
    for (const GpuId gpu : replica.gpus) {
      waiting_for_pages_[gpu.value()].insert(replica.id);
    }
    return recall_for(replica);
  }
  for (const GpuId gpu : replica.gpus) {
    waiting_for_pages_[gpu.value()].erase(replica.id);
  }
  replica.state = ReplicaPhase::kLoading;
  replica.begun = now_;
  begin_phase(replica, LoadPhase::kBefore);
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
  if (replica.kv == LeaseId(0)) {
    replica.kv = memory_.reserve(now_, LeaseKind::kKvOwn, holder, demands(replica, 0));
  }
  const ModelSpec& spec = model(replica.model);
  const HostId host = gpus_[replica.gpus[0].value()].host;
  replica.engine =
      std::make_unique<SimulatedEngine>(step_model(replica.model, host),
                                        EngineOptions{.max_sequences = spec.max_sequences,
                                                      .max_batch_tokens = spec.max_batch_tokens,
                                                      .grow_ahead = replica.spec.grow_ahead,
                                                      .mps_percent = replica.spec.mps_percent,
                                                      .prompts_elsewhere = spec.prompts_elsewhere});
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
  send_guests_home(replica, /*lost=*/true);
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
  if (replica == nullptr || replica->state != ReplicaPhase::kWarm || !open_engine(*replica)) {
    return false;
  }
  note("serve", reason, *replica);
  counts_.hits += reason == Reason::kHit ? 1 : 0;
  replica->state = ReplicaPhase::kStarting;
  replica->used = now_;
  replica->outstanding = 1 + (replica->phase == LoadPhase::kRest ? replica->outstanding : 0);
  phase_timer(*replica, std::max(after, Duration(1)));
  phase_step_done(id);
  return true;
}

void World::attach(ReplicaId id, Reason reason) {
  Replica* replica = find(id);
  if (replica == nullptr ||
      (replica->state != ReplicaPhase::kLoading && replica->state != ReplicaPhase::kWaiting)) {
    return;
  }
  note("attach", reason, *replica);
  ++counts_.attaches;
  replica->attached = true;
  replica->used = now_;
  replica->spec.link_class = LinkClass::kActivation;
  for (const TransferId transfer : replica->transfers) {
    const HostId host = transfer_owner_.at(transfer).host;
    links_[host.value()].reclassify(now_, transfer, LinkClass::kActivation);
    schedule_links(host);
  }
}

void World::drain(ReplicaId id, Reason reason) {
  Replica* replica = find(id);
  if (replica == nullptr || !replica->serves()) {
    return;
  }
  note("drain", reason, *replica);
  replica->state = ReplicaPhase::kDraining;
  if (replica->load() == 0) {
    drained(*replica);
  }
}

void World::drained(Replica& replica) {
  if (replica.merging > 0) {
    cancel_transfers(replica);
    replica.merging = 0;
  }
  close_engine(replica);
  replica.state = ReplicaPhase::kWarm;
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
  for (const Sequence& sequence : replica.engine->take_all(now_)) {
    LiveRequest& request = requests_[sequence.id.value()];
    request.generated = sequence.generated;
    request.dispatched = false;
    ++counts_.resubmissions;
    note("requeue", reason, replica, std::nullopt, request.number);
    notify({.kind = NoticeKind::kArrival,
            .request = LiveId(sequence.id.value()),
            .model = replica.model,
            .tag = 1});
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
  if (replica == nullptr || replica->state == ReplicaPhase::kEvicting) {
    return;
  }
  note("evict", reason, *replica, for_whom);
  ++counts_.evictions;
  requeue(*replica, reason);
  close_engine(*replica);
  cancel_transfers(*replica);
  if (replica->weights == LeaseId(0)) {
    return forget(*replica);
  }
  unmap(*replica);
}

/// Pages change hands only when they are unmapped, one mapper per GPU.
void World::unmap(Replica& replica) {
  replica.state = ReplicaPhase::kEvicting;
  ++replica.stamp;
  Duration longest{};
  for (const Stage& stage : replica.stages) {
    longest = std::max(longest,
                       from_seconds(host_spec(stage.spec.gpus[0]).startup.map_per_page *
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

/// The end of a replica: nothing of it is left but its id.
void World::forget(Replica& replica) {
  cancel_transfers(replica);
  close_engine(replica);
  for (const LeaseId lease : {replica.weights, replica.overhead, replica.kv}) {
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
  notify({.kind = NoticeKind::kGone,
          .replica = replica.id,
          .gpu = replica.gpus[0],
          .model = replica.model});
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

void World::set_value(ReplicaId id, double value) {
  if (Replica* replica = find(id); replica != nullptr) {
    replica->value = value;
  }
}

}  // namespace heddle::sim
