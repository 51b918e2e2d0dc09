#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "base/result.h"

namespace heddle::ledger {

/// Memory that is counted by itself: that of one device, or that of the host.
using PoolId = Id<struct PoolIdTag>;
/// One lease. Given out from 1 upwards and never reused, so that a stale id finds nothing; 0 names
/// no lease.
using LeaseId = Id<struct LeaseIdTag>;

/// The memory of the host, which holds images. No device has this id.
inline constexpr PoolId kHostPool{~std::uint64_t{0}};
/// The memory of `device`.
[[nodiscard]] constexpr PoolId device_pool(DeviceId device) {
  return PoolId(device.value());
}

/// What the pages of a lease are for.
enum class LeaseKind : std::uint8_t {
  kWeightsActive,  ///< Weights of an instance that serves.
  kWeightsWarm,    ///< Weights of a prewarmed replica that has no requests yet.
  kWeightsIdle,    ///< Weights of a model whose requests have all ended.
  kKvOwn,          ///< KV of requests that run on this device.
  kKvGuest,        ///< KV of a hot model on the device of a cold one.
  kKvReserve,      ///< A right to pages that R0 and R1 leases hold; backed by none itself.
  kKvCached,       ///< Cached prefixes that no running request uses.
  kShardPipe,      ///< What a follower has for a pipeline: KV of its sequences.
  kExternal,       ///< An external engine, as a whole.
  kPrealloc,       ///< Pages an allocator keeps at hand.
  kOverhead,       ///< Context, workspace, graphs, activations, communicators.
  kImage,          ///< A weight image in the host cache.
};
inline constexpr std::size_t kLeaseKinds = 12;

/// How dear it is to take pages back, cheapest first: R0 costs nothing, R1 drops what can be loaded
/// or computed again, R2 breaks a promise not yet used, R3 moves or suspends what runs, R4 preempts
/// requests.
enum class RevokeClass : std::uint8_t { kR0, kR1, kR2, kR3, kR4, kNever };

[[nodiscard]] RevokeClass revoke_class(LeaseKind kind);
/// As in metric labels: "weights_active".
[[nodiscard]] std::string_view name(LeaseKind kind);

/// For whom a lease is held; the ledger only keeps it. Zero where it does not apply: a lease for a
/// model as a whole has no request, overhead has neither.
struct Holder {
  ModelId model{};
  RequestId request{};

  friend bool operator==(const Holder&, const Holder&) = default;
};

/// Pages of one pool, as asked for.
struct Demand {
  PoolId pool{};
  std::int64_t pages = 0;
};

/// A lease's pages in one pool, 0 <= held <= reserved.
struct Share {
  std::int64_t reserved = 0;  ///< Nobody else can have them.
  std::int64_t held = 0;      ///< Really in use: mapped, or filled.

  friend bool operator==(const Share&, const Share&) = default;
};

struct Lease {
  LeaseKind kind = LeaseKind::kOverhead;
  Holder holder{};
  std::map<PoolId, Share> shares{};  ///< One or more pools; several for a replica over devices.

  friend bool operator==(const Lease&, const Lease&) = default;
};

/// One pool at one moment: what metrics, dashboards and policies read.
struct PoolUsage {
  std::int64_t total = 0;
  std::int64_t free = 0;  ///< Reserved by nobody. Reserves of KV do not count, being unbacked.
  std::array<Share, kLeaseKinds> by_kind{};  ///< Indexed by LeaseKind.
  std::uint64_t version = 0;                 ///< Of the ledger, when this was read.

