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

}  // namespace heddle::manager
