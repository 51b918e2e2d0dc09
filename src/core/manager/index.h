#pragma once

#include <utility>

#include "core/manager/state.h"

/// Keeps State::index. A writer that has changed something says what: then each list has what it
/// should before anybody looks.
namespace heddle::core::manager {

/// An instance came, went, or is not as it was: its stage, its requests, or what it is to do.
void reindex(State& state, DeviceId device, ModelId model);
/// Something else of the device changed: its life, its plan, who has it, what it lacks or lends.
void reindex(State& state, DeviceId device);
/// Something of the model changed: who waits for it, what operators want, its claim.
void reindex(State& state, ModelId model);
/// The device is another place than before for models that want one, for no reason named above.
void replace(State& state, DeviceId device);
/// The request was lost with its worker, or is not lost any more.
void reindex(State& state, RequestId request);
/// The group is looked after now; it is in the list again when something happens to it.
void settle(State& state, ModelId model, DeviceId leader);
/// Everything anew, as after a configuration.
void reindex(State& state);

/// For so long the device has had this use.
[[nodiscard]] Duration time_used(const State& state, const DeviceState& device, DeviceUse use);

/// CHECK-fails where a list is not what a look at everything gives.
void check_index(const State& state);

/// Calls `look` with each entry in ascending order, also with those that it adds further on, and
/// not with those that it takes out before.
template <class Set, class Look>
void each(const Set& set, Look look) {
  for (auto at = set.begin(); at != set.end();) {
    const auto key = *at;
    look(key);
    at = set.upper_bound(key);
  }
}

}  // namespace heddle::core::manager
