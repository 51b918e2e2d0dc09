#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "sim/world.h"

namespace heddle::sim {
namespace {

/// Leases are given back when they exceed what is used by this part, so that they do not change
/// with every block.
constexpr std::int64_t kSlackPart = 8;
/// A neighbour is told again when an engine's GPU time has changed by this part.
constexpr std::int64_t kChangePart = 5;

std::int64_t blocks_in(double pages, double page_bytes, double block_bytes) {
  return static_cast<std::int64_t>(pages * page_bytes / block_bytes);
}

}  // namespace

/// The pages behind one replica's engine.
class World::Budget final : public KvBudget {
 public:
  Budget(World& world, Replica& replica) : world_(world), replica_(replica) {}
  std::int64_t reserve(KvPlace place, std::int64_t blocks, bool whole) override {
    return world_.reserve_kv(replica_, place, blocks, whole);
  }
  [[nodiscard]] KvRoom room(KvPlace place) const override {
    return world_.kv_room(replica_, place);
  }

 private:
  World& world_;
  Replica& replica_;
};

bool World::dispatch(LiveId id, ReplicaId to, Reason reason) {
  Replica* replica = find(to);
  LiveRequest& request = requests_[id.value()];
  if (replica == nullptr || !replica->serves()) {
    return false;
  }
  HEDDLE_CHECK(request.live);
  HEDDLE_CHECK(!request.dispatched);
  HEDDLE_CHECK(request.model == replica->model);
  std::int64_t room = INT64_MAX;
  for (const Stage& stage : replica->stages) {
    const Gpu& gpu = gpus_[stage.spec.gpus[0].value()];
    std::int64_t pages = gpu.pages - stage.weight_pages - overhead_pages(replica->model);
    pages = replica->kv_limit >= 0 ? std::min(pages, replica->kv_limit) : pages;
    room = std::min(room,
                    blocks_in(static_cast<double>(pages),
                              static_cast<double>(page_bytes()),
                              stage.kv_bytes_per_block));
  }
  if (room * EngineOptions{}.tokens_per_block < request.prompt + request.generate) {
    reject(id, Reason::kTooLarge);
    return true;
  }
  KvPlace place = KvPlace::kOwn;
  if (replica->guest_host) {
    replica->guest_debt += replica->guest_share;
    if (replica->guest_debt >= 1) {
      replica->guest_debt -= 1;
      place = KvPlace::kGuest;
    }
  }
  note("dispatch", reason, *replica, std::nullopt, request.number);
  request.dispatched = true;
  request.replica = to;
  replica->used = now_;
  replica->engine->add(now_,
                       {.id = SequenceId(id.value()),
                        .arrived = request.arrival,
                        .prompt = request.prompt,
                        .generate = request.generate,
                        .generated = request.generated,
                        .place = place});
  schedule_engine(*replica);
  return true;
}

void World::schedule_engine(Replica& replica) {
  const std::optional<Instant> boundary = replica.engine->boundary();
  if (!boundary) {
    ++replica.stamp;
    replica.scheduled = {};
    return;
  }
  if (*boundary == replica.scheduled && *boundary > now_) {
    return;
  }
  replica.scheduled = *boundary;
  queue_.push(std::max(*boundary, now_),
              {.kind = EventKind::kEngine,
               .index = static_cast<std::uint32_t>(replica.id.value()),
               .stamp = ++replica.stamp});
}

void World::engine_event(ReplicaId id, std::uint64_t stamp) {
  Replica* replica = find(id);
  if (replica == nullptr || !replica->engine || replica->stamp != stamp) {
    return;
  }
  replica->scheduled = {};
  Budget budget(*this, *replica);
  EngineOutputs outputs;
  const std::int64_t before = replica->engine->tokens_done();
  replica->engine->finish_run(now_, budget, outputs);
  if (replica->engine->tokens_done() > before) {
    token_at_ = now_;
    progressed();
  }
  handle_outputs(*replica, outputs);
  publish(*replica);
  schedule_engine(*replica);
  if (outputs.starved) {
    relieve(*replica);
  }
  if (replica->state == ReplicaPhase::kDraining && replica->load() == 0) {
    drained(*replica);
  }
}

void World::handle_outputs(Replica& replica, const EngineOutputs& outputs) {
  for (const SequenceId id : outputs.first_tokens) {
    LiveRequest& request = requests_[id.value()];
    if (!request.first_token) {
      request.first_token = now_;
      notify({.kind = NoticeKind::kFirstToken,
              .request = LiveId(id.value()),
              .replica = replica.id,
              .model = replica.model});
    }
  }
  if (outputs.moved > 0) {
    counts_.bytes_kv_moved +=
        static_cast<double>(outputs.moved) * static_cast<double>(model(replica.model).kv_bytes());
    time_guests(replica);
  }
  for (const SequenceId id : outputs.preempted) {
    ++requests_[id.value()].preemptions;
    ++counts_.preemptions;
  }
  for (const SequenceId id : outputs.finished) {
    LiveRequest& request = requests_[id.value()];
    request.generated = request.generate;
    if (!request.first_token) {
      request.first_token = now_;
    }
    ++counts_.completed;
    replica.used = now_;
    end_request(LiveId(id.value()), RequestEnd::kCompleted);
    notify({.kind = NoticeKind::kFinished,
            .request = LiveId(id.value()),
            .replica = replica.id,
            .model = replica.model});
  }
}

/// Tells the engines that share a GPU with this one how much of it this one takes, when that has
/// changed by more than a little.
void World::publish(Replica& replica) {
  const std::int64_t now_ps = replica.engine ? replica.engine->gpu_ps() : 0;
  const std::int64_t before = replica.published_ps;
  const bool turned = (now_ps == 0) != (before == 0);
  if (!turned && std::abs(now_ps - before) * kChangePart <= before) {
    return;
  }
  replica.published_ps = now_ps;
  for (const GpuId id : replica.gpus) {
    Gpu& gpu = gpus_[id.value()];
    if (turned && now_ps > 0) {
      gpu.active.push_back(replica.id);
    } else if (turned) {
      std::erase(gpu.active, replica.id);
    }
    for (const ReplicaId other : gpu.active) {
      if (other != replica.id) {
        Replica& neighbour = at(other);
        set_conditions(neighbour);
        neighbour.engine->interrupt(now_);
        schedule_engine(neighbour);
      }
    }
  }
  if (replica.engine) {
    set_conditions(replica);
  }
  if (replica.guest_host) {
    time_guests(replica);
  }
  for (const GpuId gpu : replica.gpus) {
    for (const ReplicaId hot : gpus_[gpu.value()].hosts) {
      time_guests(at(hot));  // They meet other kernels.
    }
  }
}

/// What a replica's engine has to know of others on its GPUs.
void World::set_conditions(Replica& replica) {
  if (sharing_ == ComputeSharing::kAddUp || sharing_ == ComputeSharing::kTurns) {
    const double part =
        sharing_ == ComputeSharing::kTurns ? 1 : host_spec(replica.gpus[0]).gpu.co_running;
    std::int64_t most = 0;
    for (const GpuId gpu : replica.gpus) {
      std::int64_t sum = 0;
      for (const ReplicaId other : gpus_[gpu.value()].active) {
        sum += other == replica.id ? 0 : at(other).published_ps;
      }
      most = std::max(most, sum);
    }
    replica.engine->set_neighbours(static_cast<std::int64_t>(static_cast<double>(most) * part));
  }
  set_pace(replica);
}

/// A pipeline's step is the sum of its stages' and the hops between them; a stage with a part of a
/// GPU's compute is slower by that part, and one beside guests by theirs.
void World::set_pace(Replica& replica) {
  double scale = 0;
  Duration guests{};
  for (const Stage& stage : replica.stages) {
    double share = replica.spec.compute_share;
    const Gpu& gpu = gpus_[stage.spec.gpus[0].value()];
    const auto others = std::count_if(
        gpu.active.begin(), gpu.active.end(), [&](ReplicaId each) { return each != replica.id; });
    if (sharing_ == ComputeSharing::kByMemory && others > 0) {
      const PoolId pool = ledger::device_pool(gpu.id);
      const std::int64_t kv = std::max(memory_.reserved(replica.kv, pool), replica.kv_limit);
      const std::int64_t own =
          memory_.reserved(replica.weights, pool) + kv + memory_.reserved(replica.overhead, pool);
      share *= std::clamp(static_cast<double>(own) / static_cast<double>(gpu.pages), 0.05, 1.0);
    }
    for (const ReplicaId hot : gpu.hosts) {
      guests = std::max(guests, at(hot).guest_overhead);
    }
    scale += stage.spec.weights / share / (1 - guests_on(gpu));
  }
  const double hops = replica.stages.size() < 2 ? 0
                                                : host_spec(replica.gpus[0]).startup.hop *
                                                      static_cast<double>(replica.stages.size());
  replica.engine->set_pace(scale, from_seconds(hops) + guests);
}

/// Whether a KV lease could be grown to `blocks` on every GPU of `stages` now. Where not, warm
/// weights begin to be evicted.
bool World::room_for(const Replica& replica,
                     LeaseId lease,
                     const std::vector<Stage>& stages,
                     std::int64_t blocks,
                     std::int64_t limit) {
  bool room = true;
  for (const Stage& stage : stages) {
    const std::int64_t want = pages(static_cast<double>(blocks) * stage.kv_bytes_per_block);
    for (const GpuId gpu : stage.spec.gpus) {
      const PoolId pool = ledger::device_pool(gpu);
      const std::int64_t more = want - memory_.reserved(lease, pool);
      if (more <= 0) {
        continue;
      }
      const bool short_of_pages = memory_.free(pool) < more;
      if (short_of_pages) {
        revoke_warm(gpu, replica.model);
      }
      room = room && !short_of_pages && (limit < 0 || want <= limit) && !outranked(replica, gpu);
    }
  }
  return room;
}

/// Moves a KV lease towards `blocks` on every GPU of `stages`; returns the blocks it has then.
std::int64_t World::resize_kv(Replica& replica,
                              LeaseId lease,
                              const std::vector<Stage>& stages,
                              std::int64_t blocks,
                              std::int64_t limit,
                              bool whole) {
  const bool may_grow = !whole || room_for(replica, lease, stages, blocks, limit);
  std::int64_t have = INT64_MAX;
  for (const Stage& stage : stages) {
    std::int64_t want = pages(static_cast<double>(blocks) * stage.kv_bytes_per_block);
    want = limit < 0 ? want : replica.spec.kv_kept ? limit : std::min(want, limit);
    for (const GpuId gpu : stage.spec.gpus) {
      const PoolId pool = ledger::device_pool(gpu);
      const std::int64_t reserved = memory_.reserved(lease, pool);
      const bool wanted =
          !starved_[gpu.value()].empty() || !waiting_for_pages_[gpu.value()].empty();
      if (want > reserved && may_grow && !outranked(replica, gpu)) {
        const std::int64_t free = memory_.free(pool);
        if (free < want - reserved) {
          revoke_warm(gpu, replica.model);
        }
        memory_.grow(now_, lease, pool, std::min(free, want - reserved));
      } else if (reserved > want &&
                 reserved - want > (wanted || want == 0 ? 0 : want / kSlackPart)) {
        memory_.shrink(now_, lease, pool, reserved - want);
        if (wanted) {
          retry_waiting(gpu);
        }
      }
      have = std::min(have,
                      blocks_in(static_cast<double>(memory_.reserved(lease, pool)),
                                static_cast<double>(page_bytes()),
                                stage.kv_bytes_per_block));
    }
  }
  return have;
}

/// Whether pages that come free on a GPU are for another engine there: one that cannot do anything
/// for the lack of them, with an older request. Else what it was given by preemption would go back
/// to whom it was taken from.
bool World::outranked(const Replica& replica, GpuId gpu) {
  const std::set<ReplicaId>& starved = starved_[gpu.value()];
  if (starved.empty() || replica.engine->load() == 0) {
    return false;
  }
  const auto rank = [this](ReplicaId id) { return std::pair(at(id).engine->oldest(), id); };
  return std::any_of(starved.begin(), starved.end(), [&](ReplicaId id) {
    return at(id).engine->load() > 0 && rank(id) < rank(replica.id);
  });
}

/// Lets the warm replica of least value on a GPU go, unless one is going already.
bool World::revoke_warm(GpuId gpu, ModelId for_whom) {
  const Replica* least = nullptr;
  for (const ReplicaId id : gpus_[gpu.value()].replicas) {
    const Replica& each = at(id);
    if (each.state == ReplicaPhase::kEvicting) {
      return true;
    }
    const bool idle =
        each.state == ReplicaPhase::kWarm ||
        (each.serves() && each.spec.revocable_idle && each.load() == 0 && each.model != for_whom) ||
        (each.state == ReplicaPhase::kLoading && !each.spec.serve && !each.attached);
    if (idle && (least == nullptr || each.value < least->value)) {
      least = &each;
    }
  }
  if (least == nullptr) {
    return false;
  }
  evict(least->id, Reason::kMakeRoom, for_whom);
  return true;
}

/// An engine has work and no pages: warm weights go first, then the newest request of the GPU,
/// never the oldest; else the control plane has to know.
void World::relieve(Replica& replica) {
  bool coming = false;
  for (const GpuId gpu : replica.gpus) {
    starved_[gpu.value()].insert(replica.id);
    coming = revoke_warm(gpu, replica.model) || coming;
  }
  if (coming) {
    return;
  }
  for (const GpuId gpu : replica.gpus) {
    if (recall_guests(gpu, Reason::kMakeRoom)) {
      return;
    }
  }
  Replica* newest = nullptr;
  Instant when = replica.engine->oldest();
  for (const GpuId gpu : replica.gpus) {
    for (const ReplicaId id : gpus_[gpu.value()].replicas) {
      Replica& other = at(id);
      if (id == replica.id || !other.engine) {
        continue;
      }
      for (const Sequence& sequence : other.engine->running_sequences()) {
        if (sequence.arrived > when) {
          when = sequence.arrived;
          newest = &other;
        }
      }
    }
  }
  if (newest == nullptr) {
    return notify({.kind = NoticeKind::kStarved, .replica = replica.id, .model = replica.model});
  }
  for (const KvPlace place : {KvPlace::kOwn, KvPlace::kGuest}) {
    if (const auto victim = newest->engine->preempt_newest(now_, place)) {
      ++requests_[victim->value()].preemptions;
      ++counts_.preemptions;
      note("preempt", Reason::kMakeRoom, *newest, replica.model, requests_[victim->value()].number);
      newest->engine->wake(now_);
      return schedule_engine(*newest);
    }
  }
}

void World::wake_starved(GpuId gpu) {
  const std::set<ReplicaId> starved = std::exchange(starved_[gpu.value()], {});
  for (const ReplicaId id : starved) {
    Replica& replica = at(id);
    if (replica.engine && replica.engine->starved()) {
      replica.engine->wake(now_);
      schedule_engine(replica);
    }
  }
}

void World::set_kv_limit(ReplicaId id, std::int64_t pages, Reason reason) {
  Replica* replica = find(id);
  if (replica == nullptr || replica->kv_limit == pages) {
    return;
  }
  note("set_kv_limit", reason, *replica);
  replica->kv_limit = pages;
  if (replica->engine) {
    replica->engine->wake(now_);
    schedule_engine(*replica);
  }
}

}  // namespace heddle::sim
