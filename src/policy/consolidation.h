#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/time.h"

namespace heddle::policy {

/// A stage of a pipeline group that serves.
struct GroupMember {
  DeviceId device{};
  bool full = false;            ///< Memory for the whole model is reserved already.
  std::int64_t free_bytes = 0;  ///< That it could still get on its device.
};

/// A request that the group serves.
struct GroupRequest {
  RequestId id{};
  std::int64_t tokens = 0;  ///< In the KV cache.
  Instant waiting_since{};  ///< For its last token.
};

struct GroupView {
  std::int64_t weights = 0;                ///< Of the whole model [bytes].
  std::int64_t kv_per_token = 0;           ///< Of all layers [bytes].
  std::int64_t wanted = 1;                 ///< Workers that should go on, from the autoscaler.
  std::span<const GroupMember> members{};  ///< In pipeline order; 1 or more.
  std::span<const GroupRequest> requests{};
};

enum class ConsolidationKind : std::uint8_t {
  kStay,       ///< No member can hold the whole model now: the pipeline goes on.
  kScaleDown,  ///< One goes on, the others end.
  kScaleUp,    ///< Several go on.
};
/// "scale_down".
[[nodiscard]] std::string_view name(ConsolidationKind kind);

/// A member that becomes a worker of its own.
struct Survivor {
  DeviceId device{};
  std::int64_t fetch_bytes = 0;       ///< Of the layers it lacks, in the background.
  std::vector<RequestId> requests{};  ///< That it takes over, in the order of the gather.
  std::int64_t gather_bytes = 0;      ///< Their KV that other members hold.
  friend bool operator==(const Survivor&, const Survivor&) = default;
};

struct Consolidation {
  ConsolidationKind kind = ConsolidationKind::kStay;
  std::vector<Survivor> survivors{};
  std::vector<DeviceId> leaving{};  ///< End once all gathers are done.
  friend bool operator==(const Consolidation&, const Consolidation&) = default;
};

/// What a pipeline group becomes (HydraServe, section 6.1): `wanted` members, at most all, fetch
/// the M (s-1)/s they lack and go on as workers of their own. Full-memory members first, in
/// pipeline order, then those with the most free memory that suffices. Each request goes, the
/// longest waiting first, to the survivor that has the least to gather; its KV outside of it is
/// tokens * kv * (s-1)/s. It stays with the group until its own gather. Decided once, after the
/// first token: background fetches depend on it. Pure. O(s log s + R (log R + s)).
[[nodiscard]] Consolidation choose_consolidation(const GroupView& view);

}  // namespace heddle::policy
