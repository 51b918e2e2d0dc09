#include "manager/switch_times.h"

namespace heddle::manager {

void SwitchTimes::ordered(DeviceId device,
                          ModelId model,
                          Instant now,
                          std::optional<Instant> wanted_since) {
  loads_[{device, model}] = {.wanted = wanted_since, .ordered = now};
}

void SwitchTimes::told(DeviceId device, ModelId model, Instant now) {
  const auto found = loads_.find({device, model});
  if (found != loads_.end()) {
    found->second.told = now;
  }
}

std::optional<SwitchPhases> SwitchTimes::serves(DeviceId device, ModelId model, Instant now) {
  const auto found = loads_.find({device, model});
  if (found == loads_.end() || !found->second.told) {
    return std::nullopt;
  }
  const Load load = found->second;
  loads_.erase(found);
  SwitchPhases phases{.image = *load.told - load.ordered, .map = now - *load.told};
  if (load.wanted) {
    phases.decide = load.ordered - *load.wanted;
  }
  return phases;
}

void publish(const SwitchPhases& phases, const std::string& model, Metrics& metrics) {
  const auto observe = [&](const char* phase, Duration took) {
    metrics.observe("heddle_switch_phase_seconds",
                    "Switches to a model, by what their time was spent on.",
                    {{"model_name", model}, {"phase", phase}},
                    latency_bounds(),
                    to_seconds(took));
  };
  if (phases.decide) {
    observe("decide", *phases.decide);
  }
  observe("image", phases.image);
  observe("map", phases.map);
}

void publish(const core::PlanMeasured& measured, Metrics& metrics) {
  static const std::vector<double> kBounds{0.25, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2, 4, 10};
  if (measured.predicted <= Duration{}) {
    return;  // All was there: nothing was predicted.
  }
  metrics.observe("heddle_plan_first_token_ratio",
                  "First tokens that waited for a load, over what was predicted as it was decided.",
                  {{"plan", std::string(policy::name(measured.kind))}},
                  kBounds,
                  to_seconds(measured.took) / to_seconds(measured.predicted));
}

}  // namespace heddle::manager
