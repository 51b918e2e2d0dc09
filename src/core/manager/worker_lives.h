#pragma once

#include "core/manager/parts.h"

/// Lives of workers: one comes up, it ends, and fronts give up what they had there.
namespace heddle::core::manager {

/// Whether this worker is the one that the device has.
[[nodiscard]] bool alive(const State& state, DeviceId device, WorkerEpoch epoch);

/// Whether a request can be in flight on the model there.
[[nodiscard]] std::optional<ModelId> runs_as(const State& state, DeviceId device, ModelId model);

/// The model is on the device, and this manager did not order it.
void adopt(const Parts& core, DeviceId device, const ResidentReport& resident);

/// A worker that is up already, or was later, says nothing new.
void hear(const Parts& core, const WorkerUp& up);
/// Its models are there, and requests that were lost with it run on.
void hear(const Parts& core, const WorkerFound& found);
/// Its models are gone, and its requests nowhere until their fronts say PlaceLost.
void hear(const Parts& core, const WorkerDown& down);
/// The same of all its devices, after ExternalEngines has heard it. No death counts against
/// requests.
void hear(const Parts& core, const HostLost& lost);
void hear(const Parts& core, const HostLeaving& leaving);
/// Requests wait again, and a death counts against them.
void hear(const Parts& core, const PlaceLost& lost);

}  // namespace heddle::core::manager
