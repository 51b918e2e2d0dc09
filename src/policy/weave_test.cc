#include "policy/weave.h"

#include <algorithm>
#include <array>
#include <string>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::policy {
namespace {

using namespace std::chrono_literals;

double us(Duration duration) {
  return static_cast<double>(duration.count()) / 1e3;
}

// One decode iteration of an 8B model on an A100, as the reference has it.
std::vector<Duration> kernels() {
  constexpr std::array kLayer = {40us, 27us, 185us, 93us, 15us, 5us, 5us, 5us, 5us, 5us};
  std::vector<Duration> all;
  for (int layer = 0; layer < 32; ++layer) {
    all.insert(all.end(), kLayer.begin(), kLayer.end());
  }
  all.push_back(961us);
  return all;
}

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

// The reference's values, which its Monte Carlo meets within 1 %.
TEST(ExpectedStall, MeetsTheReference) {
  const std::vector<Duration> times = {961us, 300us, 120us, 80us, 40us, 10us};
  for (const auto& [slack, stall] :
       {std::pair{0us, 342.83}, {50us, 297.23}, {150us, 225.09}, {400us, 104.14}}) {
    EXPECT_NEAR(us(expected_stall(times, slack, StallForm::kCorrected)), stall, 0.006);
    EXPECT_EQ(expected_stall(times, slack, StallForm::kPaper),
              expected_stall(times, slack, StallForm::kCorrected));
  }
  EXPECT_EQ(expected_stall(times, 1ms, StallForm::kCorrected), 0us);
  EXPECT_EQ(expected_stall({}, 0us, StallForm::kCorrected), 0us);
}

TEST(ExpectedStall, WithoutSlackIsTheWaitAndTheDifference) {
  const std::vector<Duration> one = {100us};
  EXPECT_EQ(expected_stall(one, -30us, StallForm::kCorrected), 80us);
  EXPECT_EQ(expected_stall(one, -30us, StallForm::kPaper), 84500ns) << "(130)^2 / 200";
  // As printed it grows without bound as pieces shrink; ours tends to the difference.
  const std::vector<Duration> small(100, 1us);
  EXPECT_GT(expected_stall(small, -30us, StallForm::kPaper), 480us);
  EXPECT_EQ(expected_stall(small, -30us, StallForm::kCorrected), 30500ns);
}

// Threshold 5 % of a hot iteration of 30 ms; splits, stall and cold iteration by the reference.
TEST(PlanSplits, MeetsTheReferenceAsPrinted) {
  struct Row {
    Duration slack;
    std::int64_t splits;
    double stall;
    double iteration;
  };
  for (const Row& row : {Row{0us, 28, 1484, 13449},
                         Row{20us, 4, 1479, 13305},
                         Row{50us, 1, 1226, 13287},
                         Row{100us, 0, 1172, 13281}}) {
    const SplitPlan plan =
        plan_splits(kernels(),
                    row.slack,
                    {.form = StallForm::kPaper, .calls = 32, .threshold = 1500us, .overhead = 3us});
    std::int64_t splits = 0;
    for (const std::int64_t pieces : plan.pieces) {
      splits += pieces - 1;
    }
    EXPECT_EQ(plan.outcome, SplitOutcome::kEnough);
    EXPECT_EQ(splits, row.splits) << "slack " << us(row.slack);
    EXPECT_NEAR(us(plan.stall), row.stall, 0.6);
    EXPECT_NEAR(us(plan.iteration), row.iteration, 1.0);
  }
}

TEST(PlanSplits, OursCutsEachKernelIntoAPowerOfTwo) {
  const SplitPlan plan = plan_splits(kernels(), 20us, {.calls = 32, .threshold = 1000us});
  EXPECT_EQ(plan.outcome, SplitOutcome::kEnough);
  EXPECT_LE(plan.stall, 1000us);
  EXPECT_GE(plan.pieces.back(), 4) << "the head first";
  for (const std::int64_t pieces : plan.pieces) {
    EXPECT_EQ(pieces & (pieces - 1), 0);
  }
}

TEST(PlanSplits, StopsWhereSplittingDoesNotHelp) {
  const SplitPlan none = plan_splits(kernels(), 0us, {.calls = 32, .threshold = 1us});
  EXPECT_EQ(none.outcome, SplitOutcome::kLowerShare);
  EXPECT_EQ(none.pieces, std::vector<std::int64_t>(321, 1));
  const SplitPlan most = plan_splits(kernels(), 1us, {.calls = 32, .threshold = 1us});
  EXPECT_EQ(most.outcome, SplitOutcome::kExhausted);
  EXPECT_LE(most.pieces.back(), 1024);
  const std::vector<Duration> short_ones = {9us, 8us};
  EXPECT_EQ(plan_splits(short_ones, 1us, {.calls = 32}).pieces, (std::vector<std::int64_t>{1, 1}));
}

TEST(OffloadBytes, CountsQueriesKeysValuesAndResults) {
  // Llama-3-8B, 90 sequences: 7 us at 250 GB/s.
  EXPECT_EQ(offload_bytes(90, 32, 8, 128, 2), 90 * (32 + 16 + 32) * 128 * 2);
}

TEST(ChooseShare, IsALittleUnderAHalf) {
  EXPECT_DOUBLE_EQ(choose_share(pair()).share, 0.45) << "(1 - 50/500) / 2, the paper's optimum";
  WeavePair little = pair();
  little.cold_free_kv_bytes = 5000;
  EXPECT_DOUBLE_EQ(choose_share(little).share, 0.25);
  little.cold_free_kv_bytes = 3000;
  EXPECT_EQ(choose_share(little), (ShareChoice{0.0, ShareReason::kTooSmall}));
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
  EXPECT_EQ(reason([](WeavePair& p) { p.cold_drains = true; }), ShareReason::kHostDrains);
  EXPECT_EQ(reason([](WeavePair& p) { p.cold_kv_growth = 0.3; }), ShareReason::kHostNeedsRoom);
  EXPECT_EQ(reason([](WeavePair& p) { p.hot_kv_use = 0.85; }), ShareReason::kHotNotPressed);
  EXPECT_EQ(reason([](WeavePair& p) {
              p.hot_kv_use = 0.5;
              p.hot_queues = true;
            }),
            ShareReason::kWorthIt);
  EXPECT_EQ(reason([](WeavePair& p) { p.hot_reading = 0.51; }), ShareReason::kHotReads);
  EXPECT_EQ(reason([](WeavePair& p) { p.attention = 60us; }), ShareReason::kTooSmall);
  EXPECT_EQ(reason_name(ShareReason::kHostNeedsRoom), "host_needs_room");
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
