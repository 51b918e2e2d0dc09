#include "policy/eviction.h"

#include <vector>

#include <gtest/gtest.h>

namespace heddle::policy {
namespace {

using namespace std::chrono_literals;

constexpr ModelId kA{1};
constexpr ModelId kB{2};
constexpr ModelId kC{3};

TEST(ChooseVictims, TakesTheShortestQueueThenWhatIsWorthLeastForItsPages) {
  const std::vector<ResidentView> residents{{.model = kA, .pages = 4, .queue = 1},
                                            {.model = kB, .pages = 4, .worth = 8},
                                            {.model = kC, .pages = 4, .worth = 2}};
  EXPECT_EQ(choose_victims(residents, 0, 4), std::vector{kC});
  EXPECT_EQ(choose_victims(residents, 0, 8), (std::vector{kC, kB}));
  EXPECT_EQ(choose_victims(residents, 3, 11), (std::vector{kC, kB}));
}

TEST(ChooseVictims, NamesNoneThatTheOthersMakeUnnecessary) {
  const std::vector<ResidentView> residents{{.model = kA, .pages = 2, .last_used = Instant(1s)},
                                            {.model = kB, .pages = 9, .last_used = Instant(2s)}};
  EXPECT_EQ(choose_victims(residents, 0, 9), std::vector{kB});
}

TEST(ChooseVictims, LeavesPinnedModelsAndThoseInTransitionAlone) {
  const std::vector<ResidentView> residents{{.model = kA, .pages = 9, .pinned = true},
                                            {.model = kB, .pages = 9, .in_transition = true},
                                            {.model = kC, .pages = 4}};
  EXPECT_EQ(choose_victims(residents, 0, 4), std::vector{kC});
  EXPECT_EQ(choose_victims(residents, 0, 5), std::nullopt);
}

TEST(ChooseVictims, TakesADisplacedModelThoughThereIsRoom) {
  const std::vector<ResidentView> residents{{.model = kA, .pages = 4, .displaced = true},
                                            {.model = kB, .pages = 4}};
  EXPECT_EQ(choose_victims(residents, 50, 10), std::vector{kA});
}

// An engine takes seconds to bring back, a model of ours milliseconds.
TEST(ChooseVictims, SparesTheEngineWhereAModelOfOursWillDo) {
  const std::vector<ResidentView> residents{{.model = kA, .pages = 8, .swap = 4s},
                                            {.model = kB, .pages = 8}};
  EXPECT_EQ(choose_victims(residents, 0, 8), std::vector{kB});
}

TEST(ChooseVictims, WeighsIdleEnginesAndModelsOfOursByOneMeasure) {
  const std::vector<ResidentView> residents{{.model = kA, .pages = 8, .swap = 4s, .worth = 0.5},
                                            {.model = kB, .pages = 8, .worth = 0.6}};
  EXPECT_EQ(choose_victims(residents, 0, 8), std::vector{kA}) << "nobody is likely to ask for it";
  const std::vector<ResidentView> wanted{{.model = kA, .pages = 8, .swap = 4s, .worth = 3.5},
                                         {.model = kB, .pages = 8, .worth = 0.6}};
  EXPECT_EQ(choose_victims(wanted, 0, 8), std::vector{kB});
}

TEST(ChooseVictims, SparesTheEngineWhoseRequestsHaveWaitedForLong) {
  std::vector<ResidentView> residents{{.model = kA, .pages = 8, .queue = 2, .swap = 4s},
                                      {.model = kB, .pages = 8, .queue = 3, .swap = 4s}};
  EXPECT_EQ(choose_victims(residents, 0, 8), std::vector{kA});
  residents[0].oldest_wait = 20s;
  EXPECT_EQ(choose_victims(residents, 0, 8), std::vector{kB});
}

}  // namespace
}  // namespace heddle::policy
