#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <utility>

#include "core/manager_core_impl.h"
#include "policy/autoscale.h"
#include "policy/kv_placement.h"
#include "policy/value.h"

/// What is known of how much models are asked for, what they are worth, and what is counted of
/// that.
namespace heddle::core {
namespace {

using namespace std::chrono_literals;

/// Weight of the newest load that was measured.
constexpr double kNewest = 0.3;

double bytes_per_token(const policy::Footprint& footprint, std::uint64_t page_bytes) {
  double bytes = 0;
  for (const policy::KvGroup& group : footprint.kv) {
    bytes += static_cast<double>(page_bytes) /
             static_cast<double>(group.blocks_per_page * group.tokens_per_block);
  }
  return bytes;
}

}  // namespace

std::string number(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), value < 10 ? "%.2g" : "%.0f", value);
  return text.data();
}

void ManagerCore::Impl::note(DecisionKind kind,
                             ModelId model,
                             std::optional<DeviceId> device,
                             std::string why,
                             std::optional<ModelId> for_model) {
  act(Decision{.kind = kind,
               .model = model,
               .device = device,
               .for_model = for_model,
               .why = std::move(why)});
}

/// Why a model is not brought in at once; said when that changes.
void ManagerCore::Impl::note_waiting(ModelId id, const policy::Placement& placement) {
  ModelState& model = models_.at(id);
  if (placement.outcome != policy::PlacementOutcome::kWait) {
    model.waits_for.reset();
  } else if (model.waits_for != placement.reason) {
    model.waits_for = placement.reason;
    note(DecisionKind::kWait, id, std::nullopt, std::string(policy::reason_name(placement.reason)));
  }
}

/// "morse", "morse and sorter".
std::string ManagerCore::Impl::names(const std::vector<ModelId>& models) const {
  std::string text;
  for (std::size_t i = 0; i < models.size(); ++i) {
    text += i == 0 ? "" : i + 1 == models.size() ? " and " : ", ";
    text += models_.at(models[i]).config.name;
  }
  return text;
}

// ---- What is known of models ----

void ManagerCore::Impl::on(const LoadRemembered& remembered) {
  const auto found = models_.find(remembered.model);
  if (found == models_.end()) {
    return;
  }
  policy::DemandMeter& demand = found->second.demand;
  for (const auto& [window, load] : remembered.windows) {
    if (window > demand.history().newest()) {
      demand.remember(window, load);
      demand.foresee(window, window + 1);
    }
  }
  demand.foresee(-1, options_.planner.calendar.window_at(now_));
}

bool ManagerCore::Impl::busy(ModelId model, const Instance& instance) const {
  return !instance.in_flight.empty() || !models_.at(model).waiting.empty();
}

/// Whether it has requests, or the usual time to its next one is not over.
bool ManagerCore::Impl::active(const ModelState& model) const {
  return model.demand.in_system() > 0 ||
         to_seconds(now_ - model.demand.last_used()) <= model.demand.mean_gap();
}

/// Whether the model may not run on the device now because another does and they do not share.
bool ManagerCore::Impl::blocked(const DeviceState& device, ModelId model) const {
  return !options_.planner.share &&
         std::any_of(device.instances.begin(), device.instances.end(), [&](const auto& entry) {
           return entry.first != model && !entry.second.in_flight.empty();
         });
}

/// From the tier that its weights are in now to their last byte; as measured, else as its bytes
/// take that other models' took.
Duration ManagerCore::Impl::load_time(const ModelState& model, const DeviceState& device) const {
  const Duration measured = model.load_times.at(model.host_cached ? 1 : 0);
  if (measured > Duration{}) {
    return measured;
  }
  const double rate = device.load_rate > 0 ? device.load_rate : kLoadRate;
  return std::max<Duration>(from_seconds(static_cast<double>(model.config.image_bytes) / rate),
                            1us);
}

/// What is expected of the model by the time that it could be on the device.
const policy::Forecast& ManagerCore::Impl::expected(const ModelState& model,
                                                    const DeviceState& device) const {
  return model.demand.expected_within(
      load_time(model, device) + options_.planner.period, now_, options_.planner.calendar);
}

/// The longest time before a window in which something may have to be done for it.
Duration ManagerCore::Impl::lead() const {
  Duration longest{};
  for (const auto& [id, model] : models_) {
    if (!model.foreign() && !model.config.footprints.empty()) {
      const DeviceState& device = devices_.at(model.config.footprints.begin()->first);
      longest = std::max(longest, load_time(model, device));
    }
  }
  return longest + options_.planner.period;
}

/// P(the model is asked for within a window): as its forecasts have come true; where there were
/// none, or they are wrong about the present window, as its requests come.
double ManagerCore::Impl::needed(const ModelState& model, const policy::Forecast& expected) const {
  const policy::Calendar& calendar = options_.planner.calendar;
  const std::optional<double> asked = expected.asked();
  const bool came = model.demand.last_used() >= calendar.start_of(calendar.window_at(now_));
  if (asked && (expected.busy || !came)) {
    return *asked;
  }
  const Duration idle = now_ - model.demand.last_used();
  const Duration gap = std::max({Duration(1ms), from_seconds(model.demand.mean_gap()), idle});
  return std::max(asked.value_or(0), policy::needed_by_renewal(calendar.window, gap));
}

