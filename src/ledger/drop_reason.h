#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace heddle::ledger {

/// Why a page of LeaseKind::kKvCached was taken back.
enum class DropReason : std::uint8_t {
  kKv,      ///< KV of a running sequence needed the page.
  kLoad,    ///< A model that was loaded needed it.
  kBound,   ///< More was cached than may be.
  kClosed,  ///< Its model left the device.
};
inline constexpr std::size_t kDropReasons = 4;

/// As in metric labels: "kv", "load".
[[nodiscard]] constexpr std::string_view name(DropReason reason) {
  constexpr std::array<std::string_view, kDropReasons> kNames{"kv", "load", "bound", "closed"};
  return kNames.at(static_cast<std::size_t>(reason));
}

/// Pages taken back, by DropReason.
using DropCounts = std::array<std::uint64_t, kDropReasons>;

}  // namespace heddle::ledger
