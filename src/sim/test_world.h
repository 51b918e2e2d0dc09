#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "sim/planes/planes.h"
#include "sim/test_hardware.h"
#include "sim/world.h"

namespace heddle::sim {

/// Requests from a list.
class ListSource final : public RequestSource {
 public:
  explicit ListSource(std::vector<TraceRow> rows) : rows_(std::move(rows)) {}
  bool next(TraceRow& row) override {
    if (next_ == rows_.size()) {
      return false;
    }
    row = rows_[next_++];
    return true;
  }

 private:
  std::vector<TraceRow> rows_;
  std::size_t next_ = 0;
};

/// What one request was given.
struct Served {
  double arrival = 0;      ///< All in seconds.
  double first_token = 0;  ///< -1: none.
  double finished = 0;     ///< -1: refused, or unserved.
  std::int64_t tokens = 0;
  [[nodiscard]] double ttft() const { return first_token - arrival; }
};

/// Writes down what happens.
class Witness final : public Observer {
 public:
  void ended(const World& /*world*/, const Outcome& outcome) override {
    const auto seconds = [](Instant at) { return to_seconds(at.time_since_epoch()); };
    const LiveRequest& request = *outcome.request;
    served[request.number.value()] = {
        .arrival = seconds(request.arrival),
        .first_token = request.first_token ? seconds(*request.first_token) : -1,
        .finished = outcome.end == RequestEnd::kCompleted ? seconds(outcome.ended) : -1,
        .tokens = request.generated};
  }
  void acted(const World& /*world*/, const Act& act) override {
    if (act.verb != "dispatch") {
      acts.push_back(std::string(act.verb) + " m" + std::to_string(act.model.value()) + " " +
                     std::string(name(act.reason)));
    }
  }
  /// How often something was done.
  [[nodiscard]] std::int64_t count(const std::string& act) const {
    return std::count(acts.begin(), acts.end(), act);
  }

  std::map<std::uint64_t, Served> served{};  ///< By place in the workload.
  std::vector<std::string> acts{};           ///< "start m0 miss", in order; without dispatches.
};

/// A plane made of one function.
class TestPlane final : public ControlPlane {
 public:
  using Decide = std::function<void(const Notice&, const World&, Actions&)>;
  explicit TestPlane(Decide decide) : decide_(std::move(decide)) {}
  void decide(const Notice& notice, const World& world, Actions& actions) override {
    decide_(notice, world, actions);
  }

 private:
  Decide decide_;
};

struct TestRun {
  Witness witness{};
  WorldCounts counts{};
  std::uint64_t digest = 0;
  double gpu_seconds = 0;
  RunEnd end{};

  [[nodiscard]] const Served& request(std::uint64_t number) const {
    return witness.served.at(number);
  }
};

/// Where weights lie when time begins.
enum class Begin : std::uint8_t {
  kEmpty,  ///< In the store.
  kWarm,   ///< In host memory of every server, as far as they fit.
};

/// Replays `rows` with all invariants checked after every event. `prepare` may plan faults.
inline TestRun run_world(const ClusterSpec& cluster,
                         const std::vector<ModelSpec>& models,
                         ControlPlane& plane,
                         const std::vector<TraceRow>& rows,
                         const std::function<void(World&)>& prepare = {},
                         Begin begin = Begin::kEmpty) {
  TestRun run;
  WorldOptions options{.check_every_event = true};
  for (std::size_t i = 0; i < models.size() && begin == Begin::kWarm; ++i) {
    options.in_host_memory.emplace_back(i);
  }
  World world(cluster, models, plane, run.witness, options);
  if (prepare) {
    prepare(world);
  }
  ListSource source(rows);
  world.run(source);
  run.counts = world.counts();
  run.digest = world.digest();
  run.gpu_seconds = world.gpu_seconds();
  run.end = world.end();
  return run;
}

/// What a list of requests is as a whole, as offline planners are told it.
inline std::vector<OfflineDemand> demand_of(std::size_t models, const std::vector<TraceRow>& rows) {
  std::vector<OfflineDemand> demand(models);
  for (const TraceRow& row : rows) {
    demand[row.model.value()].requests_per_second += 0.1;
    demand[row.model.value()].input_tokens = static_cast<double>(row.input_tokens);
    demand[row.model.value()].output_tokens = static_cast<double>(row.output_tokens);
  }
  return demand;
}

/// The same with a policy set by its name, and flags such as {"keep_alive", "5"}.
inline TestRun run_policy(std::string_view name,
                          const ClusterSpec& cluster,
                          const std::vector<ModelSpec>& models,
                          const std::vector<TraceRow>& rows,
                          std::map<std::string, std::string> flags = {},
                          Begin begin = Begin::kWarm) {
  auto plane =
      make_plane(name, {.demand = demand_of(models.size(), rows), .flags = std::move(flags)});
  HEDDLE_CHECK(plane.has_value());
  return run_world(cluster, models, **plane, rows, {}, begin);
}

[[nodiscard]] inline TraceRow row_at(double seconds,
                                     std::uint64_t model,
                                     std::int64_t input,
                                     std::int64_t output) {
  return {.arrival = Instant(from_seconds(seconds)),
          .model = ModelId(model),
          .input_tokens = input,
          .output_tokens = output};
}

/// Seconds of the step that reads a prompt of `tokens` alone, on the test hardware.
[[nodiscard]] inline double prefill_seconds(std::int64_t tokens) {
  const ModelSpec spec = test_models(1)[0];
  const StepModel step(spec.shape, test_h100(), 1, spec.engine);
  return static_cast<double>(step.base_ps(tokens, 1) + step.chunk_ps({.tokens = tokens}) +
                             step.fixed_ps()) *
         1e-12;
}

}  // namespace heddle::sim
