#include "sim/planes/cold_workers.h"

#include <gtest/gtest.h>

namespace heddle::sim {
namespace {

TEST(Workers, FollowQueueAndPrediction) {
  const WorkerDemand demand{.queued = 3, .predicted = 20, .batch = 8, .workers = 1};
  // ceil(23 / 8) = 3, less the one there is.
  EXPECT_EQ(choose_workers(demand, WorkerVariant::kCorrected),
            (WorkerPlan{.workers = 2, .groups = 1, .stages = 2}));
  EXPECT_EQ(choose_workers(demand, WorkerVariant::kArtifact), WorkerPlan{});
  EXPECT_EQ(choose_workers({}, WorkerVariant::kCorrected), WorkerPlan{});
}

TEST(Workers, GroupsAreAsDeepAsTheSloAsksAndHaveAtMostFour) {
  EXPECT_EQ(choose_workers({.queued = 1, .stages = 3}, WorkerVariant::kCorrected),
            (WorkerPlan{.workers = 1, .groups = 1, .stages = 3}));
  EXPECT_EQ(choose_workers({.queued = 80}, WorkerVariant::kCorrected),
            (WorkerPlan{.workers = 10, .groups = 3, .stages = 4}));
}

}  // namespace
}  // namespace heddle::sim
