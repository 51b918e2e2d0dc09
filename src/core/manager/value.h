#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

#include "core/manager/state.h"

/// How much models are expected to be asked for, what it takes to load them, and what losing them
/// would cost.
namespace heddle::core::manager {

/// Of weights [bytes/s], until a load was measured.
inline constexpr double kLoadRate = 1e9;
/// Of an external engine, until a start was measured: llama.cpp takes seconds, vLLM a minute.
inline constexpr Duration kEngineStart = std::chrono::seconds(30);

/// The instance has requests, or its model has some that wait.
[[nodiscard]] bool busy(const State& state, ModelId model, const Instance& instance);

/// The model has requests, or the usual time to its next one is not over.
[[nodiscard]] bool active(const State& state, const ModelState& model);

/// From the tier that its weights are in now to their last byte; as measured, else as its bytes
/// take that other models' took. Where the host has to fetch them first, no less than that takes.
/// Of an external engine that is there: to bring it back, as its host measured it; of any other to
/// start it; else kEngineStart.
[[nodiscard]] Duration load_time(const State& state,
                                 const ModelState& model,
                                 const DeviceState& device);

/// From then until a request's first token, where it runs undisturbed; as measured, else 0.
[[nodiscard]] Duration prompt_time(const ModelState& model);

/// Until the busy instance has ended its requests, by how long those of its model take.
[[nodiscard]] Duration busy_time(const ModelState& users, const Instance& instance);

/// load_time() of one model on many devices; ascending, those of a host follow each other.
class LoadTimes {
 public:
  LoadTimes(const State& state, const ModelState& model) : state_(state), model_(model) {}
  [[nodiscard]] Duration on(const DeviceState& device) const;

 private:
  const State& state_;
  const ModelState& model_;
  mutable std::optional<std::pair<HostId, double>> last_{};  // And the rate of the device.
  mutable Duration time_{};
};

/// Until what may be in the way has left: the longest swap out of an external engine that runs
/// there beside the model.
[[nodiscard]] Duration leaving_time(const State& state, const DeviceState& device, ModelId model);

/// Whether it is an external engine that comes for nobody yet, and takes longer than a request
/// bears with: one that wants its place does not wait until it is there.
[[nodiscard]] bool comes_for_nobody(const State& state,
                                    const ModelState& model,
                                    const DeviceState& device);

/// How long before a window something may have to be done for the model to be on the device in
/// time.
[[nodiscard]] Duration lead(const State& state, const ModelState& model, const DeviceState& device);
/// The longest of these.
[[nodiscard]] Duration lead(const State& state);

/// What is expected of the model by the time that it could be on the device.
[[nodiscard]] const policy::Forecast& expected(const State& state,
                                               const ModelState& model,
                                               const DeviceState& device);

/// What losing this instance is expected to cost [s]: of a shard, what its group is worth. Of
/// several instances of a model only the forecast can want the last ones. Of an external engine:
/// its swap out and its return, as likely as it is needed again. 0 where PlannerOptions::value is
/// off.
[[nodiscard]] double worth(const State& state, const DeviceState& device, ModelId model);

/// What it is expected to cost [s] that the host loses the model's image: as likely as somebody
/// asks for the model within a day, the time that a load takes longer. 0 where
/// PlannerOptions::value is off.
[[nodiscard]] double image_worth(const State& state, const ModelState& model, HostId host);

/// As worth() to a request that waits for the place: it waits for an engine's swap out in any case.
[[nodiscard]] double worth_to_waiting(const State& state, const DeviceState& device, ModelId model);

/// Until all shards are there, were those loaded now that are not; they are loaded at once.
[[nodiscard]] Duration missing(const State& state, ModelId model, DeviceId leader);

/// How fast the KV of a model wants to grow, for one of its instances: Prism's weight [bytes/s^2].
[[nodiscard]] double kv_growth(const State& state, ModelId model, const DeviceState& device);

/// KVPR of a device (Prism) once `wanted` is there. Idle models do not count: what they have can be
/// had. 0 where PlannerOptions::pressure is off.
[[nodiscard]] double pressure(const State& state, const DeviceState& device, ModelId wanted);

}  // namespace heddle::core::manager
