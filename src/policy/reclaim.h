#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/time.h"
#include "policy/admission.h"
#include "policy/replica_map.h"

namespace heddle::policy {

enum class ReserveVariant : std::uint8_t {
  kPaper,     ///< WarmServe Eq. 1; heddle uses it as it is.
  kArtifact,  ///< Its authors' code keeps M R / C pages free on top of the used ones.
};

/// The KV cache of an instance in its grace period: it takes no new requests, and those it has end
/// one by one. Pages are per device, the same number on each of its devices.
struct GraceView {
  std::int64_t kv_pages = 0;       ///< M: what the instance could hold when the period began.
  std::int64_t kv_pages_held = 0;  ///< Of these, not released yet.
  std::int64_t kv_pages_used = 0;  ///< K: of these, with tokens in them.
  std::int64_t requests = 0;       ///< R: still running.
  std::int64_t batch = 0;          ///< C: the most it runs at once.
};

/// The pages that the instance keeps, at most M:
///   kPaper     max(ceil(M R / C), K + ceil(M / C))     (Eq. 1)
///   kArtifact  K + ceil(M R / C)
/// All of them where C or M is 0. Never fewer than are used.
[[nodiscard]] std::int64_t kv_reserve(const GraceView& view, ReserveVariant variant);

/// How many of the held pages to release now, to weights that are prewarmed; asked whenever a
/// request ends. Only pages without tokens go.
[[nodiscard]] std::int64_t pages_to_release(const GraceView& view, ReserveVariant variant);

/// Time to unmap a page and map it for its next owner, pages one after the other on a device.
inline constexpr Duration kRemapPage = std::chrono::microseconds(40);

/// How an instance gets back pages that it had released.
struct Revocation {
  /// Released pages that nothing was loaded into yet, on the device that gives the most.
  std::int64_t unused_pages = 0;
  std::vector<ReplicaId> revoke{};  ///< Prewarmed replicas to drop, the least worth first.
  Duration unmapped_after{};        ///< Pages count only then; plus the wait for work in flight.
  /// Even without any replica there are not enough: this sequence gives up its KV and is computed
  /// again later. nullopt with `enough` false: only the oldest is left, which stays.
  std::optional<SequenceId> preempt{};
  bool enough = false;  ///< Without preempting.
  friend bool operator==(const Revocation&, const Revocation&) = default;
};

/// The way back that WarmServe lacks: the instance `instance` of `map`, draining, must have
/// `need_pages` more on each of its devices for requests that it admitted. First what nobody
/// uses; then prewarmed replicas on devices that are short, the least worth first and none that the
/// others make unnecessary (a replica dies on all its devices); then the newest of its `sequences`.
/// Own KV of admitted requests outranks prewarming, so this always succeeds for the oldest request.
/// Pure. O(r log r) for r replicas on its devices.
[[nodiscard]] Revocation choose_revocation(const ReplicaMap& map,
                                           ReplicaId instance,
                                           std::int64_t need_pages,
                                           std::span<const AdmissionView> sequences);

}  // namespace heddle::policy
