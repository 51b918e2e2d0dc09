#include "lab/prediction.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/metrics.h"
#include "gateway/gateway_metrics.h"
#include "lab/shots.h"
#include "lab/twin_setup.h"
#include "manager/model_registry.h"
#include "twin/cluster.h"
#include "twin/twin.h"

namespace heddle::lab {

namespace {

bench::Row row_of(const twin::Ask& ask, const twin::Answer& answer, std::size_t model) {
  const Duration due = ask.at.time_since_epoch();
  return {.model = model,
          .due = due,
          .begun = due,
          .first = answer.first.time_since_epoch(),
          .last = answer.last.time_since_epoch(),
          .ended = answer.last.time_since_epoch(),
          .prompt_tokens = ask.input_tokens,
          .completion_tokens = answer.tokens,
          .error = answer.error};
}

/// Lets the asks go by on what the setup describes, and notes what it exposes meanwhile.
template <class Played>
std::vector<twin::Answer> go_by(Played& played,
                                Duration rest,
                                const std::vector<twin::Ask>& asks,
                                LabRun& run) {
  played.rest(Instant(rest));
  Metrics metrics;
  gateway::GatewayMetrics exposed(metrics);
  std::vector<twin::Answer> answers = played.run(asks, kWatchInterval, [&](Duration at) {
    exposed.publish(played);
    run.moments.emplace_back(at, Counters::parse(exposed.expose()));
  });
  for (const core::DeviceStatus& device : played.devices()) {
    run.device_pages.push_back(device.usage.total);
  }
  return answers;
}

}  // namespace

Result<LabRun> predict_run(const LabFile& lab,
                           const LabPolicy& policy,
                           std::int64_t seed,
                           const std::vector<bench::Shot>& shots,
                           const Constants& constants,
                           std::int64_t play) {
  manager::ModelRegistry registry;
  Result<twin::TwinSetup> setup = twin_setup(lab, policy, constants, registry);
  if (!setup) {
    return setup.error();
  }
  policy::Calendar& calendar = setup->manager.options.planner.calendar;
  const bool step = keeps_step(shots, calendar.window);
  const Duration place = place_in_window(seed, calendar.window);
  // A server takes a moment to start; when it has says when the planner looks.
  const Duration moment = scatter(play, setup->manager.options.planner.period);
  calendar.offset = step ? moment : place;
  std::map<std::string, ModelId> ids;
  for (const manager::ConfiguredModel& model : registry.models()) {
    ids[model.config.id] = model.id;
  }
  const std::vector<std::string> names = model_names(lab);
  std::vector<twin::Ask> asks;
  const std::vector<bench::Shot> again = played_again(shots, play);
  for (const bench::Shot& shot : again) {
    asks.push_back({.at = Instant(shot.at),
                    .model = ids.at(names.at(shot.model)),
                    .input_tokens = shot.input_tokens,
                    .output_tokens = shot.output_tokens});
    if (lab.cold) {  // KV that moves is found again by its request alone.
      asks.back().cache_salt = std::to_string(asks.size());
    }
  }
  LabRun run{.policy = policy.name, .seed = seed};
  const Duration rest = step ? calendar.window + place - moment : Duration{};
  std::vector<twin::Answer> answers;
  if (policy.hosts.empty()) {
    twin::Twin server(*setup);
    answers = go_by(server, rest, asks, run);
  } else {
    twin::Cluster cluster(*setup);
    answers = go_by(cluster, rest, asks, run);
  }
  Duration last{};
  for (std::size_t i = 0; i < answers.size(); ++i) {
    last = std::max(last, answers[i].last.time_since_epoch());
    if (again[i].at >= lab.warmup) {
      run.rows.push_back(row_of(asks[i], answers[i], again[i].model));
    }
  }
  // As they ended, as a live run has them.
  std::sort(run.rows.begin(), run.rows.end(), [](const auto& a, const auto& b) {
    return std::pair(a.ended, a.due) < std::pair(b.ended, b.due);
  });
  const auto counted = std::find_if(run.moments.rbegin(),
                                    run.moments.rend(),
                                    [&](const auto& seen) { return seen.first <= lab.warmup; });
  run.counted =
      run.moments.back().second.since(counted == run.moments.rend() ? Counters() : counted->second);
  run.span = last - lab.warmup;
  return run;
}

}  // namespace heddle::lab
