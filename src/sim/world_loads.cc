#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "sim/world.h"

namespace heddle::sim {

void World::phase_timer(Replica& replica, Duration after) {
  if (after > Duration{}) {
    ++replica.outstanding;
    queue_.push(now_ + after,
                {.kind = EventKind::kPhase,
                 .index = static_cast<std::uint32_t>(replica.id.value()),
                 .stamp = replica.stamp});
  }
}

void World::begin_phase(Replica& replica, LoadPhase phase) {
  const StartSpec& spec = replica.spec;
  replica.phase = phase;
  replica.outstanding = 1;  // So that what ends at once does not end the phase.
  const double bytes = static_cast<double>(model(replica.model).weight_bytes());
  switch (phase) {
    case LoadPhase::kBefore:
      phase_timer(replica, spec.before);
      break;
    case LoadPhase::kFetch: {
      phase_timer(replica, spec.beside - spec.before);
      fetch(replica, std::max(0.0, spec.start_part - spec.present), spec.link_class);
      const double spread = host_spec(replica.gpus[0]).links.spread;
      if (spec.source == WeightSource::kSpread && spread > 0) {
        phase_timer(replica, from_seconds(bytes * spec.start_part / spread));
      }
      break;
    }
    case LoadPhase::kCopy:
      for (const Stage& stage : replica.stages) {
        if (!spec.stream) {
          const double part = std::max(0.0, spec.start_part - spec.present);
          copy(replica, stage, std::nullopt, bytes * part * stage.spec.weights, spec.link_class);
        }
      }
      break;
    case LoadPhase::kAfter: {
      double largest = 0;
      for (const StageSpec& stage : spec.stages) {
        largest = std::max(largest, stage.weights);
      }
      phase_timer(replica, spec.after + from_seconds(spec.per_byte * bytes * largest));
      break;
    }
    default:
      break;
  }
  phase_step_done(replica.id);
}

/// Starts the transfers that bring `part` of the weights to the server, and, where a load streams,
/// on to the GPUs.
void World::fetch(Replica& replica, double part, LinkClass link_class) {
  const double bytes = static_cast<double>(model(replica.model).weight_bytes()) * part;
  const WeightSource source = replica.spec.source;
  if (source == WeightSource::kNothing) {
    return;
  }
  for (const Stage& stage : replica.stages) {
    const double share = bytes * stage.spec.weights;
    const Host& host = hosts_[gpus_[stage.spec.gpus[0].value()].host.value()];
    if (source == WeightSource::kHost || source == WeightSource::kSpread) {
      touch_image(host.id, replica.model);
    }
    if (source == WeightSource::kSpread) {
      counts_.bytes_loaded += share;
      add_transfer(replica, host.id, {host.memory, host.nvlink}, share, link_class);
      continue;
    }
    const LinkId from = source == WeightSource::kRemote ? host.nic
                        : source == WeightSource::kDisk ? host.disk
                                                        : host.memory;
    counts_.bytes_fetched += source == WeightSource::kRemote ? share : 0;
    if (replica.spec.stream) {
      copy(replica, stage, from, share, link_class);
    } else {
      add_transfer(replica, host.id, {from}, share, link_class);
    }
  }
}

/// Moves a stage's `bytes` to its GPUs, an equal part to each; from a link of their server, or from
/// its memory, where they lie already.
void World::copy(Replica& replica,
                 const Stage& stage,
                 std::optional<LinkId> from,
                 double bytes,
                 LinkClass link_class) {
  const double each = bytes / static_cast<double>(stage.spec.gpus.size());
  for (const GpuId id : stage.spec.gpus) {
    const Gpu& gpu = gpus_[id.value()];
    std::vector<LinkId> path{gpu.pcie};
    if (from) {
      path.push_back(*from);
    }
    add_transfer(replica, gpu.host, std::move(path), each, link_class);
    counts_.bytes_loaded += each;
  }
}

void World::add_transfer(
    Replica& replica, HostId host, std::vector<LinkId> path, double bytes, LinkClass link_class) {
  // A link of no stated speed holds nobody up.
  std::erase_if(path, [&](LinkId link) { return link_rate(host, link) <= 0; });
  if (bytes <= 0 || path.empty()) {
    return;
  }
  const TransferId id(++transfers_given_);
  transfer_owner_.emplace(id, TransferOwner{.replica = replica.id, .host = host});
  replica.transfers.push_back(id);
  ++replica.outstanding;
  links_[host.value()].start(now_,
                             bytes,
                             {.id = id,
                              .link_class = link_class,
                              .deadline = replica.spec.deadline,
                              .path = std::move(path)});
  schedule_links(host);
}

void World::schedule_links(HostId host) {
  const std::optional<Instant> next = links_[host.value()].next_done();
  const std::uint64_t stamp = ++link_stamps_[host.value()];
  if (next) {
    queue_.push(std::max(*next, now_),
                {.kind = EventKind::kLinks,
                 .index = static_cast<std::uint32_t>(host.value()),
                 .stamp = stamp});
  }
}

void World::links_event(HostId host, std::uint64_t stamp) {
  if (stamp != link_stamps_[host.value()]) {
    return;
  }
  for (const TransferId id : links_[host.value()].take_done(now_)) {
    const ReplicaId owner = transfer_owner_.at(id).replica;
    transfer_owner_.erase(id);
    std::erase(at(owner).transfers, id);
    phase_step_done(owner);
  }
  schedule_links(host);
}

void World::phase_step_done(ReplicaId id) {
  Replica& replica = at(id);
  if (--replica.outstanding > 0) {
    return;
  }
  if (replica.state == ReplicaPhase::kStarting) {
    replica.state = ReplicaPhase::kServing;
    replica.serving_since = now_;
    return notify({.kind = NoticeKind::kServing, .replica = id, .model = replica.model});
  }
  switch (replica.phase) {
    case LoadPhase::kBefore:
    case LoadPhase::kFetch:
    case LoadPhase::kCopy:
      return begin_phase(replica, static_cast<LoadPhase>(static_cast<int>(replica.phase) + 1));
    case LoadPhase::kAfter:
      return loaded(replica);
    case LoadPhase::kRest:
      replica.loaded = 1;
      return;
    default:
      return merged(replica);
  }
}

void World::loaded(Replica& replica) {
  progressed();
  replica.loaded = replica.spec.start_part;
  replica.filled = now_;
  if (replica.spec.cache_image) {
    for (const Stage& stage : replica.stages) {
      cache(gpus_[stage.spec.gpus[0].value()].host, replica.model);
    }
  }
  const bool serve = replica.spec.serve || replica.attached;
  if (serve && open_engine(replica)) {
    replica.state = ReplicaPhase::kServing;
    replica.serving_since = now_;
    notify({.kind = NoticeKind::kServing, .replica = replica.id, .model = replica.model});
  } else {
    replica.state = ReplicaPhase::kWarm;
    notify({.kind = NoticeKind::kWarm, .replica = replica.id, .model = replica.model});
  }
  if (replica.loaded < 1) {
    replica.phase = LoadPhase::kRest;
    replica.outstanding = 1;
    fetch(replica, 1 - replica.loaded, replica.spec.link_class);
    phase_step_done(replica.id);
  }
}

void World::cancel_transfers(Replica& replica) {
  for (const TransferId id : replica.transfers) {
    const HostId host = transfer_owner_.at(id).host;
    links_[host.value()].cancel(now_, id);
    schedule_links(host);
    transfer_owner_.erase(id);
  }
  replica.transfers.clear();
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

/// What lies in host memory when time begins: nothing is put out for it again.
void World::fill_host_memory() {
  for (const Host& host : hosts_) {
    for (const ModelId model : options_.in_host_memory) {
      if (memory_.free(host_pool(host.id)) >=
          pages(static_cast<double>(this->model(model).weight_bytes()))) {
        cache(host.id, model);
      }
    }
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
  replica->phase = LoadPhase::kMerge;
  replica->outstanding = 1;
  const Stage& kept = replica->stages[stage];
  const Host& host = hosts_[gpus_[kept.spec.gpus[0].value()].host.value()];
  const double bytes =
      static_cast<double>(model(replica->model).weight_bytes()) * (1 - kept.spec.weights);
  const bool local = cached(host.id, replica->model);
  copy(*replica, kept, local ? host.memory : host.nic, bytes, LinkClass::kConsolidation);
  counts_.bytes_fetched += local ? 0 : bytes;
  phase_step_done(id);
}

/// The weights of a pipeline are whole on one worker: its requests' KV moves there, which they
/// wait for, and the others go.
void World::merged(Replica& replica) {
  const Stage kept = replica.stages[replica.merging - 1];
  const ModelSpec& spec = model(replica.model);
  replica.engine->settle(now_);
  double tokens = 0;
  for (const Sequence& sequence : replica.engine->running_sequences()) {
    tokens += static_cast<double>(sequence.computed);
  }
  const double bytes = tokens * static_cast<double>(spec.kv_bytes()) * (1 - kept.spec.weights);
  const Host& host = hosts_[gpus_[kept.spec.gpus[0].value()].host.value()];
  const double rate = links_[host.id.value()].rate(host.nic);
  counts_.bytes_kv_moved += bytes;
  replica.engine->interrupt(now_);
  if (bytes > 0 && rate > 0) {
    replica.engine->pause(from_seconds(bytes / rate));
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
      again.link_class = LinkClass::kConsolidation;
      start(again, Reason::kScaleUp);
    }
  }
  for (const GpuId gpu : left) {
    retry_waiting(gpu);
  }
}

}  // namespace heddle::sim
