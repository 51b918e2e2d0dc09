#include "engine/kept_states.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "engine/test_host.h"

namespace heddle::engine {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

constexpr std::size_t kStatePage = 4096;

memory::BlockKey key_number(std::uint64_t number) {
  return {.low = number, .high = ~number};
}

/// States of two blocks: a page, and half a page.
class KeptStatesTest : public testing::Test {
 protected:
  KeptStatesTest() {
    for (const std::uint32_t per_page : {1U, 2U}) {
      caches_.emplace_back(host_.pool(),
                           kKvLease,
                           memory::KvGeometry{.block_tokens = 1000,
                                              .blocks_per_page = per_page,
                                              .block_bytes = kStatePage / per_page},
                           host_.cached());
    }
    states_.emplace(host_.pool(), host_.cached(), caches_, 0);
  }

  ~KeptStatesTest() override {
    for (const memory::KvCache& cache : caches_) {
      cache.check_invariants();
    }
    host_.pool().check_invariants();
  }

  /// As a pass does: every byte of the copy is `mark`.
  void make(
      SequenceStates& states, std::int64_t length, std::uint64_t key, bool lasting, int mark = 0) {
    states_->prepare(
        states, {.length = length, .key = key_number(key), .lasting = lasting}, pages_used());
    for (const StateCopy& copy : states.copies) {
      for (std::size_t i = 0; i < caches_.size(); ++i) {
        std::memset(caches_[i].address(copy.blocks[i]), mark, caches_[i].geometry().block_bytes);
      }
    }
    states_->keep(states);
  }

  [[nodiscard]] std::int64_t pages_used() const {
    return caches_[0].pages_used() + caches_[1].pages_used();
  }
  [[nodiscard]] bool has(std::uint64_t key) const {
    return states_->contains(key_number(key), false);
  }
  std::vector<memory::KvBlockRef> own_blocks() {
    return {caches_[0].allocate().value(), caches_[1].allocate().value()};
  }
  void free(const std::vector<memory::KvBlockRef>& own) {
    for (std::size_t i = 0; i < own.size(); ++i) {
      caches_[i].free(own[i]);
    }
  }

