#include "policy/adapter_places.h"

#include <gtest/gtest.h>

namespace heddle::policy {
namespace {

constexpr std::int64_t kEight = 8;

TEST(AdapterPlaces, AnAdapterThatIsThereIsWorthARequestOfEight) {
  const PlaceRank with = rank_of({.load = 1, .has = true, .adapters = 1}, kEight);
  EXPECT_LT(with, rank_of({.load = 0}, kEight));
  EXPECT_GT(rank_of({.load = 2, .has = true}, kEight), rank_of({.load = 0}, kEight));
}

TEST(AdapterPlaces, AnAdapterDoesNotCountWhereTheBatchIsFull) {
  EXPECT_GT(rank_of({.load = kEight, .has = true}, kEight), rank_of({.load = kEight - 1}, kEight));
  EXPECT_EQ(rank_of({.load = kEight, .has = true}, kEight), rank_of({.load = kEight}, kEight));
}

TEST(AdapterPlaces, WhereNoneHasItTheFewestAdaptersDecide) {
  EXPECT_LT(rank_of({.load = 3, .adapters = 1}, kEight),
            rank_of({.load = 3, .adapters = 2}, kEight));
  EXPECT_LT(rank_of({.load = 2, .adapters = 9}, kEight), rank_of({.load = 3}, kEight));
}

TEST(AdapterPlaces, SmallBatchesCountItAsARequestToo) {
  EXPECT_EQ(adapter_worth(1), 1);
  EXPECT_EQ(adapter_worth(32), 4);
}

}  // namespace
}  // namespace heddle::policy
