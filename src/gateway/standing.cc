#include "gateway/standing.h"

namespace heddle::gateway {

namespace {

Standing standing(core::Residency residency) {
  switch (residency) {
    case core::Residency::kAbsent:
      return Standing::kAway;
    case core::Residency::kLoading:
      return Standing::kComing;
    case core::Residency::kWarm:
    case core::Residency::kServing:
      return Standing::kReady;
    case core::Residency::kDraining:
      return Standing::kLeaving;
  }
  return Standing::kAway;
}

Standing standing(core::EngineState state) {
  switch (state) {
    case core::EngineState::kStopped:
    case core::EngineState::kSuspended:
      return Standing::kAway;
    case core::EngineState::kStarting:
    case core::EngineState::kResuming:
      return Standing::kComing;
    case core::EngineState::kRunning:
      return Standing::kReady;
    case core::EngineState::kSuspending:
    case core::EngineState::kStopping:
      return Standing::kLeaving;
  }
  return Standing::kAway;
}

}  // namespace

Standing standing_of(const Context& context, const std::string& model) {
  const std::shared_ptr<CatalogModel> known = context.catalog.find(model);
  if (known == nullptr) {
    return Standing::kAway;  // A peer's.
  }
  if (known->config.engine) {
    for (const core::EngineStatus& engine : context.serving->engines()) {
      if (engine.model == known->id) {
        return standing(engine.state);
      }
    }
    return Standing::kAway;
  }
  for (const core::ModelStatus& status : context.serving->models()) {
    if (status.id == known->id) {
      return standing(status.residency);
    }
  }
  return Standing::kAway;
}

}  // namespace heddle::gateway
