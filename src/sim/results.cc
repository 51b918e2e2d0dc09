#include "sim/results.h"

#include <algorithm>
#include <cmath>

namespace heddle::sim {
namespace {

constexpr std::size_t kBinsMost = 480;
constexpr std::size_t kMomentsMost = 820;

RequestRow row_of(const Outcome& outcome) {
  const LiveRequest& request = *outcome.request;
  return {.number = request.number,
          .model = request.model,
          .arrival = request.arrival,
          .input_tokens = request.prompt,
          .output_tokens = request.generated,
          .first_token = request.first_token,
          .finished =
              outcome.end == RequestEnd::kCompleted ? std::optional(outcome.ended) : std::nullopt,
          .end = outcome.end,
          .preemptions = request.preemptions,
          .cold = request.waited_for_start};
}

/// What each model has of a GPU, by model and use.
std::vector<OwnedPages> owners(const World& world, const Gpu& gpu) {
  std::map<std::pair<ModelId, PageUse>, std::int64_t> pages;
  const PoolId pool = ledger::device_pool(gpu.id);
  const Memory& memory = world.memory();
  for (const ReplicaId id : gpu.replicas) {
    const Replica& replica = *world.replica(id);
    const bool works = replica.engine != nullptr || replica.spec.serve || replica.attached;
    pages[{replica.model,
           works && replica.state != ReplicaPhase::kWarm ? PageUse::kWeights : PageUse::kWarm}] +=
        memory.reserved(replica.weights, pool);
    pages[{replica.model, PageUse::kKv}] += memory.reserved(replica.kv, pool);
    pages[{replica.model, PageUse::kOther}] += memory.reserved(replica.overhead, pool);
  }
  for (const ReplicaId id : gpu.hosts) {
    const Replica& hot = *world.replica(id);
    pages[{hot.model, PageUse::kKv}] += memory.reserved(hot.guest_kv, pool);
  }
  std::vector<OwnedPages> made;
  for (const auto& [owner, count] : pages) {
    if (count > 0) {
      made.push_back(
          {.model = owner.first, .use = owner.second, .pages = static_cast<std::int32_t>(count)});
    }
  }
  return made;
}

}  // namespace

Results::Results(Options options) : options_(std::move(options)) {
  if (options_.explain) {
    explanation_.emplace(*options_.explain);
  }
}

void Results::ended(const World& world, const Outcome& outcome) {
  const RequestRow row = row_of(outcome);
  const ModelSpec& spec = world.model(row.model);
  if (row.arrival >= Instant(options_.warmup)) {
    ++ended_.arrived;
    ++(row.end == RequestEnd::kCompleted ? ended_.completed
       : row.end == RequestEnd::kRefused ? ended_.refused
                                         : ended_.unserved);
    add(row, {.ttft = spec.slo_ttft, .tpot = spec.slo_tpot});
  }
  if (explanation_) {
    explanation_->ended(world, row);
  }
}

Results::Start Results::counted(const World& world) {
  constexpr double kGib = 1 << 30;
  Start start{.at = world.now(), .counts = world.counts(), .gpu_seconds = world.gpu_seconds()};
  for (std::size_t kind = 0; kind < ledger::kLeaseKinds; ++kind) {
    start.gib_seconds.at(kind) =
        world.memory().page_seconds(world.now(), static_cast<LeaseKind>(kind)) *
        static_cast<double>(world.page_bytes()) / kGib;
  }
  return start;
}

/// What happened since is what counts; GPUs that hold something are in use from the beginning.
void Results::counting(const World& world) {
  start_ = counted(world);
  gpu_touched_.assign(world.gpus().size(), false);
  for (const Gpu& gpu : world.gpus()) {
    gpu_touched_[gpu.id.value()] = !gpu.replicas.empty();
  }
}

void Results::add(const RequestRow& row, const Objective& objective) {
  models_.resize(std::max<std::size_t>(models_.size(), row.model.value() + 1));
  PerModel& model = models_[row.model.value()];
  ++model.requests;
  model.cold += row.cold ? 1 : 0;
  Bin& then = bin(row.arrival);
  ++then.arrivals;
  const Met what = met(row, objective);
  if (what.ttft) {
    ++model.completed;
    ttft_.add(to_seconds(*what.ttft));
  }
  if (what.tpot) {
    tpot_.add(to_seconds(*what.tpot));
  }
  model.ttft_met += what.in_time ? 1 : 0;
  model.tpot_met += what.in_pace ? 1 : 0;
  model.both_met += what.both() ? 1 : 0;
  then.met += what.both() ? 1 : 0;
  if (options_.each) {
    options_.each(row);
  }
}

void Results::count(Instant at, std::int32_t loads, std::int32_t hits, std::int32_t evictions) {
  Bin& then = bin(at);
  then.loads += loads;
  then.hits += hits;
  then.evictions += evictions;
}

/// Doubles the width of the bins when time has outgrown them.
Results::Bin& Results::bin(Instant at) {
  auto index = static_cast<std::size_t>(at.time_since_epoch() / bin_width_);
  while (index >= kBinsMost) {
    for (std::size_t i = 0; i < bins_.size(); ++i) {
      Bin& into = bins_[i / 2];
      const Bin from = std::exchange(bins_[i], Bin{});
      into.loads += from.loads;
      into.hits += from.hits;
      into.evictions += from.evictions;
      into.arrivals += from.arrivals;
      into.met += from.met;
    }
    bins_.resize((bins_.size() + 1) / 2);
    bin_width_ *= 2;
    index /= 2;
  }
  bins_.resize(std::max(bins_.size(), index + 1));
  return bins_[index];
}

void Results::acted(const World& world, const Act& act) {
  if (explanation_) {
    explanation_->acted(world, act);
  }
  if (act.at < Instant(options_.warmup)) {
    return;
  }
  const bool about_requests = act.verb == "dispatch" || act.verb == "reject";
  count(act.at,
        act.verb == "start" ? 1 : 0,
        act.verb == "serve" && act.reason == Reason::kHit ? 1 : 0,
        act.verb == "evict" ? 1 : 0);
  if (act.verb == "evict" && act.other) {
    ++evicted_for_[{act.model, *act.other}];
  }
  if (!about_requests) {
    ++acts_[{std::string(act.verb), std::string(name(act.reason))}];
  }
  if (act.gpu && act.verb == "start") {
    gpu_touched_.resize(world.gpus().size());
    for (const GpuId gpu : world.replica(act.replica)->gpus) {
      gpu_touched_[gpu.value()] = true;
    }
  }
}

void Results::sampled(const World& world, Instant at) {
  if (!options_.timeline || samples_seen_++ % sample_every_ != 0) {
    return;
  }
  Moment moment{.at = at};
  for (std::size_t i = 0; i < std::min(world.gpus().size(), kGpusShown); ++i) {
    moment.gpus.push_back(owners(world, world.gpus()[i]));
  }
  timeline_.push_back(std::move(moment));
  if (timeline_.size() > kMomentsMost) {
    for (std::size_t i = 1; i * 2 < timeline_.size(); ++i) {
      timeline_[i] = std::move(timeline_[i * 2]);
    }
    timeline_.resize((timeline_.size() + 1) / 2);
    sample_every_ *= 2;
  }
}

void Results::finish(const World& world) {
  models_.resize(world.models().size());
  forecast_error_ = world.plane().forecast_error();
  for (const Gpu& gpu : world.gpus()) {
    gpu_pages_.push_back(gpu.pages);
  }
  const Start now = counted(world);
  counts_ = now.counts - start_.counts;
  counts_.arrived = ended_.arrived;
  counts_.completed = ended_.completed;
  counts_.refused = ended_.refused;
  counts_.unserved = ended_.unserved;
  end_ = world.end();
  span_ = now.at - start_.at;
  digest_ = world.digest();
  gpu_seconds_ = now.gpu_seconds - start_.gpu_seconds;
  touched_ = static_cast<std::size_t>(std::count(gpu_touched_.begin(), gpu_touched_.end(), true));
  for (std::size_t kind = 0; kind < ledger::kLeaseKinds; ++kind) {
    gib_seconds_.at(kind) = now.gib_seconds.at(kind) - start_.gib_seconds.at(kind);
  }
}

void Results::finish(const Ending& ending) {
  models_.resize(std::max(models_.size(), ending.models));
  gpu_pages_ = ending.gpu_pages;
  counts_ = ending.counts;
  span_ = ending.span;
  gpu_seconds_ = ending.gpu_seconds;
  touched_ = ending.gpus_touched;
  gib_seconds_ = ending.gib_seconds;
}

double Results::part_of_all(std::int64_t PerModel::* met) const {
  std::int64_t sum = 0;
  std::int64_t all = 0;
  for (const PerModel& model : models_) {
    sum += model.*met;
    all += model.requests;
  }
  return all == 0 ? 1 : static_cast<double>(sum) / static_cast<double>(all);
}

double Results::ttft_attainment() const {
  return part_of_all(&PerModel::ttft_met);
}

double Results::tpot_attainment() const {
  return part_of_all(&PerModel::tpot_met);
}

double Results::attainment() const {
  return part_of_all(&PerModel::both_met);
}

}  // namespace heddle::sim
