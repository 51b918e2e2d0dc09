#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "core/manager/events.h"
#include "core/serving.h"

namespace heddle::core {

/// What the manager decides: on which device each model is, which are the victims, which request
/// goes where and when, how often a failed load is tried again. Decides, never acts; equal events
/// at equal times give equal commands. Used by one thread.
///
/// Every request that arrived ends in exactly one way: the shell says RequestFinished or
/// RequestCancelled, or this says FailRequest.
class ManagerCore {
 public:
  ManagerCore();
  ~ManagerCore();
  ManagerCore(ManagerCore&&) noexcept;
  ManagerCore& operator=(ManagerCore&&) noexcept;

  /// Takes in one event and appends the commands it gives rise to. Times never go backwards. The
  /// first event is Configure.
  void step(Instant now, const ManagerEvent& event, std::vector<ManagerCommand>& commands);

  /// For listings and metrics; by id. Reading wakes nothing.
  [[nodiscard]] std::vector<ModelStatus> models() const;
  [[nodiscard]] std::vector<DeviceStatus> devices() const;

  /// The longest prompt and answer together [tokens] that the model can have on the device that
  /// suits it best, alone there; at most its context. 0: unknown model, or none can hold it.
  [[nodiscard]] std::int64_t tokens_max(ModelId model) const;

  /// When the first came of the requests that wait for the model; nullopt: none does.
  [[nodiscard]] std::optional<Instant> waits_since(ModelId model) const;

  /// CHECK-fails if the state contradicts itself.
  void check_invariants() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace heddle::core
