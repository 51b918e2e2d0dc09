#include "core/manager/outbox.h"

namespace heddle::core::manager {

void Outbox::open(std::vector<ManagerCommand>& commands) {
  commands_ = &commands;
  wake_.reset();
}

/// A timer that is set for too early a time is left to fire: deadlines end with every request, and
/// then there is nothing to set.
void Outbox::close() {
  if (wake_ && (!timer_ || *timer_ <= state_.now || *wake_ < *timer_)) {
    act(WakeAt{.at = *wake_});
    timer_ = wake_;
  }
  commands_ = nullptr;
}

void Outbox::note(DecisionKind kind,
                  ModelId model,
                  std::optional<DeviceId> device,
                  std::string why,
                  std::optional<ModelId> for_model,
                  std::optional<Duration> first_token) {
  act(Decision{.kind = kind,
               .model = model,
               .device = device,
               .for_model = for_model,
               .why = std::move(why),
               .first_token = first_token});
}

void Outbox::wake_by(Instant at) {
  if (at > state_.now && (!wake_ || at < *wake_)) {
    wake_ = at;
  }
}

}  // namespace heddle::core::manager
