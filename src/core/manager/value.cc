#include "core/manager/value.h"

#include <algorithm>
#include <initializer_list>
#include <span>

#include "base/units.h"
#include "core/manager/groups.h"
#include "core/manager/images.h"
#include "core/manager/models.h"
#include "core/manager/pages.h"
#include "policy/autoscale.h"
#include "policy/kv_pressure.h"
#include "policy/value.h"

namespace heddle::core::manager {
namespace {

using namespace std::chrono_literals;

double bytes_per_token(const policy::Footprint& footprint, std::uint64_t page_bytes) {
  double bytes = 0;
  for (const policy::KvGroup& group : footprint.kv) {
    bytes += static_cast<double>(page_bytes) /
             static_cast<double>(group.blocks_per_page * group.tokens_per_block);
  }
  return bytes;
}

/// An image is worth keeping for a model that is asked for within so long.
constexpr Duration kImagesKept = 24h;

/// The usual time between its requests, or since the last one where that is longer.
Duration gap_of(const State& state, const ModelState& model) {
  const Duration idle = state.now - model.demand.last_used();
  return std::max({Duration(1ms), from_seconds(model.demand.mean_gap()), idle});
}

/// P(the model is asked for within a window): as its forecasts have come true; where there were
/// none, or they are wrong about the present window, as its requests come.
double needed(const State& state, const ModelState& model, const policy::Forecast& expected) {
  const policy::Calendar& calendar = state.options.planner.calendar;
  const std::optional<double> asked = expected.asked();
  const bool came = model.demand.last_used() >= calendar.start_of(calendar.window_at(state.now));
  if (asked && (expected.busy || !came)) {
    return *asked;
  }
  return std::max(asked.value_or(0),
                  policy::needed_by_renewal(calendar.window, gap_of(state, model)));
}

/// P(it is asked for more than so many other instances bear); sure where it is by now.
double needed_beside(const State& state,
                     const ModelState& model,
                     const policy::Forecast& expected,
                     std::int64_t others) {
  const double limit = policy::kScaleUpShare * static_cast<double>(model.config.batch * others);
  if (was_short(state, model) || static_cast<double>(model.demand.in_system()) > limit) {
    return 1;
  }
  return expected.error <= policy::kTrustedError
             ? policy::needed_by_forecast(limit, expected.load.mean, expected.load.peak)
             : 0;
}

/// What has to leave first is gone when it is next looked at.
Duration with_look(Duration leaving, const State& state) {
  return leaving > Duration{} ? leaving + state.options.planner.period : leaving;
}

/// The first of these that is known.
Duration first_known(std::initializer_list<Duration> times) {
  for (const Duration time : times) {
    if (time > Duration{}) {
      return time;
    }
  }
  return kEngineStart;
}

/// Whether this window or the next is forecast to have requests of the model.
bool somebody_may_ask(const State& state, const ModelState& model) {
  const policy::Calendar& calendar = state.options.planner.calendar;
  const policy::Forecast& forecast =
      model.demand.expected_within(calendar.window, state.now, calendar);
  return forecast.load.peak > 0 || forecast.asked().value_or(0) > 0;
}

/// load_time() of an external engine.
Duration engine_time(const ModelState& model, const DeviceState& device) {
  const auto& [start, back] = model.load_times;
  const auto here = device.instances.find(model.config.id);
  const bool starts =
      here == device.instances.end() || (here->second.is<Loading>() && !here->second.from_host);
  return starts ? first_known({start, model.swap_in}) : first_known({model.swap_in, back, start});
}

/// What an idle external engine is worth [s]: `for_sure`, its swap out is waited for whether it is
/// needed again or not.
double engine_worth(const State& state, const DeviceState& device, ModelId id, bool for_sure) {
  if (!state.options.planner.value) {
    return 0;
  }
  const ModelState& model = state.models.at(id);
  const double again = needed(state, model, expected(state, model, device));
  const Duration back = load_time(state, model, device);
  policy::Asset engine{.needed = again,
                       .without = model.swap_out + back,
                       .ttft = std::max<Duration>(model.objectives().ttft, 1ms)};
  double lost = policy::worth(engine);
  if (for_sure) {
    engine.needed = 1 - again;
    engine.with = back;
    lost += policy::worth(engine);
  }
  return lost;
}

/// What losing an idle instance of a whole model is expected to cost [s].
double model_worth(const State& state, const DeviceState& device, ModelId id) {
  const ModelState& model = state.models.at(id);
  if (!state.options.planner.value) {
    return 0;
  }
  std::int64_t others = 0;
  for (const Spot& spot : model.spots) {
    const bool counts = spot.instance->is<Serving>() ||
                        (spot.instance->staged() && gathered(state, id, spot.id).whole());
    others += spot.id != device.config.id && counts ? 1 : 0;
  }
  const policy::Forecast& forecast = expected(state, model, device);
  return policy::worth(
      {.needed = others == 0 ? needed(state, model, forecast)
                             : needed_beside(state, model, forecast, others),
       .without = load_time(state, model, device),
       .with = Duration{},
       .ttft = std::max<Duration>(model.objectives().ttft, 1ms),
       .bytes = std::max<std::int64_t>(
           1, pages_of(state, device, id) * static_cast<std::int64_t>(device.config.page_bytes))});
}

}  // namespace

bool busy(const State& state, ModelId model, const Instance& instance) {
  return !instance.in_flight.empty() || !state.models.at(model).waiting.empty();
}

bool active(const State& state, const ModelState& model) {
  return model.demand.in_system() > 0 ||
         to_seconds(state.now - model.demand.last_used()) <= model.demand.mean_gap();
}

Duration load_time(const State& state, const ModelState& model, const DeviceState& device) {
  if (model.external()) {
    return engine_time(model, device);
  }
  const HostId host = host_of(device.config.id);
  const Duration measured = model.load_times.at(model.cached_at(host) ? 1 : 0);
  const double rate = device.load_rate > 0 ? device.load_rate : kLoadRate;
  const Duration read =
      measured > Duration{}
          ? measured
          : std::max<Duration>(from_seconds(static_cast<double>(model.config.image_bytes) / rate),
                               1us);
  return std::max(read, fetch_time(state, model.config.id, host));
}

Duration prompt_time(const ModelState& model) {
  return model.warm.ttft().value_or(Duration{});
}

Duration busy_time(const ModelState& users, const Instance& instance) {
  double longest = 0;  // Of n that take as long on average: 1 + 1/2 + ... + 1/n times that.
  for (std::size_t i = 1; i <= instance.in_flight.size(); ++i) {
    longest += users.demand.mean_service() / static_cast<double>(i);
  }
  return from_seconds(longest);
}

Duration LoadTimes::on(const DeviceState& device) const {
  if (model_.external()) {
    return engine_time(model_, device);
  }
  const HostId host = host_of(device.config.id);
  const bool measured = model_.load_times.at(model_.cached_at(host) ? 1 : 0) > Duration{};
  const std::pair key(host, measured ? 0.0 : device.load_rate);
  if (last_ != key) {
    last_ = key;
    time_ = load_time(state_, model_, device);
  }
  return time_;
}

Duration leaving_time(const State& state, const DeviceState& device, ModelId model) {
  Duration longest{};
  if (!device.mixed) {
    return longest;
  }
  for (const auto& [id, instance] : device.instances) {
    const ModelState& other = state.models.at(id);
    if (id != model && other.external() && !instance.is<Suspended>()) {
      longest = std::max(longest, other.swap_out);
    }
  }
  return longest;
}

bool comes_for_nobody(const State& state, const ModelState& model, const DeviceState& device) {
  const auto here = device.instances.find(model.config.id);
  return model.external() && here != device.instances.end() && here->second.is<Loading>() &&
         here->second.why == LoadReason::kForecast && !here->second.used && !model.wanted() &&
         load_time(state, model, device) >
             state.now - here->second.load_began + state.options.drain_after;
}

Duration lead(const State& state, const ModelState& model, const DeviceState& device) {
  return load_time(state, model, device) +
         with_look(leaving_time(state, device, model.config.id), state) +
         state.options.planner.period;
}

Duration lead(const State& state) {
  Duration longest{};
  Duration leaving{};
  for (const auto& [id, model] : state.models) {
    if (model.external()) {
      leaving = std::max(leaving, model.swap_out);
      const bool awaited = somebody_may_ask(state, model);
      for (const Seat& seat : awaited ? model.footprints.seats() : std::span<const Seat>{}) {
        longest = std::max(longest, load_time(state, model, state.devices.at(seat.device)));
      }
    } else if (!model.footprints.empty()) {
      const DeviceState& device = state.devices.at(model.footprints.first_device());
      longest = std::max(longest, load_time(state, model, device));
    }
  }
  return longest + with_look(leaving, state) + state.options.planner.period;
}

const policy::Forecast& expected(const State& state,
                                 const ModelState& model,
                                 const DeviceState& device) {
  if (!model.demand.grows()) {
    return model.demand.expected();  // However long it takes to load.
  }
  return model.demand.expected_within(
      lead(state, model, device), state.now, state.options.planner.calendar);
}

double worth(const State& state, const DeviceState& device, ModelId model) {
  if (state.models.at(model).external()) {
    return engine_worth(state, device, model, false);
  }
  const Instance& instance = device.instances.at(model);
  const DeviceId leader = instance.part().leader.value_or(device.config.id);
  const ModelId all = whole(state, model);
  if (instance.staged() && !gathered(state, all, leader).whole()) {
    return 0;
  }
  return model_worth(state, state.devices.at(leader), all);
}

double image_worth(const State& state, const ModelState& model, HostId host) {
  const Seat* seat = model.footprints.first_at(host);
  if (!state.options.planner.value || seat == nullptr) {
    return 0;
  }
  const DeviceState& device = state.devices.at(seat->device);
  const Duration with = load_time(state, model, device);
  return policy::worth({.needed = policy::needed_by_renewal(kImagesKept, gap_of(state, model)),
                        .without = with + read_time(model),
                        .with = with,
                        .ttft = std::max<Duration>(model.objectives().ttft, 1ms),
                        .bytes = 1});
}

double worth_to_waiting(const State& state, const DeviceState& device, ModelId model) {
  return state.models.at(model).external() ? engine_worth(state, device, model, true)
                                           : worth(state, device, model);
}

Duration missing(const State& state, ModelId model, DeviceId leader) {
  const Duration load_takes = load_time(state, state.models.at(model), state.devices.at(leader));
  Duration longest{};
  for (const ShardPlace& place : block(state, model, leader)) {
    const Instance* shard = staged(state.devices.at(place.device), place.model);
    Duration left = load_takes;
    if (shard != nullptr) {
      left = shard->complete ? Duration{}
                             : std::max(load_takes - (state.now - shard->load_began), Duration{});
    }
    longest = std::max(longest, left);
  }
  return longest;
}

double kv_growth(const State& state, ModelId id, const DeviceState& device) {
  const ModelState& model = state.models.at(id);
  const policy::Footprint* footprint = model.need_on(device);
  if (model.external() || footprint == nullptr) {
    return 0;
  }
  const std::int64_t instances = std::ssize(model.spots);
  const double bytes = bytes_per_token(*footprint, device.config.page_bytes);
  return policy::kv_demand(model.demand.token_rate(state.now) /
                               static_cast<double>(std::max<std::int64_t>(instances, 1)),
                           static_cast<std::int64_t>(bytes),
                           std::max<Duration>(model.objectives().tpot, 1ms));
}

double pressure(const State& state, const DeviceState& device, ModelId wanted) {
  if (!state.options.planner.pressure) {
    return 0;
  }
  double growth = kv_growth(state, wanted, device);
  std::int64_t weights = 0;
  std::int64_t workspace = 0;  // They share it.
  const auto weigh = [&](ModelId id) {
    const policy::Footprint* footprint = state.models.at(id).need_on(device);
    if (footprint != nullptr) {
      weights += footprint->image_pages;
      workspace = std::max(workspace, footprint->overhead_pages);
    }
  };
  weigh(wanted);
  for (const auto& [id, instance] : device.instances) {
    if (id != wanted && active(state, state.models.at(id))) {
      growth += kv_growth(state, id, device);
      weigh(id);
    }
  }
  return policy::kv_pressure(growth,
                             (device.config.pages - weights - workspace) *
                                 static_cast<std::int64_t>(device.config.page_bytes));
}

}  // namespace heddle::core::manager
