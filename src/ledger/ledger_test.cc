#include "ledger/ledger.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::ledger {
namespace {

using ::testing::HasSubstr;

constexpr PoolId kDevice0 = device_pool(DeviceId(0));
constexpr PoolId kDevice1 = device_pool(DeviceId(1));

Result<LeaseId> reserve(Ledger& ledger, LeaseKind kind, PoolId pool, std::int64_t pages) {
  const Demand demand{.pool = pool, .pages = pages};
  return ledger.reserve(kind, Holder{}, {&demand, 1});
}

TEST(Ledger, CountsReservedAndHeldPagesByKind) {
  Ledger ledger;
  ledger.add_pool(kDevice0, 10);
  const LeaseId lease = *reserve(ledger, LeaseKind::kKvOwn, kDevice0, 4);
  ledger.commit(lease, kDevice0, 3);
  ledger.uncommit(lease, kDevice0, 1);
  const PoolUsage usage = ledger.usage(kDevice0);
  EXPECT_EQ(usage.total, 10);
  EXPECT_EQ(usage.free, 6);
  EXPECT_EQ(usage.of(LeaseKind::kKvOwn), (Share{.reserved = 4, .held = 2}));
  EXPECT_EQ(usage.of(LeaseKind::kWeightsWarm), Share{});
  EXPECT_EQ(usage.version, 4U);
  ledger.check_invariants();
}

TEST(Ledger, RefusesWithTheNumbers) {
  Ledger ledger;
  ledger.add_pool(kDevice0, 10);
  ASSERT_TRUE(reserve(ledger, LeaseKind::kWeightsIdle, kDevice0, 3));
  ASSERT_TRUE(reserve(ledger, LeaseKind::kOverhead, kDevice0, 2));
  const auto refused = reserve(ledger, LeaseKind::kWeightsActive, kDevice0, 6);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
  EXPECT_EQ(refused.error().message,
            "reserve 6 pages as weights_active on device 0: 5 of 10 pages are free, 3 more are "
            "revocable, 2 are promised");
  EXPECT_FALSE(reserve(ledger, LeaseKind::kImage, kDevice0, INT64_MAX));
}

TEST(Ledger, ReservesInAllPoolsOrNone) {
  Ledger ledger;
  ledger.add_pool(kDevice0, 10);
  ledger.add_pool(kDevice1, 4);
  const std::vector<Demand> demands{{kDevice0, 5}, {kDevice1, 5}};
  const std::uint64_t version = ledger.version();
  EXPECT_FALSE(ledger.reserve(LeaseKind::kWeightsWarm, Holder{}, demands));
  EXPECT_EQ(ledger.usage(kDevice0).free, 10);
  EXPECT_EQ(ledger.version(), version);
}

TEST(Ledger, RevokingAReplicaFreesAllItsDevices) {
  Ledger ledger;
  ledger.add_pool(kDevice0, 10);
  ledger.add_pool(kDevice1, 10);
  const std::vector<Demand> demands{{kDevice0, 6}, {kDevice1, 5}};
  const LeaseId replica = *ledger.reserve(LeaseKind::kWeightsWarm, Holder{}, demands);
  ledger.commit(replica, kDevice0, 6);
  ledger.release(replica);
  EXPECT_EQ(ledger.usage(kDevice0).free, 10);
  EXPECT_EQ(ledger.usage(kDevice1).free, 10);
  EXPECT_EQ(ledger.usage(kDevice0).of(LeaseKind::kWeightsWarm), Share{});
  EXPECT_EQ(ledger.find(replica), nullptr);
}

TEST(Ledger, TransferKeepsThePagesAndChangesWhatTheyAreFor) {
  Ledger ledger;
  ledger.add_pool(kDevice0, 10);
  const LeaseId lease = *reserve(ledger, LeaseKind::kWeightsWarm, kDevice0, 6);
  ledger.commit(lease, kDevice0, 6);
  const Holder holder{.model = ModelId(7), .request = RequestId(3)};
  ASSERT_TRUE(ledger.transfer(lease, LeaseKind::kWeightsActive, holder));
  EXPECT_EQ(ledger.find(lease)->holder, holder);
  EXPECT_EQ(ledger.usage(kDevice0).of(LeaseKind::kWeightsActive), (Share{6, 6}));
  EXPECT_EQ(ledger.usage(kDevice0).of(LeaseKind::kWeightsWarm), Share{});
  EXPECT_EQ(ledger.revocable_pages(kDevice0, RevokeClass::kR4), 0);
  ASSERT_TRUE(ledger.transfer(lease, LeaseKind::kWeightsIdle, holder));
  EXPECT_EQ(ledger.revocable_pages(kDevice0, RevokeClass::kR0), 0);
  EXPECT_EQ(ledger.revocable_pages(kDevice0, RevokeClass::kR1), 6);
}

// Eq. 1 of WarmServe: room promised to growing KV may hold warm models meanwhile, but never so many
// promises that revoking them would not make room for all.
TEST(Ledger, AReserveOverlapsWhatIsRevocableAndNothingElse) {
  Ledger ledger;
  ledger.add_pool(kDevice0, 10);
  const LeaseId warm = *reserve(ledger, LeaseKind::kWeightsWarm, kDevice0, 8);
  const LeaseId right = *reserve(ledger, LeaseKind::kKvReserve, kDevice0, 9);
  EXPECT_EQ(ledger.usage(kDevice0).free, 2);
  EXPECT_FALSE(reserve(ledger, LeaseKind::kKvOwn, kDevice0, 2)) << "9 of 10 are promised";
  EXPECT_FALSE(ledger.transfer(warm, LeaseKind::kWeightsActive, Holder{}));
  EXPECT_FALSE(ledger.transfer(right, LeaseKind::kKvOwn, Holder{})) << "2 of 10 are free";
  ledger.release(warm);
  EXPECT_TRUE(ledger.transfer(right, LeaseKind::kKvOwn, Holder{}));
  ledger.check_invariants();
}

TEST(Ledger, APoolShrinksOnlyToWhatIsReserved) {
  Ledger ledger;
  ledger.add_pool(kDevice0, 10);
  ASSERT_TRUE(reserve(ledger, LeaseKind::kExternal, kDevice0, 4));
  EXPECT_FALSE(ledger.resize_pool(kDevice0, 3));
  EXPECT_TRUE(ledger.resize_pool(kDevice0, 4));
  EXPECT_EQ(ledger.usage(kDevice0).free, 0);
  const auto refused = reserve(ledger, LeaseKind::kImage, kDevice0, 1);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("0 of 4 pages are free"));
}

