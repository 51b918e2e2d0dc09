#include "core/manager/expected_demands.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "core/manager/groups.h"
#include "core/manager/models.h"
#include "core/manager/pages.h"
#include "core/manager/value.h"
#include "core/manager/views.h"
#include "policy/autoscale.h"

namespace heddle::core::manager {
namespace {

using namespace std::chrono_literals;

/// A replica that was prewarmed begins to serve at once.
constexpr Duration kHitTime = 1ms;
/// Windows whose highest load stands for a model that cannot be forecast.
constexpr std::int64_t kRecentWindows = 12;

/// Devices that are looked at before all others.
constexpr std::size_t kNearMost = 64;

/// What a model needs where there is a workspace for it.
std::int64_t pages_beside_workspace(const policy::Footprint& footprint) {
  return policy::pages_to_load(footprint) - footprint.overhead_pages;
}

/// Groups of devices that the model may lie on; none of a model of ours that is not sharded.
std::vector<std::vector<DeviceId>> blocks_of(const State& state, ModelId id) {
  const ModelState& model = state.models.at(id);
  std::vector<std::vector<DeviceId>> blocks;
  for (const auto& [leader, others] : model.config.groups) {
    std::vector<DeviceId>& devices = blocks.emplace_back();
    for (const ShardPlace& place : block(state, id, leader)) {
      devices.push_back(place.device);
    }
  }
  if (model.external()) {
    const std::optional<DeviceId> only = standing_by(state, id);
    for (const Seat& seat : model.footprints.seats()) {
      if (!only || seat.device == *only) {
        blocks.push_back({seat.device});
      }
    }
  }
  return blocks;
}

/// That it needs on each device of its blocks.
std::int64_t pages_per_device(const State& state, ModelId id) {
  const ModelState& model = state.models.at(id);
  if (model.external()) {
    std::int64_t pages = 1;
    for (const std::vector<DeviceId>& devices : blocks_of(state, id)) {
      pages = std::max(pages, pages_to_come(state, state.devices.at(devices.front()), id));
    }
    return pages;
  }
  std::int64_t pages = pages_beside_workspace(model.footprints.first());
  for (const auto& [leader, others] : model.config.groups) {
    for (const ShardPlace& place : block(state, id, leader)) {
      const ModelState& shard = state.models.at(place.model);
      pages = std::max(pages, pages_beside_workspace(shard.footprints.at(place.device)));
    }
  }
  return pages;
}

/// Where it is loaded soonest: where an engine stands by, else on a host that has the image in its
/// memory, else on any device that the model may be on.
const DeviceState& home(const State& state, const ModelState& model) {
  if (const std::optional<DeviceId> device = standing_by(state, model.config.id)) {
    return state.devices.at(*device);
  }
  for (const auto& [host, image] : model.images) {
    const Seat* seat = image.cached ? model.footprints.first_at(host) : nullptr;
    if (seat != nullptr) {
      return state.devices.at(seat->device);
    }
  }
  return state.devices.at(model.footprints.first_device());
}

/// Devices of hosts that have the image in memory; if none has, of those that have room for it. The
/// first kNearMost; none where it may be on no others.
std::vector<DeviceId> near(const State& state, const ModelState& model) {
  const bool cached =
      std::ranges::any_of(model.images, [](const auto& image) { return image.second.cached; });
  if (!cached && state.full_hosts.empty()) {
    return {};
  }
  std::vector<DeviceId> devices;
  for (const Seat& seat : model.footprints.seats()) {
    const HostId host = host_of(seat.device);
    if (cached ? model.cached_at(host) : !state.full_hosts.contains(host)) {
      devices.push_back(seat.device);
    }
  }
  const bool everywhere = devices.size() == model.footprints.size();
  devices.resize(everywhere ? 0 : std::min(devices.size(), kNearMost));
  return devices;
}

/// Until it serves there if somebody asks for it now: what an engine needs may have to leave first.
Duration start_time(const State& state, const ModelState& model, const DeviceState& device) {
  const Duration load_takes = load_time(state, model, device);
  if (!model.external()) {
    return load_takes;
  }
  const bool in_the_way =
      pages_to_come(state, device, model.config.id) > free_pages(state, device) ||
      std::ranges::any_of(device.instances, [&](const auto& entry) {
        return displaces(model, entry.first) && !entry.second.template is<Suspended>();
      });
  return load_takes + (in_the_way ? leaving_time(state, device, model.config.id) : Duration{});
}

/// What a model is expected to need beyond the instances that serve; without its load time.
policy::ModelDemand model_demand(const Parts& core, ModelId id) {
  const State& state = core.state;
  const ModelState& model = state.models.at(id);
  const DeviceState& device = home(state, model);
  const std::int64_t instances =
      model.requests == 0 ? 0 : std::ranges::count_if(model.spots, [&](const Spot& spot) {
        return busy(state, id, *spot.instance);
      });
  const policy::Forecast& forecast = expected(state, model, device);
  const double capacity = policy::kScaleUpShare * static_cast<double>(model.config.batch);
  const bool hot = core.demand.load(id) >= capacity / 2;
  policy::Load load{.mean = forecast.load.mean,
                    .peak = std::max(forecast.load.mean, forecast.load.peak)};
  std::vector<std::vector<DeviceId>> blocks = blocks_of(state, id);
  const bool alone = !blocks.empty();
  if (alone) {  // It runs on one of them, whatever its load.
    load = {.mean = std::min(load.mean, capacity), .peak = std::min(load.peak, capacity)};
  }
  return policy::gate_demand(
      {.model = id,
       .mean_load = load.mean,
       .peak_load = load.peak,
       .batch = model.config.batch,
       .instances = instances,
       .devices = blocks.empty() ? 1 : std::ssize(blocks.front()),
       .blocks = std::move(blocks),
       .alone = alone,
       .pages_per_device = pages_per_device(state, id),
       .hit_time = kHitTime,
       .ttft = model.objectives().ttft},
      forecast,
      hot ? policy::Heat::kHot : policy::Heat::kOther,
      hot ? policy::recent_peak(model.demand.history(), state.window, kRecentWindows) : 0);
}

/// Whether an operator, or a limit to how long it may be idle, sent it away. The latter is not for
/// longer than the window in which that was: it may be back when the next one begins.
bool kept_away(const State& state, const ModelState& model) {
  if (model.sent_away || !model.unloads_asked.empty() || model.idle_in < 0) {
    return model.sent_away || !model.unloads_asked.empty();
  }
  const DeviceState& device = state.devices.at(model.footprints.first_device());
  return state.options.planner.calendar.window_at(state.now + lead(state, model, device)) <=
         model.idle_in;
}

/// Whether an external engine is on its way out, or wanted back by requests; or is on several
/// devices, which only requests clear.
bool decided_elsewhere(const ModelState& model) {
  return model.external() && (on_several(model) || model.wanted() ||
                              std::ranges::any_of(model.spots, [](const Spot& spot) {
                                return spot.instance->is<Evicting>();
                              }));
}

}  // namespace

std::vector<policy::ModelDemand> expected_demands(const Parts& core) {
  const State& state = core.state;
  std::vector<policy::ModelDemand> demands;
  demands.reserve(state.index.named.size());
  for (const auto& [id, known] : state.index.named) {
    const ModelState& model = *known;
    const bool crowded = model.sharded() && !state.options.planner.evict;  // Beside what stays.
    if (!model.removed && !model.footprints.empty() && !kept_away(state, model) &&
        state.now >= model.retry_at && !crowded && !decided_elsewhere(model)) {
      demands.push_back(model_demand(core, id));
    }
  }
  return demands;
}

void add_sources(const State& state, std::vector<policy::ModelDemand>& demands) {
  for (policy::ModelDemand& demand : demands) {
    if (policy::desired_count(demand, policy::ScoreVariant::kValue) > 0) {
      const ModelState& model = state.models.at(demand.model);
      demand.load_time = start_time(state, model, home(state, model));
      if (!model.grouped() && !model.external()) {
        demand.near = near(state, model);
        if (model.footprints.size() < state.devices.size()) {
          for (const Seat& seat : model.footprints.seats()) {
            demand.blocks.push_back({seat.device});
          }
        }
      }
    }
  }
}

}  // namespace heddle::core::manager