  TestHost host_{24, kStatePage};
  std::deque<memory::KvCache> caches_{};
  std::optional<KeptStates> states_{};
};

TEST_F(KeptStatesTest, ASequenceGoesOnFromACopyOfItsOwn) {
  SequenceStates first;
  make(first, 16, 1, /*lasting=*/true, 7);
  states_->leave(first);
  EXPECT_EQ(pages_used(), 0);

  SequenceStates second;
  states_->hold(second, 16, key_number(1));
  EXPECT_EQ(pages_used(), 2) << "what is held does not go";
  const auto own = own_blocks();
  states_->resume(second, own);
  EXPECT_FALSE(second.resumed);
  for (std::size_t i = 0; i < own.size(); ++i) {
    EXPECT_EQ(*caches_[i].address(own[i]), std::byte{7});
    *caches_[i].address(own[i]) = std::byte{8};
  }
  states_->leave(second);
  free(own);
  SequenceStates third;
  states_->hold(third, 16, key_number(1));
  EXPECT_EQ(*caches_[0].address(third.resumed->blocks[0]), std::byte{7}) << "it is as it was";
  states_->leave(third);
}

TEST_F(KeptStatesTest, ForWantOfRoomItHasTheCopyItself) {
  SequenceStates first;
  make(first, 16, 1, /*lasting=*/true, 7);
  states_->leave(first);
  SequenceStates second;
  SequenceStates third;
  EXPECT_THAT(states_->take_over(second), IsEmpty());
  states_->hold(second, 16, key_number(1));
  states_->hold(third, 16, key_number(1));
  EXPECT_THAT(states_->take_over(second), IsEmpty()) << "another goes on from it";
  EXPECT_TRUE(second.resumed);
  states_->leave(third);
  const auto own = states_->take_over(second);
  ASSERT_THAT(own, SizeIs(2));
  EXPECT_EQ(*caches_[1].address(own[1]), std::byte{7});
  EXPECT_FALSE(has(1));
  states_->leave(second);
  free(own);
  EXPECT_EQ(host_.pool().free_count(), 24);
}

TEST_F(KeptStatesTest, OfThoseThatDoNotLastThereIsOne) {
  SequenceStates states;
  make(states, 16, 1, /*lasting=*/true);
  make(states, 32, 2, /*lasting=*/false);
  make(states, 48, 3, /*lasting=*/false);
  EXPECT_TRUE(has(1));
  EXPECT_FALSE(has(2));
  EXPECT_TRUE(has(3));
  make(states, 64, 4, /*lasting=*/true);
  EXPECT_FALSE(has(3));
  states_->leave(states);
  EXPECT_TRUE(has(1) && has(4));
}

TEST_F(KeptStatesTest, WhatAnotherHasMadeIsNotMadeAgainNorGivenUp) {
  SequenceStates first;
  SequenceStates second;
  make(first, 32, 2, /*lasting=*/true);
  make(second, 32, 2, /*lasting=*/false);
  EXPECT_THAT(second.copies, IsEmpty());
  make(second, 48, 3, /*lasting=*/false);
  EXPECT_TRUE(has(2));
  states_->leave(first);
  states_->leave(second);
}

TEST_F(KeptStatesTest, TwoThatMakeTheSameAtOnceLeaveOne) {
  SequenceStates first;
  SequenceStates second;
  for (SequenceStates* const states : {&first, &second}) {
    states_->prepare(*states, {.length = 16, .key = key_number(1)}, pages_used());
    ASSERT_THAT(states->copies, SizeIs(1));
  }
  states_->keep(first);
  states_->keep(second);
  EXPECT_EQ(caches_[0].blocks_idle(), 1);
  make(second, 32, 2, /*lasting=*/false);
  EXPECT_TRUE(has(1)) << "it is the first one's";
  states_->leave(first);
  states_->leave(second);
}

TEST_F(KeptStatesTest, APassThatGivesUpLeavesNone) {
  SequenceStates states;
  states_->prepare(states, {.length = 16, .key = key_number(1)}, pages_used());
  states_->drop(states);
  EXPECT_FALSE(has(1));
  EXPECT_EQ(host_.pool().free_count(), 24);
  states_->leave(states);
}

TEST_F(KeptStatesTest, CopiesHaveHalfAtMostAndTheOldestGo) {
  // A copy is on two pages, and all could have 24: six of them fit in half.
  for (std::uint64_t key = 1; key <= 20; ++key) {
    SequenceStates states;
    make(states, 16, key, /*lasting=*/true);
    states_->leave(states);
    EXPECT_LE(host_.cached().count(), 12);
    EXPECT_TRUE(has(key));
    EXPECT_FALSE(has(key - 6));
    EXPECT_EQ(has(key - 5), key > 5);
  }
  EXPECT_GT(host_.cached().dropped()[static_cast<std::size_t>(ledger::DropReason::kBound)], 0U);
  // Where others have the rest there is no room for one, and what there is stays.
  const auto others = host_.pool().take(kWeightsLease, host_.pool().free_count()).value();
  host_.cached().drop_oldest(ledger::DropReason::kKv);
  while (host_.cached().count() > 2) {
    host_.cached().drop_oldest(ledger::DropReason::kKv);
  }
  const auto more = host_.pool().take(kWeightsLease, host_.pool().free_count()).value();
  SequenceStates states;
  const std::int64_t idle = caches_[0].blocks_idle();
  states_->prepare(states, {.length = 16, .key = key_number(99)}, 0);
  EXPECT_THAT(states.copies, IsEmpty());
  EXPECT_EQ(caches_[0].blocks_idle(), idle);
}

TEST_F(KeptStatesTest, ASequenceThatEndsUsesItsCopiesLast) {
  SequenceStates first;
  make(first, 16, 1, /*lasting=*/true);
  SequenceStates second;
  make(second, 16, 2, /*lasting=*/true);
  states_->leave(second);
  states_->leave(first);
  EXPECT_EQ(caches_[0].oldest_idle()->key, key_number(2));
}

TEST_F(KeptStatesTest, BooksAgreeWhateverHappens) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    struct Running {
      SequenceStates states{};
      std::vector<memory::KvBlockRef> own{};
    };
    std::vector<Running> running(4);
    for (int step = 0; step < 400; ++step) {
      Running& one = running[rng.below(running.size())];
      const std::uint64_t key = 1 + rng.below(12);
      if (rng.below(6) == 0) {
        states_->leave(one.states);
        free(std::exchange(one.own, {}));
      } else if (one.own.empty() && !one.states.resumed && has(key)) {
        states_->hold(one.states, 16, key_number(key));
      } else if (one.own.empty() && rng.below(3) == 0) {
        one.own = states_->take_over(one.states);
      } else if (one.own.empty()) {
        one.own = own_blocks();
        states_->resume(one.states, one.own);
      } else {
        make(one.states, 16, key, rng.below(2) == 0);
      }
      for (const memory::KvCache& cache : caches_) {
        cache.check_invariants();
      }
      ASSERT_LE(host_.cached().count(), 24);
    }
    for (Running& one : running) {
      states_->leave(one.states);
      free(one.own);
    }
    EXPECT_EQ(pages_used(), 0);
    EXPECT_EQ(host_.pool().free_count() + host_.cached().count(), 24);
  }
}

}  // namespace
}  // namespace heddle::engine