TEST(Ledger, NamesAndClassesOfAllKinds) {
  std::vector<std::string> names;
  for (std::size_t kind = 0; kind < kLeaseKinds; ++kind) {
    names.emplace_back(name(static_cast<LeaseKind>(kind)));
  }
  EXPECT_THAT(names,
              ::testing::ElementsAre("weights_active",
                                     "weights_warm",
                                     "weights_idle",
                                     "kv_own",
                                     "kv_guest",
                                     "kv_reserve",
                                     "kv_cached",
                                     "shard_pipe",
                                     "foreign",  // Old name.
                                     "prealloc",
                                     "overhead",
                                     "image"));
  EXPECT_EQ(revoke_class(LeaseKind::kKvGuest), RevokeClass::kR3);
  EXPECT_EQ(revoke_class(LeaseKind::kShardPipe), RevokeClass::kR2);
  EXPECT_EQ(revoke_class(LeaseKind::kOverhead), RevokeClass::kNever);
}

TEST(LedgerDeathTest, MisuseIsABug) {
  Ledger ledger;
  ledger.add_pool(kDevice0, 10);
  const LeaseId lease = *reserve(ledger, LeaseKind::kKvOwn, kDevice0, 4);
  ledger.commit(lease, kDevice0, 2);
  EXPECT_DEATH(ledger.commit(lease, kDevice0, 3), "held <= ");
  EXPECT_DEATH(ledger.uncommit(lease, kDevice0, 3), "0 <= held");
  EXPECT_DEATH(ledger.shrink(lease, kDevice0, 3), "held");
  EXPECT_DEATH((void)ledger.grow(lease, kDevice1, 0), "pools_");
  EXPECT_DEATH(ledger.release(LeaseId(9)), "leases_");
  EXPECT_DEATH((void)ledger.transfer(lease, LeaseKind::kKvReserve, Holder{}), "is_backed");
}

/// The ledger as one would write it without any sums: every question recounts all leases.
struct NaiveLedger {
  std::map<PoolId, std::int64_t> totals;
  std::map<LeaseId, Lease> leases;

  [[nodiscard]] PoolUsage usage(PoolId pool, std::uint64_t version) const {
    PoolUsage usage{.total = totals.at(pool), .free = totals.at(pool), .version = version};
    for (const auto& [id, lease] : leases) {
      if (const auto share = lease.shares.find(pool); share != lease.shares.end()) {
        Share& sum = usage.by_kind.at(static_cast<std::size_t>(lease.kind));
        sum.reserved += share->second.reserved;
        sum.held += share->second.held;
        usage.free -= lease.kind == LeaseKind::kKvReserve ? 0 : share->second.reserved;
      }
    }
    return usage;
  }

  /// Whether all promises of the ledger hold.
  [[nodiscard]] bool sound() const {
    return std::all_of(totals.begin(), totals.end(), [&](const auto& pool) {
      std::int64_t backed = 0;
      std::int64_t firm = 0;
      for (const auto& [id, lease] : leases) {
        const auto share = lease.shares.find(pool.first);
        if (share == lease.shares.end()) {
          continue;
        }
        backed += lease.kind == LeaseKind::kKvReserve ? 0 : share->second.reserved;
        firm += revoke_class(lease.kind) >= RevokeClass::kR2 ? share->second.reserved : 0;
      }
      return backed <= pool.second && firm <= pool.second;
    });
  }
};

