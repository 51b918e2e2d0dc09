#include "policy/objectives.h"

#include <gtest/gtest.h>

namespace heddle::policy {
namespace {

using namespace std::chrono_literals;

TEST(Objectives, AreWhatIsWantedWhateverWasMeasured) {
  const WantedObjectives wanted{.ttft = 2s, .tpot = 80ms};
  WarmFigures figures;
  EXPECT_EQ(figures.objectives(wanted), (Objectives{.ttft = 2s, .tpot = 80ms}));
  figures.observe(1ms, 1ms);
  EXPECT_EQ(figures.objectives(wanted), (Objectives{.ttft = 2s, .tpot = 80ms}));
}

TEST(Objectives, AreFiveAndTwoTimesTheWarmFigures) {
  WarmFigures figures;
  EXPECT_EQ(figures.objectives({}), kUnmeasured);
  figures.observe(100ms, 10ms);
  EXPECT_EQ(figures.objectives({}), (Objectives{.ttft = 500ms, .tpot = 20ms}));
  EXPECT_EQ(figures.objectives({.tpot = 1s}), (Objectives{.ttft = 500ms, .tpot = 1s}));
}

TEST(Objectives, FollowTheAverageAndNotOneAnswer) {
  WarmFigures figures;
  figures.observe(100ms, 10ms);
  figures.observe(180ms, std::nullopt);
  EXPECT_EQ(figures.objectives({}), (Objectives{.ttft = 550ms, .tpot = 20ms}));
  for (int i = 0; i < 100; ++i) {
    figures.observe(40ms, 4ms);
  }
  EXPECT_NEAR(static_cast<double>(figures.objectives({}).ttft.count()), 200e6, 1e6);
  EXPECT_NEAR(static_cast<double>(figures.objectives({}).tpot.count()), 8e6, 1e5);
}

}  // namespace
}  // namespace heddle::policy
