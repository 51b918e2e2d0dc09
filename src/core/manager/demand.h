#pragma once

#include <optional>

#include "core/manager/state.h"

namespace heddle::core::manager {

class Outbox;

/// Measures how much models are asked for, what loading them takes, and what became of prewarming.
class Demand {
 public:
  Demand(State& state, Outbox& out) : state_(state), out_(out) {}

  /// Takes over what an earlier manager measured.
  void remember(const LoadRemembered& remembered);
  /// A request came; its prompt and answer together have at most so many tokens.
  void arrived(ModelId model, std::int64_t tokens);
  /// A request left, served in `took`; nullopt: unserved.
  void left(ModelId model, std::optional<Duration> took);
  /// A request ran undisturbed on a warm instance.
  void observe_warm(ModelId model, Duration ttft, std::optional<Duration> tpot);
  /// Counts how the first request of a model that had none finds it.
  void count_start(ModelId model);
  /// All weights of the instance are there, or the engine serves: learns what loads take. Of a
  /// sharded model that is learnt where all shards of the group were begun together.
  void learn_load(DeviceId device, ModelId model);
  /// The instance goes, or is suspended; what was prewarmed and not used was wasted.
  void count_waste(DeviceId device, ModelId model);
  /// When a window is over, all models' loads in it are known and the next can be forecast.
  void turn_window();
  /// Requests of the model in the system, as a time average of the last periods.
  [[nodiscard]] double load(ModelId model);

 private:
  void learn(DeviceState& device, ModelId model);

  State& state_;
  Outbox& out_;
};

}  // namespace heddle::core::manager
