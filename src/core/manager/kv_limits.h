#pragma once

#include <optional>

#include "core/manager/outbox.h"
#include "core/manager/state.h"

namespace heddle::core::manager {

/// The writer of Instance::elastic: what elastic engines say of their KV, and how much they are
/// told that it may have.
class KvLimits {
 public:
  KvLimits(State& state, Outbox& out) : state_(state), out_(out) {}

  /// What one that runs says.
  void heard(const EngineKv& said);
  /// It does not run any more.
  void forget(DeviceId device, ModelId model);
  /// Its KV may have so many pages: says so to its host, and to people where that is news.
  /// @param for_model  Who wants what it gives up.
  void limit(DeviceId device, ModelId model, std::int64_t pages, std::optional<ModelId> for_model);

 private:
  [[nodiscard]] Instance& instance(DeviceId device, ModelId model) {
    return state_.devices.at(device).instances.at(model);
  }

  State& state_;
  Outbox& out_;
};

}  // namespace heddle::core::manager
