#include "cli/capacity_replay.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "base/clock.h"
#include "base/thread.h"
#include "sim/results.h"
#include "sim/world.h"

namespace heddle::cli {
namespace {

constexpr Duration kBetweenLooks = std::chrono::milliseconds(200);

void take_less(std::optional<Duration>& least, const std::optional<Duration>& value) {
  if (value) {
    least = least ? std::min(*least, *value) : value;
  }
}

/// The same reasons together, the most requests first.
void merge(std::vector<NeverServed>& all, std::vector<NeverServed>&& others) {
  for (NeverServed& each : others) {
    const auto found = std::ranges::find(all, each.why, &NeverServed::why);
    if (found == all.end()) {
      all.push_back(std::move(each));
      continue;
    }
    found->requests += each.requests;
    for (std::string& model : each.models) {
      if (std::ranges::find(found->models, model) == found->models.end()) {
        found->models.push_back(std::move(model));
      }
    }
  }
  std::ranges::sort(all, [](const NeverServed& a, const NeverServed& b) {
    return std::pair(-a.requests, a.why) < std::pair(-b.requests, b.why);
  });
}

std::vector<NeverServed> never_served(const TraceSummary& summary, const sim::RunEnd& end) {
  std::vector<NeverServed> reasons;
  for (const sim::Unserved& each : end.unserved) {
    merge(reasons,
          {{.why = each.why,
            .requests = each.requests,
            .models = {summary.models[each.model.value()].name}}});
  }
  return reasons;
}

Tally empty_tally(const Replay& replay, const TracePart& part) {
  return {.interval = sim::AttainmentInterval(Instant{}, part.counted),
          .models = std::vector<ModelTally>(replay.summary.models.size())};
}

}  // namespace

void Tally::add(Tally&& other) {
  requests += other.requests;
  met += other.met;
  interval.add(other.interval);
  ttft.add(other.ttft);
  gpu_seconds += other.gpu_seconds;
  for (std::size_t i = 0; i < models.size(); ++i) {
    models[i].requests += other.models[i].requests;
    models[i].met += other.models[i].met;
    take_less(models[i].ttft, other.models[i].ttft);
    take_less(models[i].tpot, other.models[i].tpot);
  }
  merge(unserved, std::move(other.unserved));
  stop = stop ? stop : other.stop;
}

/// Replays of several clusters: of each one task for every stretch. Tasks are taken in order by
/// whichever thread is free; what counts is decided in the order of clusters and stretches.
class CapacityReplays::Batch {
 public:
  Batch(const CapacityReplays& owner,
        const std::vector<ReplayedCluster>& clusters,
        const TracePart& part,
        bool to_target,
        bool until_enough)
      : owner_(owner),
        clusters_(clusters),
        part_(part),
        to_target_(to_target),
        until_enough_(until_enough),
        states_(clusters.size()) {
    for (State& state : states_) {
      state.tallies.resize(part.stretches.size());
    }
    for (const Stretch& stretch : part.stretches) {
      rows_of_one_ += stretch.end - stretch.begin;
    }
  }

  /// Takes tasks until there are none.
  void work() {
    const std::size_t stretches = part_.stretches.size();
    for (;;) {
      const std::size_t task = next_.fetch_add(1);
      if (task >= clusters_.size() * stretches) {
        return;
      }
      State& state = states_[task / stretches];
      std::size_t ended = 0;
      if (!state.over) {
        take_up(state, task % stretches, replay(task, ended));
      }
      const Stretch& stretch = part_.stretches[task % stretches];
      rows_done_ += stretch.end - stretch.begin - ended;
    }
  }

  [[nodiscard]] double part_done() const {
    const auto all = static_cast<double>(rows_of_one_ * clusters_.size());
    return all > 0 ? std::min(1.0, static_cast<double>(rows_done_) / all) : 1;
  }

  Result<std::vector<Tally>> results() {
    std::vector<Tally> tallies;
    for (State& state : states_) {
      if (state.failure) {
        return *state.failure;
      }
      if (!state.sum) {
        break;  // Left out.
      }
      tallies.push_back(std::move(*state.sum));
    }
    return tallies;
  }

