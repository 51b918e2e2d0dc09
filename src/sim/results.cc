#include "sim/results.h"

#include <algorithm>
#include <cmath>

namespace heddle::sim {
namespace {

constexpr std::size_t kBinsMost = 480;
constexpr std::size_t kMomentsMost = 400;
/// Actions that a story may have; a request that waits for longer is no clearer for more of them.
constexpr std::size_t kStoryMost = 4000;

float seconds(Duration duration) {
  return static_cast<float>(static_cast<double>(duration.count()) * 1e-9);
}

RequestRow row_of(const Outcome& outcome) {
  const LiveRequest& request = *outcome.request;
  return {.number = request.number,
          .model = request.model,
          .arrival = request.arrival,
          .input_tokens = request.prompt,
          .output_tokens = request.generated,
          .first_token = request.first_token,
          .finished = outcome.completed ? std::optional(outcome.ended) : std::nullopt,
          .preemptions = request.preemptions,
          .cold = request.waited_for_start};
}

}  // namespace

void Results::ended(const World& world, const Outcome& outcome) {
  models_.resize(world.models().size());
  const RequestRow row = row_of(outcome);
  PerModel& model = models_[row.model.value()];
  const ModelSpec& spec = world.model(row.model);
  ++model.requests;
  model.cold += row.cold ? 1 : 0;
  ++bin(row.arrival).arrivals;
  if (row.finished) {
    ++model.completed;
    const Duration ttft = *row.first_token - row.arrival;
    ttft_.push_back(seconds(ttft));
    model.ttft_met += spec.slo_ttft == Duration{} || ttft <= spec.slo_ttft ? 1 : 0;
    Duration tpot{};
    if (row.output_tokens > 1) {
      tpot = (*row.finished - *row.first_token) / (row.output_tokens - 1);
      tpot_.push_back(seconds(tpot));
    }
    model.tpot_met += spec.slo_tpot == Duration{} || tpot <= spec.slo_tpot ? 1 : 0;
  }
  if (options_.each) {
    options_.each(row);
  }
  if (options_.explain == row.number) {
    explained_ = row;
  }
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
    }
    bin_width_ *= 2;
    index /= 2;
  }
  bins_.resize(std::max(bins_.size(), index + 1));
  return bins_[index];
}

void Results::acted(const World& world, const Act& act) {
  const bool about_requests = act.verb == "dispatch" || act.verb == "reject";
  Bin& now = bin(act.at);
  now.loads += act.verb == "start" ? 1 : 0;
  now.hits += act.verb == "serve" && act.reason == Reason::kHit ? 1 : 0;
  now.evictions += act.verb == "evict" ? 1 : 0;
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
  if (options_.explain && !explained_ && story_.size() < kStoryMost &&
      (!about_requests || act.request == options_.explain)) {
    story_.push_back(act);
  }
}

void Results::sampled(const World& world, Instant at) {
  if (!options_.timeline || samples_seen_++ % sample_every_ != 0) {
    return;
  }
  Moment moment{.at = at};
  for (const Gpu& gpu : world.gpus()) {
    const ledger::PoolUsage usage = world.memory().ledger().usage(ledger::device_pool(gpu.id));
    const auto of = [&](LeaseKind kind) {
      return static_cast<std::int32_t>(usage.of(kind).reserved);
    };
    moment.gpus.push_back(
        {.weights_active = of(LeaseKind::kWeightsActive) + of(LeaseKind::kShardPipe),
         .weights_warm = of(LeaseKind::kWeightsWarm) + of(LeaseKind::kWeightsIdle),
         .kv_own = of(LeaseKind::kKvOwn),
         .kv_guest = of(LeaseKind::kKvGuest),
         .other = of(LeaseKind::kOverhead)});
  }
  timeline_.push_back(std::move(moment));
  if (timeline_.size() > kMomentsMost) {
    for (std::size_t i = 0; i * 2 < timeline_.size(); ++i) {
      timeline_[i] = std::move(timeline_[i * 2]);
    }
    timeline_.resize((timeline_.size() + 1) / 2);
    sample_every_ *= 2;
  }
}

void Results::finish(const World& world) {
  models_.resize(world.models().size());
  std::sort(ttft_.begin(), ttft_.end());
  std::sort(tpot_.begin(), tpot_.end());
  counts_ = world.counts();
  span_ = world.now().time_since_epoch();
  digest_ = world.digest();
  gpu_seconds_ = world.gpu_seconds();
  gpu_count_ = world.gpus().size();
  touched_ = static_cast<std::size_t>(std::count(gpu_touched_.begin(), gpu_touched_.end(), true));
  constexpr double kGib = 1 << 30;
  for (std::size_t kind = 0; kind < ledger::kLeaseKinds; ++kind) {
    gib_seconds_.at(kind) = world.memory().page_seconds(world.now(), static_cast<LeaseKind>(kind)) *
                            static_cast<double>(world.page_bytes()) / kGib;
  }
}

Distribution Results::distribution(const std::vector<float>& values) {
  if (values.empty()) {
    return {};
  }
  const auto rank = [&](double part) {
    const auto count = static_cast<double>(values.size());
    const auto index = static_cast<std::size_t>(std::ceil(part * count)) - 1;
    return static_cast<double>(values[std::min(index, values.size() - 1)]);
  };
  double sum = 0;
  for (const float value : values) {
    sum += static_cast<double>(value);
  }
  return {.count = values.size(),
          .mean = sum / static_cast<double>(values.size()),
          .p50 = rank(0.50),
          .p95 = rank(0.95),
          .p99 = rank(0.99),
          .most = static_cast<double>(values.back())};
}

std::vector<float> Results::curve(const std::vector<float>& values, std::size_t points) {
  std::vector<float> made;
  for (std::size_t i = 0; i < points && !values.empty(); ++i) {
    made.push_back(values[i * (values.size() - 1) / (points - 1)]);
  }
  return made;
}

double Results::ttft_attainment() const {
  std::int64_t met = 0;
  std::int64_t all = 0;
  for (const PerModel& model : models_) {
    met += model.ttft_met;
    all += model.requests;
  }
  return all == 0 ? 1 : static_cast<double>(met) / static_cast<double>(all);
}

double Results::tpot_attainment() const {
  std::int64_t met = 0;
  std::int64_t all = 0;
  for (const PerModel& model : models_) {
    met += model.tpot_met;
    all += model.requests;
  }
  return all == 0 ? 1 : static_cast<double>(met) / static_cast<double>(all);
}

}  // namespace heddle::sim