/// P(it is asked for more than so many other instances bear).
double ManagerCore::Impl::needed_beside(const ModelState& model,
                                        const policy::Forecast& expected,
                                        std::int64_t others) const {
  const double limit = policy::kScaleUpShare * static_cast<double>(model.config.batch * others);
  return expected.error <= policy::kTrustedError
             ? policy::needed_by_forecast(limit, expected.load.mean, expected.load.peak)
             : 0;
}

/// What losing an idle instance is expected to cost [s]. Of several instances of a model only the
/// forecast can want the last ones.
double ManagerCore::Impl::worth(const DeviceState& device, ModelId id) const {
  const ModelState& model = models_.at(id);
  if (!options_.planner.value || model.foreign()) {
    return 0;
  }
  std::int64_t others = 0;
  for (const auto& [other_id, other] : devices_) {
    const auto found = other.instances.find(id);
    const bool there = found != other.instances.end();
    const bool serves = there && found->second.stage == InstanceStage::kServing;
    const bool ready = there && found->second.apart && gathered(id, other_id).whole();
    others += other_id != device.config.id && (serves || ready) ? 1 : 0;
  }
  const policy::Forecast& expected = this->expected(model, device);
  return policy::worth(
      {.needed = others == 0 ? needed(model, expected) : needed_beside(model, expected, others),
       .without = load_time(model, device),
       .with = Duration{},
       .ttft = std::max<Duration>(model.objectives().ttft, 1ms),
       .bytes = std::max<std::int64_t>(
           1, pages_of(device, id) * static_cast<std::int64_t>(device.config.page_bytes))});
}

/// How fast the KV of a model wants to grow, for one of its instances: Prism's weight [bytes/s^2].
double ManagerCore::Impl::kv_growth(ModelId id, const DeviceState& device) const {
  const ModelState& model = models_.at(id);
  const auto footprint = model.config.footprints.find(device.config.id);
  if (model.foreign() || footprint == model.config.footprints.end()) {
    return 0;
  }
  std::int64_t instances = 0;
  for (const auto& [other_id, other] : devices_) {
    instances += other.instances.contains(id) ? 1 : 0;
  }
  const double bytes = bytes_per_token(footprint->second, device.config.page_bytes);
  return policy::kv_demand(
      model.demand.token_rate(now_) / static_cast<double>(std::max<std::int64_t>(instances, 1)),
      static_cast<std::int64_t>(bytes),
      std::max<Duration>(model.objectives().tpot, 1ms));
}

/// KVPR of a device once `wanted` is there. Idle models do not count: what they have can be had.
double ManagerCore::Impl::pressure(const DeviceState& device, ModelId wanted) const {
  if (!options_.planner.pressure) {
    return 0;
  }
  double growth = kv_growth(wanted, device);
  std::int64_t weights = 0;
  std::int64_t workspace = 0;  // They share it.
  const auto weigh = [&](ModelId id) {
    const auto footprint = models_.at(id).config.footprints.find(device.config.id);
    if (footprint != models_.at(id).config.footprints.end()) {
      weights += footprint->second.image_pages;
      workspace = std::max(workspace, footprint->second.overhead_pages);
    }
  };
  weigh(wanted);
  for (const auto& [id, instance] : device.instances) {
    if (id != wanted && active(models_.at(id))) {
      growth += kv_growth(id, device);
      weigh(id);
    }
  }
  return policy::kv_pressure(growth,
                             (device.config.pages - weights - workspace) *
                                 static_cast<std::int64_t>(device.config.page_bytes));
}

// ---- What is counted ----

/// The first request of a model that had none.
void ManagerCore::Impl::note_start(ModelState& model, ModelId id) {
  StartKind kind = StartKind::kMiss;
  for (const auto& [device_id, device] : devices_) {
    if (model.cut()) {
      kind = std::min(kind, start_kind(id, device));
      continue;
    }
    const auto found = device.instances.find(id);
    if (found == device.instances.end()) {
      continue;
    }
    const Instance& instance = found->second;
    const bool serving = instance.stage == InstanceStage::kServing;
    const bool whole = instance.complete || model.foreign();
    const bool expected = instance.why == LoadReason::kForecast && !instance.used;
    if (serving && whole) {
      kind = std::min(kind, expected ? StartKind::kHit : StartKind::kWarm);
    } else if (serving || instance.stage == InstanceStage::kLoading) {
      kind = std::min(kind, StartKind::kAttach);
    }
  }
  ++model.starts[static_cast<std::size_t>(kind)];
}

/// All weights of an instance are there: what loads take is learnt from it.
void ManagerCore::Impl::note_complete(DeviceState& device, ModelId id, Instance& instance) {
  instance.complete = true;
  ModelState& model = models_.at(id);
  const Duration took = now_ - instance.load_began;
  Duration& known = model.load_times.at(instance.from_host ? 1 : 0);
  known = known == Duration{} ? took : known + from_seconds(kNewest * to_seconds(took - known));
  if (instance.from_host && took > Duration{}) {
    const double rate = static_cast<double>(model.config.image_bytes) / to_seconds(took);
    device.load_rate += (device.load_rate == 0 ? 1 : kNewest) * (rate - device.load_rate);
  }
}

/// An instance is gone; what was prewarmed for nobody was wasted.
void ManagerCore::Impl::note_gone(ModelId id, const Instance& instance) {
  if (instance.why == LoadReason::kForecast && !instance.used) {
    models_.at(whole(id)).wasted_bytes += models_.at(id).config.image_bytes;
  }
}

}  // namespace heddle::core
