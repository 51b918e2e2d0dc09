#include "ledger/ledger.h"

#include <string>

#include "base/check.h"

namespace heddle::ledger {
namespace {

struct KindTraits {
  std::string_view name;
  RevokeClass revoke;
};

constexpr std::array<KindTraits, kLeaseKinds> kTraits{{
    {"weights_active", RevokeClass::kNever},
    {"weights_warm", RevokeClass::kR1},
    {"weights_idle", RevokeClass::kR1},
    {"kv_own", RevokeClass::kR4},
    {"kv_guest", RevokeClass::kR3},
    {"kv_reserve", RevokeClass::kR2},
    {"kv_cached", RevokeClass::kR1},
    {"shard_pipe", RevokeClass::kR2},
    {"foreign", RevokeClass::kR3},  // Old name.
    {"prealloc", RevokeClass::kR0},
    {"overhead", RevokeClass::kNever},
    {"image", RevokeClass::kR1},
}};

const KindTraits& traits(LeaseKind kind) {
  return kTraits.at(static_cast<std::size_t>(kind));
}

/// Whether reserved pages are really set aside, and not merely a right to those of others.
bool is_backed(LeaseKind kind) {
  return kind != LeaseKind::kKvReserve;
}
/// Whether having reserved is a promise that no revocation of R0 and R1 leases breaks.
bool is_promise(LeaseKind kind) {
  return revoke_class(kind) >= RevokeClass::kR2;
}

/// Sums the reserved pages of the kinds that `counts`.
std::int64_t sum_reserved(const std::array<Share, kLeaseKinds>& by_kind,
                          bool (*counts)(LeaseKind)) {
  std::int64_t pages = 0;
  for (std::size_t kind = 0; kind < kLeaseKinds; ++kind) {
    pages += counts(static_cast<LeaseKind>(kind)) ? by_kind.at(kind).reserved : 0;
  }
  return pages;
}

std::string describe(PoolId pool) {
  return pool == kHostPool ? "the host" : "device " + std::to_string(pool.value());
}

/// The two sums that never exceed a pool.
bool fits(const std::array<Share, kLeaseKinds>& by_kind, std::int64_t total) {
  return sum_reserved(by_kind, is_backed) <= total && sum_reserved(by_kind, is_promise) <= total;
}

void check_share(LeaseKind kind, const Share& share) {
  HEDDLE_CHECK(0 <= share.held && share.held <= share.reserved);
  HEDDLE_CHECK(is_backed(kind) || share.held == 0);
}

}  // namespace

RevokeClass revoke_class(LeaseKind kind) {
  return traits(kind).revoke;
}

std::string_view name(LeaseKind kind) {
  return traits(kind).name;
}

void Ledger::add_pool(PoolId id, std::int64_t pages) {
  HEDDLE_CHECK(pages >= 0);
  HEDDLE_CHECK(pools_.emplace(id, Pool{.total = pages}).second);
  ++version_;
}

Result<void> Ledger::resize_pool(PoolId id, std::int64_t pages) {
  HEDDLE_CHECK(pages >= 0);
  Pool& resized = pool(id);
  if (!fits(resized.by_kind, pages)) {
    return exhausted("resize the pool to " + std::to_string(pages) + " pages", id);
  }
  resized.total = pages;
  ++version_;
  return {};
}

Result<LeaseId> Ledger::reserve(LeaseKind kind, Holder holder, std::span<const Demand> demands) {
  HEDDLE_CHECK(!demands.empty());
  Lease made{.kind = kind, .holder = holder};
  for (const Demand& demand : demands) {
    HEDDLE_CHECK(demand.pages >= 0);
    HEDDLE_CHECK(made.shares.emplace(demand.pool, Share{.reserved = demand.pages}).second);
    if (!has_room(demand.pool, kind, demand.pages)) {
      return exhausted(
          "reserve " + std::to_string(demand.pages) + " pages as " + std::string(name(kind)),
          demand.pool);
    }
  }
  for (const Demand& demand : demands) {
    pool(demand.pool).by_kind.at(static_cast<std::size_t>(kind)).reserved += demand.pages;
  }
  const LeaseId id(++leases_given_);
  leases_.emplace(id, std::move(made));
  ++version_;
  return id;
}

Result<void> Ledger::grow(LeaseId id, PoolId pool_id, std::int64_t pages) {
  HEDDLE_CHECK(pages >= 0);
  const LeaseKind kind = lease(id).kind;
  if (!has_room(pool_id, kind, pages)) {
    return exhausted("grow lease " + std::to_string(id.value()) + " (" + std::string(name(kind)) +
                         ") by " + std::to_string(pages) + " pages",
                     pool_id);
  }
  move_reserved(id, pool_id, pages);
  return {};
}

void Ledger::shrink(LeaseId id, PoolId pool_id, std::int64_t pages) {
  HEDDLE_CHECK(pages >= 0);
  move_reserved(id, pool_id, -pages);
}

void Ledger::commit(LeaseId id, PoolId pool_id, std::int64_t pages) {
  HEDDLE_CHECK(pages >= 0);
  HEDDLE_CHECK(is_backed(lease(id).kind));
  move_held(id, pool_id, pages);
}

void Ledger::uncommit(LeaseId id, PoolId pool_id, std::int64_t pages) {
  HEDDLE_CHECK(pages >= 0);
  move_held(id, pool_id, -pages);
}

Result<void> Ledger::transfer(LeaseId id, LeaseKind kind, Holder holder) {
  Lease& moved = lease(id);
  const auto from = static_cast<std::size_t>(moved.kind);
  const auto to = static_cast<std::size_t>(kind);
  // Only the pools of this lease change, so they are all that is copied and put back.
  std::map<PoolId, Pool> after;
  for (const auto& [pool_id, share] : moved.shares) {
    HEDDLE_CHECK(is_backed(kind) || share.held == 0);
    Pool changed = pool(pool_id);
    changed.by_kind.at(from).reserved -= share.reserved;
    changed.by_kind.at(from).held -= share.held;
    changed.by_kind.at(to).reserved += share.reserved;
    changed.by_kind.at(to).held += share.held;
    if (!fits(changed.by_kind, changed.total)) {
      return exhausted("transfer lease " + std::to_string(id.value()) + " from " +
                           std::string(name(moved.kind)) + " to " + std::string(name(kind)),
                       pool_id);
    }
    after.emplace(pool_id, changed);
  }
  for (const auto& [pool_id, changed] : after) {
    pool(pool_id) = changed;
  }
  moved.kind = kind;
  moved.holder = holder;
  ++version_;
  return {};
}

void Ledger::release(LeaseId id) {
  const Lease& ended = lease(id);
  for (const auto& [pool_id, share] : ended.shares) {
    Share& sum = pool(pool_id).by_kind.at(static_cast<std::size_t>(ended.kind));
    sum.reserved -= share.reserved;
    sum.held -= share.held;
  }
  leases_.erase(id);
  ++version_;
}

const Lease* Ledger::find(LeaseId id) const {
  const auto found = leases_.find(id);
  return found == leases_.end() ? nullptr : &found->second;
}

PoolUsage Ledger::usage(PoolId id) const {
  const Pool& read = pool(id);
  return PoolUsage{.total = read.total,
                   .free = read.total - sum_reserved(read.by_kind, is_backed),
                   .by_kind = read.by_kind,
                   .version = version_};
}

std::int64_t Ledger::revocable_pages(PoolId id, RevokeClass most) const {
  HEDDLE_CHECK(most < RevokeClass::kNever);
  const Pool& read = pool(id);
  std::int64_t pages = 0;
  for (std::size_t index = 0; index < kLeaseKinds; ++index) {
    const auto kind = static_cast<LeaseKind>(index);
    if (is_backed(kind) && revoke_class(kind) <= most) {
      pages += read.by_kind.at(index).reserved;
    }
  }
  return pages;
}

void Ledger::check_invariants() const {
  std::map<PoolId, std::array<Share, kLeaseKinds>> sums;
  for (const auto& [id, checked] : leases_) {
    HEDDLE_CHECK(id.value() > 0 && id.value() <= leases_given_);
    HEDDLE_CHECK(!checked.shares.empty());
    for (const auto& [pool_id, share] : checked.shares) {
      check_share(checked.kind, share);
      Share& sum = sums[pool_id].at(static_cast<std::size_t>(checked.kind));
      sum.reserved += share.reserved;
      sum.held += share.held;
    }
  }
  for (const auto& [id, checked] : pools_) {
    HEDDLE_CHECK(sums[id] == checked.by_kind);
    HEDDLE_CHECK(fits(checked.by_kind, checked.total));
  }
  HEDDLE_CHECK(sums.size() == pools_.size());  // No lease names a pool that is not there.
}

/// Whether `pages` more can be reserved for a kind. Compares before it adds: a demand may be
/// absurd.
bool Ledger::has_room(PoolId id, LeaseKind kind, std::int64_t pages) const {
  Pool after = pool(id);
  if (pages > after.total) {
    return false;
  }
  after.by_kind.at(static_cast<std::size_t>(kind)).reserved += pages;
  return fits(after.by_kind, after.total);
}

/// The error for `attempt`, with the numbers that stood in its way.
Error Ledger::exhausted(const std::string& attempt, PoolId id) const {
  const Pool& full = pool(id);
  const std::int64_t free = full.total - sum_reserved(full.by_kind, is_backed);
  return Error{.code = Code::kResourceExhausted,
               .message = attempt + " on " + describe(id) + ": " + std::to_string(free) + " of " +
                          std::to_string(full.total) + " pages are free, " +
                          std::to_string(revocable_pages(id, RevokeClass::kR1)) +
                          " more are revocable, " +
                          std::to_string(sum_reserved(full.by_kind, is_promise)) + " are promised"};
}

const Ledger::Pool& Ledger::pool(PoolId id) const {
  const auto found = pools_.find(id);
  HEDDLE_CHECK(found != pools_.end());
  return found->second;
}

Ledger::Pool& Ledger::pool(PoolId id) {
  const auto found = pools_.find(id);
  HEDDLE_CHECK(found != pools_.end());
  return found->second;
}

Lease& Ledger::lease(LeaseId id) {
  const auto found = leases_.find(id);
  HEDDLE_CHECK(found != leases_.end());
  return found->second;
}

/// Reserves `pages` more (or fewer) for a lease; the caller has seen that they fit.
void Ledger::move_reserved(LeaseId id, PoolId pool_id, std::int64_t pages) {
  Lease& moved = lease(id);
  const auto share = moved.shares.find(pool_id);
  HEDDLE_CHECK(share != moved.shares.end());
  HEDDLE_CHECK(share->second.reserved + pages >= share->second.held);
  share->second.reserved += pages;
  pool(pool_id).by_kind.at(static_cast<std::size_t>(moved.kind)).reserved += pages;
  ++version_;
}

/// Holds `pages` more (or fewer) of those a lease has reserved.
void Ledger::move_held(LeaseId id, PoolId pool_id, std::int64_t pages) {
  Lease& moved = lease(id);
  const auto share = moved.shares.find(pool_id);
  HEDDLE_CHECK(share != moved.shares.end());
  const std::int64_t held = share->second.held + pages;
  HEDDLE_CHECK(0 <= held && held <= share->second.reserved);
  share->second.held = held;
  pool(pool_id).by_kind.at(static_cast<std::size_t>(moved.kind)).held += pages;
  ++version_;
}

}  // namespace heddle::ledger
