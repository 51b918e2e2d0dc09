#include "gateway/model_states.h"

namespace heddle::gateway {

std::string_view state_name(core::Residency residency) {
  switch (residency) {
    case core::Residency::kAbsent:
      return "unloaded";
    case core::Residency::kLoading:
      return "loading";
    case core::Residency::kWarm:
    case core::Residency::kServing:
    case core::Residency::kDraining:
      return "loaded";
  }
  return "unloaded";
}

std::string_view state_name(core::EngineState state) {
  switch (state) {
    case core::EngineState::kStarting:
    case core::EngineState::kResuming:
      return "loading";
    case core::EngineState::kRunning:
      return "loaded";
    case core::EngineState::kSuspending:
    case core::EngineState::kSuspended:
      return "sleeping";
    case core::EngineState::kStopped:
    case core::EngineState::kStopping:
      return "unloaded";
  }
  return "unloaded";
}

std::string_view process_state_name(core::Residency residency) {
  switch (residency) {
    case core::Residency::kAbsent:
      return "stopped";
    case core::Residency::kLoading:
      return "starting";
    case core::Residency::kWarm:
    case core::Residency::kServing:
      return "ready";
    case core::Residency::kDraining:
      return "stopping";
  }
  return "stopped";
}

std::string_view process_state_name(core::EngineState state) {
  switch (state) {
    case core::EngineState::kStarting:
    case core::EngineState::kResuming:
      return "starting";
    case core::EngineState::kRunning:
      return "ready";
    case core::EngineState::kSuspending:
    case core::EngineState::kStopping:
      return "stopping";
    case core::EngineState::kSuspended:
    case core::EngineState::kStopped:
      return "stopped";
  }
  return "stopped";
}

}  // namespace heddle::gateway
