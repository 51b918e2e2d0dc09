#include "policy/reclaim.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::policy {
namespace {

using namespace std::chrono_literals;

// M = 320 pages, C = 32: 10 pages a request.
GraceView grace(std::int64_t requests, std::int64_t used, std::int64_t held = 320) {
  return {.kv_pages = 320,
          .kv_pages_held = held,
          .kv_pages_used = used,
          .requests = requests,
          .batch = 32};
}

TEST(KvReserve, IsTheGreaterPartOfEquation1) {
  EXPECT_EQ(kv_reserve(grace(8, 40), ReserveVariant::kPaper), 80);    // 320 * 8 / 32 > 40 + 10.
  EXPECT_EQ(kv_reserve(grace(8, 100), ReserveVariant::kPaper), 110);  // Long requests: K + M / C.
  EXPECT_EQ(kv_reserve(grace(32, 10), ReserveVariant::kPaper), 320);
  EXPECT_EQ(kv_reserve(grace(31, 315), ReserveVariant::kPaper), 320);  // Never more than M.
  EXPECT_EQ(kv_reserve(grace(0, 0), ReserveVariant::kPaper), 10);
  EXPECT_EQ(kv_reserve({.kv_pages = 7, .requests = 1, .batch = 2}, ReserveVariant::kPaper), 4);
}

TEST(KvReserve, TheArtifactKeepsThatMuchFree) {
  EXPECT_EQ(kv_reserve(grace(8, 40), ReserveVariant::kArtifact), 120);
  EXPECT_EQ(kv_reserve(grace(31, 200), ReserveVariant::kArtifact), 320);
}

TEST(KvReserve, NoBatchOrNoCacheKeepsAll) {
  GraceView view = grace(1, 1);
  view.batch = 0;
  EXPECT_EQ(kv_reserve(view, ReserveVariant::kPaper), 320);
  EXPECT_EQ(kv_reserve({.batch = 32}, ReserveVariant::kPaper), 0);
}

TEST(PagesToRelease, AreTheSurplusAndNothingTwice) {
  EXPECT_EQ(pages_to_release(grace(8, 40), ReserveVariant::kPaper), 240);
  EXPECT_EQ(pages_to_release(grace(8, 40, 80), ReserveVariant::kPaper), 0);
  EXPECT_EQ(pages_to_release(grace(8, 40, 60), ReserveVariant::kPaper), 0);  // Grown since.
  EXPECT_EQ(pages_to_release(grace(7, 35, 80), ReserveVariant::kPaper), 10);
}

// Property: used pages stay, and as requests end one by one what is kept never grows.
TEST(PagesToRelease, NeverTouchUsedPages) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    const auto m = static_cast<std::int64_t>(rng.below(1000));
    GraceView view{.kv_pages = m,
                   .kv_pages_held = m,
                   .kv_pages_used = static_cast<std::int64_t>(rng.below(1000)) % (m + 1),
                   .requests = static_cast<std::int64_t>(rng.below(40)),
                   .batch = static_cast<std::int64_t>(rng.below(40))};
    for (; view.requests >= 0; --view.requests) {
      for (const ReserveVariant variant : {ReserveVariant::kPaper, ReserveVariant::kArtifact}) {
        const std::int64_t released = pages_to_release(view, variant);
        ASSERT_GE(released, 0);
        ASSERT_GE(view.kv_pages_held - released, view.kv_pages_used);
      }
      view.kv_pages_held -= pages_to_release(view, ReserveVariant::kPaper);
      view.kv_pages_used -= view.kv_pages_used / 3;
    }
  }
}

class Revoking : public ::testing::Test {
 protected:
  Revoking() {
    put(1, {0, 1}, 50, {}, ReplicaState::kDraining);
    put(2, {0}, 20, {.tier = 0, .score = 1});
    put(3, {0}, 30, {.tier = 1, .score = 0.5});
    put(4, {0, 1}, 10, {.tier = 0, .score = 3});
    put(5, {2}, 10, {});
  }

  void put(std::uint64_t id,
           std::vector<std::uint64_t> devices,
           std::int64_t pages,
           ReplicaWorth worth,
           ReplicaState state = ReplicaState::kReady) {
    PlacedReplica replica{
        .id = ReplicaId(id), .model = ModelId(id), .state = state, .pages = pages, .worth = worth};
    for (const std::uint64_t device : devices) {
      replica.devices.emplace_back(device);
    }
    map_.place(replica);
  }

  // Free after these: 2 on device 0, 52 on device 1.
  ReplicaMap map_{std::vector<MapDevice>{{.id = DeviceId(0), .free_pages = 112},
                                         {.id = DeviceId(1), .free_pages = 112},
                                         {.id = DeviceId(2), .free_pages = 112}}};
  std::vector<AdmissionView> sequences_{
      {.id = SequenceId(1), .arrived = Instant(1s), .admitted = true, .tokens = 9, .cached = 9},
      {.id = SequenceId(2), .arrived = Instant(2s), .admitted = true, .tokens = 9, .cached = 9}};
};

TEST_F(Revoking, UnusedPagesComeFirst) {
  const Revocation result = choose_revocation(map_, ReplicaId(1), 2, sequences_);
  EXPECT_TRUE(result.enough);
  EXPECT_TRUE(result.revoke.empty());
  EXPECT_EQ(result.unused_pages, 2);
  EXPECT_EQ(result.unmapped_after, 80us);
}

TEST_F(Revoking, ThenTheLeastWorthOfTheDeviceThatIsShort) {
  const Revocation result = choose_revocation(map_, ReplicaId(1), 12, sequences_);
  EXPECT_TRUE(result.enough);
  EXPECT_EQ(result.revoke, std::vector{ReplicaId(2)});
  EXPECT_EQ(result.unmapped_after, kRemapPage * (12 + 20));
  EXPECT_FALSE(result.preempt);
}

TEST_F(Revoking, BasicReplicasAreTheLastToGoAndSuperfluousOnesStay) {
  // 45 pages: 2 free, 20 and 10 are not enough; with the 30 of the basic one the 10 may stay.
  const Revocation result = choose_revocation(map_, ReplicaId(1), 45, sequences_);
  EXPECT_TRUE(result.enough);
  EXPECT_EQ(result.revoke, (std::vector{ReplicaId(2), ReplicaId(3)}));
}

TEST_F(Revoking, ThenTheNewestRequestIsPreemptedAndTheOldestNever) {
  const Revocation result = choose_revocation(map_, ReplicaId(1), 70, sequences_);
  EXPECT_FALSE(result.enough);
  EXPECT_EQ(result.revoke.size(), 3U);
  EXPECT_EQ(result.preempt, SequenceId(2));
  sequences_.pop_back();
  EXPECT_FALSE(choose_revocation(map_, ReplicaId(1), 70, sequences_).preempt);
}

TEST_F(Revoking, LoadsOnTheWayGoToo) {
  map_.set_state(ReplicaId(2), ReplicaState::kLoading);
  EXPECT_EQ(choose_revocation(map_, ReplicaId(1), 12, sequences_).revoke,
            std::vector{ReplicaId(2)});
}

}  // namespace
}  // namespace heddle::policy
