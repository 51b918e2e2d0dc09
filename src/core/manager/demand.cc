#include "core/manager/demand.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "base/units.h"
#include "core/manager/groups.h"
#include "core/manager/models.h"
#include "core/manager/outbox.h"
#include "core/manager/pages.h"

namespace heddle::core::manager {
namespace {

/// Weight of the newest load that was measured.
constexpr double kNewest = 0.3;

using PastWindows = std::vector<std::pair<std::int64_t, policy::Load>>;

/// Those of `past` that the history would keep and lacks.
PastWindows missing(const policy::LoadHistory& history, const PastWindows& past) {
  const std::int64_t remembers = history.windows_per_day() * (history.days() + 1);
  const std::int64_t newest =
      past.empty() ? history.newest() : std::max(history.newest(), past.back().first);
  PastWindows all;
  for (const auto& [window, load] : past) {
    if (window > newest - remembers && !history.at(window)) {
      all.emplace_back(window, load);
    }
  }
  return all;
}

/// Enters windows that the history lacks, and judges forecasts by them. A history takes windows in
/// ascending order only, so those that it has after the first of them are entered again.
void enter(policy::DemandMeter& demand, const PastWindows& lacking) {
  PastWindows known;
  for (std::int64_t window = lacking.front().first; window <= demand.history().newest(); ++window) {
    if (const std::optional<policy::Load> load = demand.history().at(window)) {
      known.emplace_back(window, *load);
    }
  }
  auto again = known.begin();
  const auto enter_again = [&](std::int64_t before) {
    for (; again != known.end() && again->first < before; ++again) {
      demand.remember(again->first, again->second);
    }
  };
  for (const auto& [window, load] : lacking) {
    enter_again(window);
    demand.remember(window, load);
    demand.foresee(window, window + 1);
  }
  enter_again(std::numeric_limits<std::int64_t>::max());
}

/// How the first request finds the instance of a model that is not sharded.
StartKind instance_start(const ModelState& model, const Instance& instance) {
  const bool serving = instance.is<Serving>();
  const bool whole = instance.complete || model.external();
  const bool expected = instance.why == LoadReason::kForecast && !instance.used;
  if (serving && whole) {
    return expected ? StartKind::kHit : StartKind::kWarm;
  }
  return serving || instance.is<Loading>() ? StartKind::kAttach : StartKind::kMiss;
}

}  // namespace

void Demand::remember(const LoadRemembered& remembered) {
  const auto found = state_.models.find(remembered.model);
  if (found == state_.models.end()) {
    return;
  }
  policy::DemandMeter& demand = found->second.demand;
  const PastWindows lacking = missing(demand.history(), remembered.windows);
  if (!lacking.empty()) {
    enter(demand, lacking);
  }
  demand.foresee(-1, state_.options.planner.calendar.window_at(state_.now));
}

void Demand::arrived(ModelId id, std::int64_t tokens) {
  ModelState& model = state_.models.at(id);
  model.demand.arrived(state_.now, tokens, state_.options.planner.calendar);
  model.last_used = model.last_arrival = state_.now;
}

void Demand::left(ModelId id, std::optional<Duration> took) {
  ModelState& model = state_.models.at(id);
  model.last_used = state_.now;
  model.demand.left(state_.now, took, state_.options.planner.calendar);
}

void Demand::observe_warm(ModelId model, Duration ttft, std::optional<Duration> tpot) {
  state_.models.at(model).warm.observe(ttft, tpot);
}

void Demand::count_start(ModelId id) {
  ModelState& model = state_.models.at(id);
  StartKind kind = StartKind::kMiss;
  const auto led = [&](ModelId group) {
    for (const auto& [leader, others] : state_.models.at(group).config.groups) {
      kind = std::min(kind, start_kind(state_, group, state_.devices.at(leader)));
    }
  };
  std::ranges::for_each(model.cuts, led);
  if (model.sharded()) {
    led(id);
  } else {
    for (const Spot& spot : model.spots) {
      kind = std::min(kind, instance_start(model, *spot.instance));
    }
  }
  ++model.starts[static_cast<std::size_t>(kind)];
}

void Demand::learn_load(DeviceId device_id, ModelId shard) {
  DeviceState& device = state_.devices.at(device_id);
  const ModelId model = whole(state_, shard);
  if (!state_.models.at(shard).grouped()) {
    learn(device, model);
    return;
  }
  const Instance& here = device.instances.at(shard);
  const DeviceId leader = here.part().leader.value_or(device_id);
  const std::vector<ShardPlace> places = block(state_, model, leader);
  const bool together = std::all_of(places.begin(), places.end(), [&](const ShardPlace& place) {
    const auto& there = state_.devices.at(place.device).instances;
    const auto found = there.find(place.model);
    return found != there.end() && found->second.complete &&
           found->second.load_began == here.load_began && found->second.from_host == here.from_host;
  });
  if (together) {
    learn(state_.devices.at(leader), model);
  }
}

void Demand::learn(DeviceState& device, ModelId id) {
  const Instance& instance = device.instances.at(id);
  ModelState& model = state_.models.at(id);
  const Duration took = state_.now - instance.load_began;
  if (instance.fetched) {
    return;  // A load that comes again finds the files.
  }
  Duration& known = model.load_times.at(instance.from_host ? 1 : 0);
  known = known == Duration{} ? took : known + from_seconds(kNewest * to_seconds(took - known));
  if (instance.from_host && took > Duration{} && !model.external()) {
    const double rate = static_cast<double>(model.config.image_bytes) / to_seconds(took);
    device.load_rate += (device.load_rate == 0 ? 1 : kNewest) * (rate - device.load_rate);
  }
}

void Demand::count_waste(DeviceId device_id, ModelId id) {
  const DeviceState& device = state_.devices.at(device_id);
  const Instance& instance = device.instances.at(id);
  if (instance.why != LoadReason::kForecast || instance.used) {
    return;
  }
  const ModelState& model = state_.models.at(id);
  state_.models.at(asked(state_, id)).wasted_bytes +=
      model.external()
          ? static_cast<std::uint64_t>(pages_of(state_, device, id)) * device.config.page_bytes
          : model.config.image_bytes;
}

void Demand::turn_window() {
  const policy::Calendar& calendar = state_.options.planner.calendar;
  const std::int64_t window = calendar.window_at(state_.now);
  if (window == state_.window) {
    return;
  }
  for (auto& [id, model] : state_.models) {
    model.demand.advance(state_.now, calendar);
    model.demand.foresee(state_.window, window);
    const auto load = model.demand.history().at(state_.window);
    if (load && !model.config.part_of && !model.config.cut_of) {
      out_.act(LoadMeasured{.model = id, .window = state_.window, .load = *load});
    }
  }
  state_.window = window;
}

double Demand::load(ModelId model) {
  return state_.models.at(model).demand.load(state_.now);
}

}  // namespace heddle::core::manager