 private:
  struct State {
    std::vector<std::optional<Tally>> tallies{};  ///< By stretch.
    std::size_t taken = 0;                        ///< Of these, that are in the sum.
    std::optional<Tally> sum{};
    std::optional<Error> failure{};
    std::atomic<bool> over = false;  ///< Nothing more is to be replayed.
  };

  /// Whether the target is out of reach with so many late.
  [[nodiscard]] bool too_many(std::int64_t late) const {
    return to_target_ && part_.requests > 0 &&
           static_cast<double>(part_.requests - late) / static_cast<double>(part_.requests) <
               owner_.options_.target;
  }

  Result<Tally> replay(std::size_t task, std::size_t& ended);
  void take_up(State& state, std::size_t stretch, Result<Tally> tally);
  void add_up(State& state);

  const CapacityReplays& owner_;
  const std::vector<ReplayedCluster>& clusters_;
  const TracePart& part_;
  const bool to_target_;
  const bool until_enough_;
  std::size_t rows_of_one_ = 0;
  std::atomic<std::size_t> next_ = 0;
  std::atomic<std::size_t> rows_done_ = 0;
  std::mutex mutex_{};
  std::vector<State> states_;
};

/// One stretch on one cluster. @param ended  Is raised as requests end.
Result<Tally> CapacityReplays::Batch::replay(std::size_t task, std::size_t& ended) {
  const ReplayedCluster& cluster = clusters_[task / part_.stretches.size()];
  const Stretch& stretch = part_.stretches[task % part_.stretches.size()];
  State& state = states_[task / part_.stretches.size()];
  const Replay& replay = *owner_.replay_;
  const TraceSummary& summary = replay.summary;
  const auto plane = make_policy(owner_.options_.policy, summary);
  if (!plane) {
    return plane.error();
  }
  Tally tally = empty_tally(replay, part_);
  const Duration warmup = stretch.counted - stretch.from;
  bool known = false;
  const auto count = [&](const sim::RequestRow& row) {
    const sim::ModelSpec& spec = summary.models[row.model.value()];
    const sim::Met met = sim::met(row, {.ttft = spec.slo_ttft, .tpot = spec.slo_tpot});
    ModelTally& model = tally.models[row.model.value()];
    ++tally.requests;
    ++model.requests;
    tally.met += met.both() ? 1 : 0;
    model.met += met.both() ? 1 : 0;
    take_less(model.ttft, met.ttft);
    take_less(model.tpot, met.tpot);
    tally.interval.add(row.arrival - warmup + stretch.before, met.both());
    known = too_many(tally.requests - tally.met);
    ++ended;
    ++rows_done_;
  };
  sim::Results results({.warmup = warmup, .each = count});
  StretchSource source(owner_.rows_, stretch);
  sim::World world(
      {.hosts =
           std::vector<sim::HostSpec>(static_cast<std::size_t>(cluster.servers), cluster.server),
       .page_bytes = replay.cluster.page_bytes},
      summary.models,
      **plane,
      results,
      {.in_host_memory = stretch.begin == 0 ? replay.in_host_memory : replay.most_asked_first,
       .warmup = warmup,
       .stop = [&] { return known || state.over; }});
  world.run(source);
  results.finish(world);
  if (results.end().kind == sim::RunEnd::Kind::kStopped) {
    tally.stop = Tally::Stop{.stretch = task % part_.stretches.size(), .at = source.last()};
  } else {
    tally.unserved = never_served(summary, results.end());
  }
  tally.ttft = results.ttft();
  tally.gpu_seconds = results.gpu_seconds();
  return tally;
}

void CapacityReplays::Batch::take_up(State& state, std::size_t stretch, Result<Tally> tally) {
  const std::scoped_lock lock(mutex_);
  if (state.over) {
    return;  // It was stopped half-way, and nothing of it counts.
  }
  if (!tally) {
    state.failure = tally.error();
    state.over = true;
    return;
  }
  state.tallies[stretch] = std::move(tally).value();
  add_up(state);
}

/// Takes what is there in the order of the stretches, up to where the target is out of reach.
void CapacityReplays::Batch::add_up(State& state) {
  while (state.taken < state.tallies.size() && state.tallies[state.taken] && !state.over) {
    Tally next = std::move(*state.tallies[state.taken]);
    state.tallies[state.taken].reset();
    if (state.sum) {
      state.sum->add(std::move(next));
    } else {
      state.sum = std::move(next);
    }
    const Stretch& stretch = part_.stretches[state.taken];
    const bool all = state.taken + 1 == state.tallies.size() && !state.sum->stop;
    if (!all && too_many(state.sum->requests - state.sum->met)) {
      if (!state.sum->stop) {
        state.sum->stop = Tally::Stop{
            .stretch = state.taken,
            .at = stretch.end > 0 ? owner_.rows_[stretch.end - 1].arrival : stretch.from};
      }
      state.over = true;
    }
    ++state.taken;
  }
  if (state.taken == state.tallies.size()) {
    state.over = true;
    const bool enough = !state.sum->stop && state.sum->attainment() >= owner_.options_.target;
    if (until_enough_ && enough) {
      for (State* later = &state + 1; later != states_.data() + states_.size(); ++later) {
        later->over = true;
        later->sum.reset();
        later->failure.reset();
      }
    }
  }
}

std::vector<ModelId> CapacityReplays::misfits(const sim::HostSpec& server) const {
  const auto plane = make_policy(options_.policy, replay_->summary);
  sim::Observer nobody;
  const sim::World world({.hosts = {server}, .page_bytes = replay_->cluster.page_bytes},
                         replay_->summary.models,
                         **plane,
                         nobody,
                         {});
  std::vector<ModelId> none;
  for (const ModelId model : replay_->most_asked_first) {
    if (!sim::fits(world, model, world.hosts().front().id)) {
      none.push_back(model);
    }
  }
  std::ranges::sort(none);
  return none;
}

Result<CapacityReplays> CapacityReplays::make(const Replay& replay,
                                              std::vector<sim::TraceRow> rows,
                                              Options options) {
  if (const auto known = make_policy(options.policy, replay.summary); !known) {
    return known.error();
  }
  return CapacityReplays(replay, std::move(rows), std::move(options));
}

Result<std::vector<Tally>> CapacityReplays::run(Batch& batch) {
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t working = 0;
  std::vector<Thread> threads;
  const Instant began = steady_now();
  for (std::size_t i = 0; i < options_.threads; ++i) {
    ++working;
    Result<Thread> thread = Thread::start({.name = "replay"}, [&] {
      batch.work();
      const std::scoped_lock lock(mutex);
      --working;
      changed.notify_all();
    });
    if (!thread) {
      const std::scoped_lock lock(mutex);
      --working;
      break;
    }
    threads.push_back(std::move(*thread));
  }
  if (threads.empty()) {
    batch.work();
  }
  std::unique_lock lock(mutex);
  while (!changed.wait_for(lock, kBetweenLooks, [&working] { return working == 0; })) {
    if (options_.progress) {
      const double part = batch.part_done();
      const auto passed = static_cast<double>((steady_now() - began).count());
      options_.progress(
          {.part = part,
           .remaining =
               Duration(part > 0 ? static_cast<Duration::rep>(passed * (1 - part) / part) : 0)});
    }
  }
  lock.unlock();
  threads.clear();
  return batch.results();
}

Result<std::vector<Tally>> CapacityReplays::run_to_target(
    const std::vector<ReplayedCluster>& clusters, const TracePart& part, bool until_enough) {
  Batch batch(*this, clusters, part, true, until_enough);
  return run(batch);
}

Result<std::vector<Tally>> CapacityReplays::run_whole(const std::vector<ReplayedCluster>& clusters,
                                                      const TracePart& part) {
  Batch batch(*this, clusters, part, false, false);
  return run(batch);
}

}  // namespace heddle::cli
