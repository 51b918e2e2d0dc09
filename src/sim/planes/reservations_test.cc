#include "sim/planes/reservations.h"

#include <set>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::sim {
namespace {

using namespace std::chrono_literals;

constexpr Instant kNow{100s};
const std::vector<policy::DevicePages> kTwo = {{DeviceId(0), 80}, {DeviceId(1), 80}};

using Ids = std::vector<ReservationId>;

Reservation want(std::uint64_t id,
                 std::int64_t pages,
                 std::vector<std::uint64_t> devices = {0},
                 std::optional<Duration> lasts = std::nullopt) {
  Reservation made{.id = ReservationId(id), .model = ModelId(id), .lasts = lasts};
  for (const std::uint64_t device : devices) {
    made.pages.push_back({DeviceId(device), pages});
  }
  return made;
}

Ids ids(std::vector<std::uint64_t> values) {
  Ids result;
  for (const std::uint64_t value : values) {
    result.emplace_back(value);
  }
  return result;
}

TEST(Reservations, GrantedPagesAreTakenBeforeTheyAreUsed) {
  Reservations book(kTwo, 0);
  book.ask(want(1, 50));
  book.ask(want(2, 50));
  EXPECT_EQ(book.grant(kNow), ids({1}));
  EXPECT_EQ(book.free_pages(DeviceId(0)), 30);
  EXPECT_EQ(book.state(ReservationId(1)), ReservationState::kGranted);
  EXPECT_EQ(book.state(ReservationId(2)), ReservationState::kPending);
  EXPECT_EQ(book.missing(ReservationId(2)), (std::vector<policy::DevicePages>{{DeviceId(0), 20}}));
  book.set_used(ReservationId(1));
  EXPECT_TRUE(book.grant(kNow).empty());
  book.release(ReservationId(1));
  EXPECT_EQ(book.grant(kNow), ids({2}));
  EXPECT_FALSE(book.state(ReservationId(1)));
}

TEST(Reservations, SeveralDevicesAtOnceOrNone) {
  Reservations book(kTwo, 0);
  book.ask(want(1, 60, {1}));
  book.ask(want(2, 60, {0, 1}));
  EXPECT_EQ(book.grant(kNow), ids({1}));
  EXPECT_EQ(book.free_pages(DeviceId(0)), 80);
  book.release(ReservationId(1));
  EXPECT_EQ(book.grant(kNow), ids({2}));
}

// 80 GB with 16 GB and 14 GB running; 75 GB arrive: both must go. And the other way round.
TEST(Reservations, BothSmallEnginesMakeWayForALargeOneAndItForThem) {
  Reservations book(kTwo, 0);
  book.ask(want(1, 16));
  book.ask(want(2, 14));
  EXPECT_EQ(book.grant(kNow), ids({1, 2}));
  book.ask(want(3, 75));
  EXPECT_TRUE(book.grant(kNow).empty());
  const auto engine = [](std::uint64_t model, std::int64_t pages) {
    return policy::SwapCandidate{.model = ModelId(model),
                                 .holds = {{DeviceId(0), pages}},
                                 .running_since = Instant(0s),
                                 .swap_out = 1s,
                                 .swap_in = 1s};
  };
  const std::vector<policy::SwapCandidate> small = {engine(1, 16), engine(2, 14)};
  const auto missing = book.missing(ReservationId(3));
  EXPECT_EQ(missing, (std::vector<policy::DevicePages>{{DeviceId(0), 25}}));
  EXPECT_EQ(choose_swap_victims(small, missing, kNow, 1s, {}).victims.size(), 2U);
  book.release(ReservationId(1));
  EXPECT_TRUE(book.grant(kNow).empty()) << "66 pages are not enough";
  book.release(ReservationId(2));
  EXPECT_EQ(book.grant(kNow), ids({3}));

  book.ask(want(4, 16));
  book.ask(want(5, 14));
  EXPECT_TRUE(book.grant(kNow).empty());
  book.release(ReservationId(3));
  EXPECT_EQ(book.grant(kNow), ids({4, 5}));
}

TEST(Reservations, NobodyPassesWhoCouldDelayTheHead) {
  Reservations book(kTwo, 0);
  book.ask(want(1, 60, {0}, 10s));
  book.grant(kNow);
  book.ask(want(2, 70));            // Can start at +10 s; then 10 pages are left.
  book.ask(want(3, 20, {0}));       // Might stay for ever: 20 > 10.
  book.ask(want(4, 20, {0}, 11s));  // Ends too late.
  EXPECT_TRUE(book.grant(kNow).empty());
  book.ask(want(5, 10, {0}));       // There is room for both.
  book.ask(want(6, 10, {0}, 10s));  // Ends in time.
  book.ask(want(7, 80, {1}));       // The head does not want that device.
  EXPECT_EQ(book.grant(kNow), ids({5, 6, 7}));
  book.release(ReservationId(1));
  book.release(ReservationId(6));
  EXPECT_EQ(book.grant(kNow + 10s), ids({2}));
}

TEST(Reservations, WithoutKnownEndsNobodyPassesOnTheSameDevice) {
  Reservations book(kTwo, 0);
  book.ask(want(1, 60));
  book.grant(kNow);
  book.ask(want(2, 70));
  book.ask(want(3, 5));
  EXPECT_TRUE(book.grant(kNow).empty());
  EXPECT_EQ(book.head(), ReservationId(2));
  book.release(ReservationId(2));  // Given up while it waited.
  EXPECT_EQ(book.grant(kNow), ids({3}));
}

TEST(Reservations, TheSmallerOfBooksAndMeasurementCounts) {
  Reservations book(kTwo, 0);
  book.ask(want(1, 30));
  book.grant(kNow);
  book.measure(DeviceId(0), 40);  // 50 by the books.
  EXPECT_EQ(book.free_pages(DeviceId(0)), 40);
  book.release(ReservationId(1));
  EXPECT_EQ(book.free_pages(DeviceId(0)), 70);
  book.measure(DeviceId(0), 80);
  EXPECT_EQ(book.free_pages(DeviceId(0)), 80);
  book.measure(DeviceId(0), 200);
  EXPECT_EQ(book.free_pages(DeviceId(0)), 80);
}

TEST(Reservations, TheMarginIsNeverReserved) {
  const std::vector<policy::DevicePages> capacity = {{DeviceId(0), 100}};
  const Reservations book(capacity, 2);
  EXPECT_TRUE(book.possible(want(1, 98)));
  EXPECT_FALSE(book.possible(want(1, 99)));
  EXPECT_FALSE(book.possible(want(1, 1, {7})));
}

// Properties: never more than there is; who comes is granted in the end; backfill never delays the
// head beyond what the known ends promise.
TEST(Reservations, KeepTheirPromisesOnRandomTraffic) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    Reservations book(kTwo, 0);
    std::map<std::uint64_t, Reservation> asked;
    std::map<std::uint64_t, Instant> ends;
    std::optional<std::pair<ReservationId, Instant>> promise;  // The head starts by then.
    std::uint64_t next = 0;
    Instant now = kNow;
    for (int tick = 0; tick < 400; ++tick, now += 1s) {
      for (auto it = ends.begin(); it != ends.end();) {
        if (it->second <= now) {
          book.release(ReservationId(it->first));
          it = ends.erase(it);
        } else {
          ++it;
        }
      }
      if (tick < 300 && rng.below(3) == 0) {
        const std::vector<std::vector<std::uint64_t>> sets = {{0}, {1}, {0, 1}};
        const Reservation made = want(next,
                                      1 + static_cast<std::int64_t>(rng.below(80)),
                                      sets[rng.below(3)],
                                      1s * (1 + rng.below(10)));
        asked.emplace(next++, made);
        book.ask(made);
      }
      for (const ReservationId id : book.grant(now)) {
        ends.emplace(id.value(), now + *asked.at(id.value()).lasts);
        if (promise && promise->first == id) {
          ASSERT_LE(now, promise->second);
        }
      }
      for (const std::uint64_t device : {0U, 1U}) {
        std::int64_t taken = 0;
        for (const auto& [id, end] : ends) {
          for (const policy::DevicePages& held : asked.at(id).pages) {
            taken += held.device == DeviceId(device) ? held.pages : 0;
          }
        }
        ASSERT_LE(taken, 80);
        ASSERT_EQ(book.free_pages(DeviceId(device)), 80 - taken);
      }
      // Without newcomers the head would start no later than when all that is held now has ended.
      if (book.head() && (!promise || promise->first != *book.head())) {
        Instant last = now;
        for (const auto& [id, end] : ends) {
          last = std::max(last, end);
        }
        promise = std::pair(*book.head(), last);
      }
    }
    ASSERT_FALSE(book.head()) << "everybody was granted";
    ASSERT_EQ(ends.size(), 0U);
  }
}

}  // namespace
}  // namespace heddle::sim
