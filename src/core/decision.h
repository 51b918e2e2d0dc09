#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "base/time.h"

namespace heddle::core {

/// What the manager can decide about a model.
enum class DecisionKind : std::uint8_t {
  kLoad,      ///< Bring it to a device, for those who wait for it.
  kPrewarm,   ///< Bring it to a device before anybody waits for it.
  kAdd,       ///< Bring it to one device more: it has more load than those it has should bear.
  kMove,      ///< Bring it to another device, which has more memory to spare for its KV.
  kDrain,     ///< Send it nothing more there, so that it can be evicted.
  kEvict,     ///< Take it off a device.
  kWait,      ///< Leave it to wait: there is no place now, or its weights are on their way.
  kLend,      ///< Have a device lend memory to its KV (WEAVER).
  kRecall,    ///< Have that come back.
  kGather,    ///< Have KV of requests in its stages move to the whole of it, and them with it.
  kStepBack,  ///< Have its group end, and its shards stay.
};
inline constexpr std::size_t kDecisionKinds = 11;
/// As in listings: "prewarm".
[[nodiscard]] std::string_view name(DecisionKind kind);

/// Something that the manager decided, and why: a command of ManagerCore that changes nothing and
/// is kept for people.
struct Decision {
  DecisionKind kind = DecisionKind::kLoad;
  ModelId model{};
  std::optional<DeviceId> device{};  ///< Of kWait: where weights are on their way.
  /// Of kEvict, kDrain, kStepBack and kRecall: who needs the room.
  std::optional<ModelId> for_model{};
  std::string why{};  ///< A sentence with its numbers, without model and device.
  /// Of a load that requests wait for: until the one that waits longest has its first token, by
  /// estimate.
  std::optional<Duration> first_token{};
  friend bool operator==(const Decision&, const Decision&) = default;
};

}  // namespace heddle::core
