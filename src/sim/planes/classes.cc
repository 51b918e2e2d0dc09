#include "sim/planes/classes.h"

#include "base/check.h"

namespace heddle::sim {
namespace {

constexpr double kHotFrom = 0.5;
constexpr double kHotUntil = 0.3;
constexpr double kHotFromWithParts = 0.2;
constexpr std::int64_t kActivationsPerGap = 5;

bool hot(const ClassInputs& inputs, ModelClass present) {
  if (inputs.parts > 1 && inputs.utilisation >= kHotFromWithParts) {
    return true;
  }
  return inputs.utilisation >= (present == ModelClass::kHot ? kHotUntil : kHotFrom);
}

}  // namespace

std::string_view name(ModelClass model_class) {
  switch (model_class) {
    case ModelClass::kExternal:
      return "external";
    case ModelClass::kHot:
      return "hot";
    case ModelClass::kTail:
      return "tail";
    case ModelClass::kCold:
      return "cold";
    case ModelClass::kWarm:
      return "warm";
  }
  return "?";
}

ModelClass wanted_class(const ClassInputs& inputs, ModelClass present) {
  if (inputs.external) {
    return ModelClass::kExternal;
  }
  if (hot(inputs, present)) {
    return ModelClass::kHot;
  }
  if (!inputs.on_host) {
    return ModelClass::kTail;
  }
  const bool long_gaps =
      inputs.median_gap && *inputs.median_gap >= kActivationsPerGap * inputs.activation;
  return long_gaps ? ModelClass::kCold : ModelClass::kWarm;
}

bool ClassKeeper::tick(const ClassInputs& inputs) {
  const ModelClass wanted = wanted_class(inputs, present_);
  agreeing_ = wanted == wanted_ ? agreeing_ + 1 : 1;
  wanted_ = wanted;
  if (wanted_ == present_ || agreeing_ < kTicks) {
    return false;
  }
  present_ = wanted_;
  return true;
}

bool runs_dedicated(ModelClass model_class) {
  return model_class == ModelClass::kHot;
}

std::string_view name(DeviceMode mode) {
  switch (mode) {
    case DeviceMode::kIdle:
      return "idle";
    case DeviceMode::kUniversal:
      return "universal";
    case DeviceMode::kDedicated:
      return "dedicated";
    case DeviceMode::kGrace:
      return "grace";
    case DeviceMode::kShared:
      return "shared";
    case DeviceMode::kExternal:
      return "external";
  }
  return "?";
}

DeviceMode device_mode(const DeviceFacts& facts) {
  HEDDLE_CHECK(facts.dedicated <= 1);
  if (facts.external > 0) {
    return DeviceMode::kExternal;
  }
  if (facts.stages > 0 || facts.shared > 0) {
    return DeviceMode::kShared;
  }
  if (facts.dedicated > 0) {
    return facts.draining ? DeviceMode::kGrace : DeviceMode::kDedicated;
  }
  return facts.droppable > 0 ? DeviceMode::kUniversal : DeviceMode::kIdle;
}

PoolChange choose_pool_change(const PoolView& view, const PoolOptions& options) {
  HEDDLE_CHECK(options.shrink_below < options.grow_above);
  const bool missing = view.missing_for >= options.missing;
  if (view.max_pressure > options.grow_above || missing) {
    return view.universal ? PoolChange::kGrow : PoolChange::kKeep;
  }
  const bool fewer_do = view.with_one_fewer && *view.with_one_fewer < options.shrink_below;
  return fewer_do && view.missing_for == Duration{} ? PoolChange::kShrink : PoolChange::kKeep;
}

}  // namespace heddle::sim
