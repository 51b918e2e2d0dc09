#include "core/serving.h"

namespace heddle::core {

namespace {

constexpr std::size_t kMostIncidents = 64;  ///< Of one request.

}  // namespace

std::string_view name(IncidentKind kind) {
  switch (kind) {
    case IncidentKind::kPreempted:
      return "preempted";
    case IncidentKind::kRecalled:
      return "recalled";
    case IncidentKind::kReturned:
      return "returned";
    case IncidentKind::kLost:
      return "lost";
    case IncidentKind::kResumed:
      return "resumed";
    case IncidentKind::kSuspended:
      return "suspended";
    case IncidentKind::kAwoken:
      return "awoken";
  }
  return "?";
}

void note(std::vector<Incident>& incidents, const Incident& incident) {
  if (incidents.size() < kMostIncidents) {
    incidents.push_back(incident);
  }
}

void note_resumed(std::vector<Incident>& incidents, Instant now, DeviceId device) {
  if (incidents.empty()) {
    return;
  }
  const IncidentKind last = incidents.back().kind;
  if (last == IncidentKind::kRecalled || last == IncidentKind::kReturned ||
      last == IncidentKind::kLost) {
    note(incidents, {.at = now, .kind = IncidentKind::kResumed, .device = device});
  }
}

std::string_view name(LoadReason reason) {
  switch (reason) {
    case LoadReason::kRequest:
      return "request";
    case LoadReason::kOperator:
      return "operator";
    case LoadReason::kForecast:
      return "forecast";
    case LoadReason::kLoad:
      return "load";
    case LoadReason::kPressure:
      return "pressure";
    case LoadReason::kGather:
      return "gather";
    case LoadReason::kLeave:
      return "leave";
  }
  return "?";
}

std::string_view name(StartKind kind) {
  switch (kind) {
    case StartKind::kWarm:
      return "warm";
    case StartKind::kHit:
      return "hit";
    case StartKind::kAttach:
      return "attach";
    case StartKind::kMiss:
      return "miss";
  }
  return "?";
}

std::string_view name(DecisionKind kind) {
  switch (kind) {
    case DecisionKind::kLoad:
      return "load";
    case DecisionKind::kPrewarm:
      return "prewarm";
    case DecisionKind::kAdd:
      return "add";
    case DecisionKind::kMove:
      return "move";
    case DecisionKind::kDrain:
      return "drain";
    case DecisionKind::kEvict:
      return "evict";
    case DecisionKind::kLend:
      return "lend";
    case DecisionKind::kRecall:
      return "recall";
    case DecisionKind::kGather:
      return "gather";
    case DecisionKind::kStepBack:
      return "step_back";
    case DecisionKind::kWait:
      return "wait";
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
    case EvictionReason::kMoved:
      return "moved";
    case EvictionReason::kTurn:
      return "turn";
    case EvictionReason::kLeave:
      return "leave";
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

std::string_view name(HostPresence presence) {
  switch (presence) {
    case HostPresence::kAway:
      return "away";
    case HostPresence::kHere:
      return "here";
    case HostPresence::kLeaving:
      return "leaving";
  }
  return "?";
}

}  // namespace heddle::core
