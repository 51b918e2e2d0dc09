#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/time.h"
#include "ledger/ledger.h"
#include "sim/cluster.h"

namespace heddle::sim {

using ledger::LeaseId;
using ledger::LeaseKind;
using ledger::PoolId;

/// The host pool of `host`; above all device pools.
[[nodiscard]] constexpr PoolId host_pool(HostId host) {
  return PoolId((std::uint64_t{1} << 32U) + host.value());
}

/// The ledger of the simulated cluster, with the integral of page-time per lease kind. Every change
/// of owner goes through ledger::Ledger; this only remembers for how long.
class Memory {
 public:
  void add_pool(PoolId pool, std::int64_t pages) { ledger_.add_pool(pool, pages); }
  /// As Ledger's, at `now`; a lease id of 0 says that there was no room.
  LeaseId reserve(Instant now,
                  LeaseKind kind,
                  ledger::Holder holder,
                  std::span<const ledger::Demand> demands);
  bool grow(Instant now, LeaseId lease, PoolId pool, std::int64_t pages);
  void shrink(Instant now, LeaseId lease, PoolId pool, std::int64_t pages);
  bool transfer(Instant now, LeaseId lease, LeaseKind kind);
  void release(Instant now, LeaseId lease);

  [[nodiscard]] std::int64_t free(PoolId pool) const { return ledger_.usage(pool).free; }
  [[nodiscard]] std::int64_t reserved(LeaseId lease, PoolId pool) const;
  [[nodiscard]] const ledger::Ledger& ledger() const { return ledger_; }
  /// Page-seconds that leases of `kind` had until `now`, on devices.
  [[nodiscard]] double page_seconds(Instant now, LeaseKind kind) const;

 private:
  void account(Instant now, LeaseKind kind, PoolId pool, std::int64_t pages);

  struct Total {
    std::int64_t pages = 0;
    double page_seconds = 0;
    Instant since{};
  };
  ledger::Ledger ledger_{};
  std::array<Total, ledger::kLeaseKinds> totals_{};
};

}  // namespace heddle::sim