/// Draws operations, applies each to the ledger and to the naive one, and compares.
class Walk {
 public:
  explicit Walk(std::uint64_t seed) : rng_(seed) {
    for (const PoolId pool : {kDevice0, kDevice1, kHostPool}) {
      const auto pages = static_cast<std::int64_t>(8 + rng_.below(40));
      ledger_.add_pool(pool, pages);
      naive_.totals[pool] = pages;
    }
  }

  void step() {
    const std::uint64_t version = ledger_.version();
    const NaiveLedger before = naive_;
    const bool changed = naive_.leases.empty() || rng_.below(4) == 0 ? reserve() : change();
    if (!changed) {
      naive_ = before;
    }
    ASSERT_EQ(ledger_.version(), version + (changed ? 1 : 0));
    ASSERT_EQ(ledger_.leases(), naive_.leases);
    for (const auto& [pool, pages] : naive_.totals) {
      ASSERT_EQ(ledger_.usage(pool), naive_.usage(pool, ledger_.version()));
      ASSERT_GE(ledger_.usage(pool).free, 0);
    }
    ledger_.check_invariants();
  }

 private:
  std::int64_t pages(std::int64_t most) {
    return static_cast<std::int64_t>(rng_.below(static_cast<std::uint64_t>(most) + 1));
  }
  LeaseKind kind() { return static_cast<LeaseKind>(rng_.below(kLeaseKinds)); }

  bool reserve() {
    std::vector<Demand> demands;
    Lease lease{.kind = kind(), .holder = {.model = ModelId(rng_.below(5))}};
    for (const auto& [pool, total] : naive_.totals) {
      if (rng_.below(2) == 0 || (demands.empty() && pool == naive_.totals.rbegin()->first)) {
        demands.push_back({.pool = pool, .pages = pages(20)});
        lease.shares[pool].reserved = demands.back().pages;
      }
    }
    const auto made = ledger_.reserve(lease.kind, lease.holder, demands);
    naive_.leases[made ? *made : LeaseId(0)] = lease;
    EXPECT_EQ(made.has_value(), naive_.sound());
    return made.has_value();
  }

  bool change() {
    auto at = std::next(naive_.leases.begin(), pages(std::ssize(naive_.leases) - 1));
    const LeaseId id = at->first;
    Lease& lease = at->second;
    auto& [pool, share] = *std::next(lease.shares.begin(), pages(std::ssize(lease.shares) - 1));
    switch (rng_.below(7)) {
      case 0: {
        const std::int64_t more = pages(8);
        share.reserved += more;
        const bool done = ledger_.grow(id, pool, more).has_value();
        EXPECT_EQ(done, naive_.sound());
        return done;
      }
      case 1: {
        const std::int64_t fewer = pages(share.reserved - share.held);
        share.reserved -= fewer;
        ledger_.shrink(id, pool, fewer);
        return true;
      }
      case 2: {
        const std::int64_t more =
            lease.kind == LeaseKind::kKvReserve ? 0 : pages(share.reserved - share.held);
        share.held += more;
        if (lease.kind == LeaseKind::kKvReserve) {
          ledger_.uncommit(id, pool, 0);
        } else {
          ledger_.commit(id, pool, more);
        }
        return true;
      }
      case 3: {
        const std::int64_t fewer = pages(share.held);
        share.held -= fewer;
        ledger_.uncommit(id, pool, fewer);
        return true;
      }
      case 4:
        return transfer(id, lease);
      case 5:
        naive_.leases.erase(at);
        ledger_.release(id);
        return true;
      default: {
        const PoolId resized = pool;
        const std::int64_t total = pages(48);
        naive_.totals[resized] = total;
        const bool done = ledger_.resize_pool(resized, total).has_value();
        EXPECT_EQ(done, naive_.sound());
        return done;
      }
    }
  }

  bool transfer(LeaseId id, Lease& lease) {
    const bool holds = std::any_of(lease.shares.begin(), lease.shares.end(), [](const auto& share) {
      return share.second.held > 0;
    });
    const LeaseKind drawn = kind();
    lease.kind = drawn == LeaseKind::kKvReserve && holds ? LeaseKind::kKvOwn : drawn;
    lease.holder = {.model = ModelId(rng_.below(5)), .request = RequestId(rng_.below(5))};
    const bool done = ledger_.transfer(id, lease.kind, lease.holder).has_value();
    EXPECT_EQ(done, naive_.sound());
    return done;
  }

  Rng rng_;
  Ledger ledger_{};
  NaiveLedger naive_{};
};

TEST(LedgerProperty, AgreesWithRecountingUnderRandomOperations) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Walk walk(seed);
    for (int i = 0; i < 200; ++i) {
      walk.step();
      if (HasFailure()) {
        return;
      }
    }
  }
}

}  // namespace
}  // namespace heddle::ledger
