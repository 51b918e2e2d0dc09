#include "sim/memory.h"

#include "base/check.h"

namespace heddle::sim {
namespace {

bool is_device(PoolId pool) {
  return pool < host_pool(HostId(0));
}

}  // namespace

void Memory::account(Instant now, LeaseKind kind, PoolId pool, std::int64_t pages) {
  if (!is_device(pool)) {
    return;
  }
  Total& total = totals_.at(static_cast<std::size_t>(kind));
  total.page_seconds += static_cast<double>(total.pages) * to_seconds(now - total.since);
  total.since = now;
  total.pages += pages;
}

LeaseId Memory::reserve(Instant now,
                        LeaseKind kind,
                        ledger::Holder holder,
                        std::span<const ledger::Demand> demands) {
  for (const ledger::Demand& demand : demands) {
    if (free(demand.pool) < demand.pages) {
      return LeaseId(0);
    }
  }
  const Result<LeaseId> lease = ledger_.reserve(kind, holder, demands);
  if (!lease) {
    return LeaseId(0);
  }
  for (const ledger::Demand& demand : demands) {
    account(now, kind, demand.pool, demand.pages);
  }
  return *lease;
}

bool Memory::grow(Instant now, LeaseId lease, PoolId pool, std::int64_t pages) {
  // Asked first because a refusal is common here, and the ledger's explains itself at length.
  if (free(pool) < pages || !ledger_.grow(lease, pool, pages)) {
    return false;
  }
  account(now, ledger_.find(lease)->kind, pool, pages);
  return true;
}

void Memory::shrink(Instant now, LeaseId lease, PoolId pool, std::int64_t pages) {
  ledger_.shrink(lease, pool, pages);
  account(now, ledger_.find(lease)->kind, pool, -pages);
}

bool Memory::transfer(Instant now, LeaseId lease, LeaseKind kind) {
  const ledger::Lease before = *ledger_.find(lease);
  if (before.kind == kind) {
    return true;
  }
  if (!ledger_.transfer(lease, kind, before.holder)) {
    return false;
  }
  for (const auto& [pool, share] : before.shares) {
    account(now, before.kind, pool, -share.reserved);
    account(now, kind, pool, share.reserved);
  }
  return true;
}

void Memory::release(Instant now, LeaseId lease) {
  const ledger::Lease* ended = ledger_.find(lease);
  HEDDLE_CHECK(ended != nullptr);
  for (const auto& [pool, share] : ended->shares) {
    account(now, ended->kind, pool, -share.reserved);
  }
  ledger_.release(lease);
}

std::int64_t Memory::reserved(LeaseId lease, PoolId pool) const {
  const ledger::Lease* found = ledger_.find(lease);
  if (found == nullptr) {
    return 0;
  }
  const auto share = found->shares.find(pool);
  return share == found->shares.end() ? 0 : share->second.reserved;
}

double Memory::page_seconds(Instant now, LeaseKind kind) const {
  const Total& total = totals_.at(static_cast<std::size_t>(kind));
  return total.page_seconds + static_cast<double>(total.pages) * to_seconds(now - total.since);
}

}  // namespace heddle::sim
