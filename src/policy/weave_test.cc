#include "policy/weave.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::policy {
namespace {

using namespace std::chrono_literals;

WeavePair pair() {
  return {.attention = 500us,
          .communication = 10us,
          .margin = 40us,
          .hot_kv_bytes = 15'000,
          .cold_free_kv_bytes = 15'000,
          .hot_kv_use = 0.95,
          .cold_kv_use = 0.43,
          .peer_access = true};
}

TEST(ChooseShare, IsALittleUnderAHalf) {
  EXPECT_DOUBLE_EQ(choose_share(pair()).share, 0.45) << "(1 - 50/500) / 2, the paper's optimum";
  WeavePair little = pair();
  little.cold_free_kv_bytes = 5000;
  EXPECT_DOUBLE_EQ(choose_share(little).share, 0.25);
  little.cold_free_kv_bytes = 3000;
  EXPECT_EQ(choose_share(little), (ShareChoice{0.0, ShareReason::kTooSmall}));
}

TEST(ChooseShare, KeepsTheHostsObjective) {
  EXPECT_DOUBLE_EQ(spare_time(45ms, 100ms), 0.5) << "45 ms become 90 beside guests";
  EXPECT_DOUBLE_EQ(spare_time(0ms, 100ms), 1.0) << "it has not run yet";
  EXPECT_DOUBLE_EQ(spare_time(95ms, 100ms), 0.0);
  EXPECT_DOUBLE_EQ(spare_time(1ms, 0ms), 0.0);

  WeavePair busy = pair();
  EXPECT_DOUBLE_EQ(most_timely(busy), 1.0) << "nobody has measured the hot side's steps";
  busy.hot_step = 1ms;
  busy.cold_spare = 0.15;
  EXPECT_DOUBLE_EQ(most_timely(busy), 0.3) << "150 us of a step's ms, of 500 us in all";
  EXPECT_DOUBLE_EQ(choose_share(busy).share, 0.3);
  busy.cold_spare = 0.05;
  EXPECT_EQ(choose_share(busy), (ShareChoice{0.0, ShareReason::kTooSmall}));
}

TEST(ChooseShare, KnowsWhenNotTo) {
  const auto reason = [](const auto& change) {
    WeavePair changed = pair();
    change(changed);
    const ShareChoice choice = choose_share(changed);
    EXPECT_EQ(choice.share > 0.0, choice.reason == ShareReason::kWorthIt);
    return choice.reason;
  };
  EXPECT_EQ(reason([](WeavePair& p) { p.peer_access = false; }), ShareReason::kNoPeerAccess);
  EXPECT_EQ(reason([](WeavePair& p) { p.cold_kv_growth = 0.3; }), ShareReason::kHostNeedsRoom);
  EXPECT_EQ(reason([](WeavePair& p) { p.hot_kv_use = 0.85; }), ShareReason::kHotNotPressed);
  EXPECT_EQ(reason([](WeavePair& p) {
              p.hot_kv_use = 0.5;
              p.hot_queues = true;
            }),
            ShareReason::kWorthIt);
  EXPECT_EQ(reason([](WeavePair& p) { p.hot_reading = 0.51; }), ShareReason::kHotReads);
  EXPECT_EQ(reason([](WeavePair& p) { p.attention = 60us; }), ShareReason::kTooSmall);
}

using Moves = std::vector<WeaveMove>;

/// A sequence that has so much at home, and so much away.
WeaveSequence sequence(std::uint64_t id, std::int64_t home, std::int64_t away = 0) {
  return {.id = SequenceId(id), .computed = home + away, .away = away};
}

TEST(ChooseMoves, TakesOfThoseThatHaveMostAtHome) {
  const std::vector<WeaveSequence> all{sequence(1, 100), sequence(2, 300), sequence(3, 200)};
  EXPECT_EQ(choose_moves(all, 10, 1000), (Moves{{SequenceId(2), 299}}))
      << "its newest token stays, and one move is enough";
  EXPECT_EQ(choose_moves(all, 10, 120), (Moves{{SequenceId(2), 120}})) << "no more than has room";
  EXPECT_TRUE(choose_moves(all, 0, 1000).empty());
  EXPECT_TRUE(choose_moves(all, 10, kFewestMoved - 1).empty());
}

TEST(ChooseMoves, LeavesAHalfAtHome) {
  const std::vector<WeaveSequence> all{sequence(1, 200), sequence(2, 200), sequence(3, 200)};
  EXPECT_EQ(choose_moves(all, 1000, 1000), (Moves{{SequenceId(1), 199}, {SequenceId(2), 101}}));
  const std::vector<WeaveSequence> half{sequence(1, 100, 200), sequence(2, 100)};
  EXPECT_TRUE(choose_moves(half, 1000, 1000).empty());
}

TEST(MostAway, LeavesTheHostTheTimeThatItLoses) {
  EXPECT_DOUBLE_EQ(most_away(500us, 50us), 0.45);
  EXPECT_DOUBLE_EQ(most_away(500us, 0us), 0.5);
  EXPECT_DOUBLE_EQ(most_away(0us, 50us), 0.5) << "nobody has measured";
  EXPECT_DOUBLE_EQ(most_away(500us, 900us), 0.0);
}

TEST(ChooseMoves, LeavesMoreAtHomeWhereTheHostIsSlow) {
  const std::vector<WeaveSequence> all{sequence(1, 200), sequence(2, 200)};
  EXPECT_EQ(choose_moves(all, 1000, 1000, 0.25), (Moves{{SequenceId(1), 100}}));
  EXPECT_TRUE(choose_moves(all, 1000, 1000, 0.0).empty());
}

TEST(ChooseMoves, GoesOnWithWhatIsAwayAlready) {
  const std::vector<WeaveSequence> all{sequence(1, 150, 50), sequence(2, 100)};
  EXPECT_EQ(choose_moves(all, 60, 1000), (Moves{{SequenceId(1), 150}}));
}

TEST(ChooseMoves, AsksNobodyTwiceForTheSame) {
  std::vector<WeaveSequence> all{sequence(1, 300), sequence(2, 200)};
  all[0].settled = true;
  EXPECT_EQ(choose_moves(all, 100, 1000), (Moves{{SequenceId(2), 199}}));
}

// Whatever is asked: nobody moves twice or back, rooms and halves are kept, and the order of the
// sequences does not matter.
TEST(ChooseMoves, KeepsItsBounds) {
  Rng rng(20261125);
  for (int round = 0; round < 2000; ++round) {
    std::vector<WeaveSequence> all;
    std::int64_t tokens = 0;
    std::int64_t away = 0;
    for (std::uint64_t id = 1; id <= 1 + rng.below(12); ++id) {
      all.push_back(sequence(id,
                             1 + static_cast<std::int64_t>(rng.below(400)),
                             static_cast<std::int64_t>(rng.below(200))));
      all.back().settled = rng.below(4) == 0;
      tokens += all.back().computed;
      away += all.back().away;
    }
    const auto wanted = static_cast<std::int64_t>(rng.below(600));
    const auto room = static_cast<std::int64_t>(rng.below(600));
    const Moves moves = choose_moves(all, wanted, room);
    std::int64_t moved = 0;
    for (const WeaveMove& move : moves) {
      const WeaveSequence& of = all.at(move.sequence.value() - 1);
      EXPECT_GE(move.tokens - of.away, kFewestMoved);
      EXPECT_LT(move.tokens, of.computed);
      EXPECT_FALSE(of.settled);
      moved += move.tokens - of.away;
    }
    EXPECT_LE(moved, room);
    EXPECT_TRUE(moves.empty() || 2 * (away + moved) <= tokens) << "round " << round;
    std::reverse(all.begin(), all.end());
    EXPECT_EQ(choose_moves(all, wanted, room), moves);
  }
}

}  // namespace
}  // namespace heddle::policy
