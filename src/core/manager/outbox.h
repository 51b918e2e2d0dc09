#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/manager/state.h"

namespace heddle::core::manager {

/// Where the parts of the core put the commands of the step that is under way.
class Outbox {
 public:
  explicit Outbox(const State& state) : state_(state) {}

  /// Begins a step, whose commands are appended to `commands`.
  void open(std::vector<ManagerCommand>& commands);
  /// Ends it: asks for a Tick at the earliest time that somebody wants to be woken.
  void close();

  template <class T>
  void act(T command) {
    commands_->push_back(std::move(command));
  }
  /// Says what was decided and why, for people; `first_token` as Decision has it.
  void note(DecisionKind kind,
            ModelId model,
            std::optional<DeviceId> device,
            std::string why,
            std::optional<ModelId> for_model = {},
            std::optional<Duration> first_token = {});
  /// Decisions are to be made again at this time, unless it is past.
  void wake_by(Instant at);

 private:
  const State& state_;
  std::vector<ManagerCommand>* commands_ = nullptr;
  std::optional<Instant> wake_{};   ///< Wanted now.
  std::optional<Instant> timer_{};  ///< Asked for.
};

}  // namespace heddle::core::manager