  [[nodiscard]] const Share& of(LeaseKind kind) const {
    return by_kind[static_cast<std::size_t>(kind)];
  }
  friend bool operator==(const PoolUsage&, const PoolUsage&) = default;
};

/// Who owns how many pages of which pool. Counts and refuses, nothing else: which pages they are is
/// memory::PagePool's, whose lease to revoke is a policy's. Every change of owner goes through it.
///
/// What it promises, per pool (docs/contracts/ledger.md):
///  - Pages reserved by all leases but kKvReserve never exceed the pool, so whoever has reserved
///    will find the pages.
///  - Pages reserved by leases of class R2 and above, kKvReserve among them, never exceed it
///  either,
///    so revoking R0 and R1 always makes room for what was promised.
///  - An operation that fails changes nothing.
///
/// Lack of pages is an Error (kResourceExhausted, with the numbers); naming a pool or lease that
/// does not exist, or giving back more than one has, is a bug of the caller and CHECK-fails. Used
/// by one thread; deterministic.
class Ledger {
 public:
  /// Adds an empty pool; `pool` is new and pages >= 0.
  void add_pool(PoolId pool, std::int64_t pages);
  /// Grows or shrinks a pool: an external engine takes physical pages away, or gives them back.
  Result<void> resize_pool(PoolId pool, std::int64_t pages);

  /// Reserves pages in all the pools of `demands` (distinct, one or more, pages >= 0), or in none.
  Result<LeaseId> reserve(LeaseKind kind, Holder holder, std::span<const Demand> demands);
  /// Reserves `pages` more for a lease in one of its pools.
  Result<void> grow(LeaseId lease, PoolId pool, std::int64_t pages);
  /// Gives back `pages` that are reserved and not held.
  void shrink(LeaseId lease, PoolId pool, std::int64_t pages);

  /// `pages` more of those reserved are now in use. Not for kKvReserve, which has none.
  void commit(LeaseId lease, PoolId pool, std::int64_t pages);
  /// `pages` of those held are no longer in use; they stay reserved.
  void uncommit(LeaseId lease, PoolId pool, std::int64_t pages);

  /// Hands a lease as it is, on all its pools, to another purpose and holder: the constant-time
  /// switch (warm to active on a hit, active to idle when drained, ...). Fails where the new kind
  /// promises pages that are promised to others. A lease that holds pages cannot become a
  /// kKvReserve.
  Result<void> transfer(LeaseId lease, LeaseKind kind, Holder holder);
  /// Ends a lease, held pages and all, in every pool: to revoke a replica is to free it everywhere.
  void release(LeaseId lease);

  /// The lease, or null when it has ended or never was. Valid until the next change.
  [[nodiscard]] const Lease* find(LeaseId lease) const;
  [[nodiscard]] const std::map<LeaseId, Lease>& leases() const { return leases_; }
  [[nodiscard]] PoolUsage usage(PoolId pool) const;
  /// Pages that revoking every lease of class `most` or cheaper would free in `pool`.
  [[nodiscard]] std::int64_t revocable_pages(PoolId pool, RevokeClass most) const;
  /// Goes up by one with every change, and only then. A command that names an older one is stale.
  [[nodiscard]] std::uint64_t version() const { return version_; }

  /// CHECK-fails if the sums disagree with the leases or break a promise above.
  void check_invariants() const;

 private:
  struct Pool {
    std::int64_t total = 0;
    std::array<Share, kLeaseKinds> by_kind{};
  };

  [[nodiscard]] const Pool& pool(PoolId id) const;
  [[nodiscard]] Pool& pool(PoolId id);
  [[nodiscard]] Lease& lease(LeaseId id);
  [[nodiscard]] bool has_room(PoolId id, LeaseKind kind, std::int64_t pages) const;
  [[nodiscard]] Error exhausted(const std::string& attempt, PoolId id) const;
  void move_reserved(LeaseId id, PoolId pool, std::int64_t pages);
  void move_held(LeaseId id, PoolId pool, std::int64_t pages);

  std::map<PoolId, Pool> pools_{};
  std::map<LeaseId, Lease> leases_{};
  std::uint64_t leases_given_ = 0;
  std::uint64_t version_ = 0;
};

}  // namespace heddle::ledger
