#pragma once

#include <set>
#include <vector>

#include "core/manager/outbox.h"
#include "core/manager/state.h"

namespace heddle::core::manager {

/// Which devices are kept for models that have waited for long (policy/reservations.h). What is
/// kept is said anew at each look, by the model that has waited for longest first.
class Reservations {
 public:
  Reservations(State& state, Outbox& out) : state_(state), out_(out) {}

  /// Keeps all these devices for the model, or none where one of them is kept for a model that was
  /// named before it at this look. `from` as policy::Reservation has it.
  void keep(ModelId model, Instant since, const std::vector<ShardPlace>& places, Instant from);
  /// Ends the look: devices that nobody named are kept for nobody.
  void settle();

 private:
  State& state_;
  Outbox& out_;
  std::set<DeviceId> kept_{};   ///< All that were at the last look.
  std::set<DeviceId> named_{};  ///< At this one.
};

}  // namespace heddle::core::manager
