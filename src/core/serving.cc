#include "core/serving.h"

namespace heddle::core {

std::string_view name(LoadReason reason) {
  switch (reason) {
    case LoadReason::kRequest:
      return "request";
    case LoadReason::kOperator:
      return "operator";
  }
  return "?";
}

std::string_view name(EvictionReason reason) {
  switch (reason) {
    case EvictionReason::kDisplaced:
      return "displaced";
    case EvictionReason::kOutgrown:
      return "outgrown";
    case EvictionReason::kIdle:
      return "idle";
    case EvictionReason::kOperator:
      return "operator";
    case EvictionReason::kRemoved:
      return "removed";
    case EvictionReason::kCramped:
      return "cramped";
    case EvictionReason::kFailed:
      return "failed";
  }
  return "?";
}

std::string_view name(EngineState state) {
  switch (state) {
    case EngineState::kStopped:
      return "stopped";
    case EngineState::kStarting:
      return "starting";
    case EngineState::kRunning:
      return "running";
    case EngineState::kSuspending:
      return "suspending";
    case EngineState::kSuspended:
      return "suspended";
    case EngineState::kResuming:
      return "resuming";
    case EngineState::kStopping:
      return "stopping";
  }
  return "?";
}

}  // namespace heddle::core
