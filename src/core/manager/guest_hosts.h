#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "core/manager/state.h"
#include "policy/weave.h"

/// Which device could lend memory to KV of a model elsewhere (WEAVER; docs/contracts/guests.md).
namespace heddle::core::manager {

/// Memory for KV on a device, as its worker last said [pages].
struct KvRoom {
  std::int64_t own = 0;   ///< KV of sequences.
  std::int64_t free = 0;  ///< Cached prefixes included.
  [[nodiscard]] std::int64_t all() const { return own + free; }
  [[nodiscard]] double use() const {
    return static_cast<double>(own) / static_cast<double>(std::max<std::int64_t>(all(), 1));
  }
};

[[nodiscard]] KvRoom kv_room(const DeviceState& device);

/// Nothing else happens to the device's memory now.
[[nodiscard]] bool calm(const State& state, const DeviceState& device);

/// The model on `hot` and a device that has guests of it, or could have, as policies see them.
[[nodiscard]] policy::WeavePair pair_of(const State& state,
                                        const DeviceState& hot,
                                        const DeviceState& host,
                                        ModelId model);

/// Memory that a device can lend.
struct GuestOffer {
  DeviceId host{};
  std::int64_t pages = 0;  ///< More than 0, beyond what it lends the model already.
  double share = 0;        ///< Of all KV of the model on `hot`, what is then away.
};

/// What another device could lend the model on `hot` now, as much as its share of the work there;
/// nullopt: nothing.
[[nodiscard]] std::optional<GuestOffer> guest_offer(const State& state,
                                                    const DeviceState& hot,
                                                    ModelId model);

}  // namespace heddle::core::manager
