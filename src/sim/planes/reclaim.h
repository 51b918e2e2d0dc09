#pragma once

#include <cstdint>

namespace heddle::sim {

enum class ReserveVariant : std::uint8_t {
  kPaper,     ///< WarmServe Eq. 1; heddle uses it as it is.
  kArtifact,  ///< Its authors' code keeps M R / C pages free on top of the used ones.
};

/// The KV cache of an instance in its grace period: it takes no new requests, and those it has end
/// one by one. Pages are per device, the same number on each of its devices.
struct GraceView {
  std::int64_t kv_pages = 0;       ///< M: what the instance could hold when the period began.
  std::int64_t kv_pages_used = 0;  ///< K: of these, with tokens in them.
  std::int64_t requests = 0;       ///< R: still running.
  std::int64_t batch = 0;          ///< C: the most it runs at once.
};

/// The pages that the instance keeps, at most M:
///   kPaper     max(ceil(M R / C), K + ceil(M / C))     (Eq. 1)
///   kArtifact  K + ceil(M R / C)
/// All of them where C or M is 0. Never fewer than are used.
[[nodiscard]] std::int64_t kv_reserve(const GraceView& view, ReserveVariant variant);

}  // namespace heddle::sim
