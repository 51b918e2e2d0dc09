#pragma once

#include <cstdint>
#include <string>

#include "core/manager/outbox.h"
#include "core/manager/state.h"

namespace heddle::core::manager {

/// Pages that devices lend to KV of models elsewhere (WEAVER; docs/contracts/guests.md).
class GuestLoans {
 public:
  GuestLoans(State& state, Outbox& out) : state_(state), out_(out) {}

  /// Has `host` lend so many pages more to KV of the model on `hot`.
  void lend(DeviceId host, DeviceId hot, ModelId model, std::int64_t pages, std::string why);
  /// Has so many come back, as far as they are not on their way already; `for_model` needs them.
  void recall(DeviceId host,
              ModelId model,
              std::int64_t pages,
              const std::string& why,
              std::optional<ModelId> for_model = {});
  /// The same of any models' guests.
  void recall_any(DeviceId host,
                  std::int64_t pages,
                  const std::string& why,
                  std::optional<ModelId> for_model = {});
  /// Before `model` is loaded there: has what it lacks come back. The load waits for that.
  void make_room(DeviceId host, ModelId model);
  /// As the agent says.
  void heard(const GuestState& said);
  void heard(const GuestPeers& said);
  /// Nothing is heard of the device any more: what it lends is not known.
  void forget(DeviceId host);
  /// The loan is of use now.
  void used(DeviceId host, ModelId model);

 private:
  State& state_;
  Outbox& out_;
};

/// Pages that the device lends or is about to, and that are not on their way back.
[[nodiscard]] std::int64_t lent_pages(const DeviceState& device);
/// Whether KV of a model that runs there is on another device, or about to be.
[[nodiscard]] bool has_guests_elsewhere(const State& state, DeviceId device);

}  // namespace heddle::core::manager
