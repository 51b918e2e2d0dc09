#include "sim/planes/idle_evictions.h"

#include <gtest/gtest.h>

namespace heddle::sim {
namespace {

using namespace std::chrono_literals;

TEST(IdleThreshold, IsWhereTheRestOfTheGapOutlastsAnActivation) {
  // Ten gaps of 1 s and two of 100 s. From the start a gap has 17.5 s to go on average; after 1 s
  // those still open have 99.
  std::vector<Duration> gaps(10, 1s);
  gaps.insert(gaps.end(), 2, 100s);
  EXPECT_EQ(idle_threshold(gaps, 5s), 0s) << "a mean of 17.5 s is worth evicting at once";
  EXPECT_EQ(idle_threshold(gaps, 20s), 1s);
  EXPECT_EQ(idle_threshold(gaps, 200s), 1000s) << "never: five activations";
  // What is left after 10 s is 2 s, however long the whole gap.
  std::vector<Duration> alike(4, 10s);
  alike.insert(alike.end(), 4, 12s);
  EXPECT_EQ(idle_threshold(alike, 11500ms), 57500ms);
}

TEST(IdleThreshold, FallsBackWhileLittleIsKnown) {
  const std::vector<Duration> few(kFewestGaps - 1, 1h);
  EXPECT_EQ(idle_threshold(few, 1s), 10s);
  EXPECT_EQ(idle_threshold(few, 4s), 20s);
}

IdleModel idle(std::uint64_t id, std::int64_t bytes, Duration ttft, double value) {
  return {.model = ModelId(id),
          .bytes = bytes,
          .idle = 60s,
          .threshold = 10s,
          .activation = 1s,
          .ttft = ttft,
          .value = value};
}

TEST(ChooseIdleEvictions, GoesByObjectiveOrByValue) {
  const std::vector<IdleModel> models = {idle(1, 10, 2s, 1.0), idle(2, 10, 9s, 2.0)};
  EXPECT_EQ(choose_idle_evictions(models, 10, IdleOrder::kPaper), std::vector{ModelId(2)});
  EXPECT_EQ(choose_idle_evictions(models, 10, IdleOrder::kValue), std::vector{ModelId(1)});
}

TEST(ChooseIdleEvictions, SparesTheProtectedAndTheSuperfluous) {
  std::vector<IdleModel> models = {idle(1, 10, 2s, 1.0), idle(2, 30, 9s, 2.0)};
  EXPECT_EQ(choose_idle_evictions(models, 30, IdleOrder::kValue), std::vector{ModelId(2)})
      << "the second alone suffices";
  models[0].pinned = true;
  EXPECT_EQ(choose_idle_evictions(models, 10, IdleOrder::kValue), std::vector{ModelId(2)});
  models[1].idle = 10s;
  EXPECT_EQ(choose_idle_evictions(models, 10, IdleOrder::kValue), std::nullopt) << "not idle long";
  models[1].idle = 60s;
  models[1].ttft = 999ms;
  models[0].pinned = false;
  EXPECT_EQ(choose_idle_evictions(models, 10, IdleOrder::kPaper), std::vector{ModelId(1)})
      << "an activation alone would break the other's objective";
  models[0].pinned = true;
  EXPECT_EQ(choose_idle_evictions(models, 10, IdleOrder::kPaper), std::vector{ModelId(2)})
      << "which goes where nothing else does";
}

}  // namespace
}  // namespace heddle::sim
