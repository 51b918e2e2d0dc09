#include "device/cpu/task_queue.h"

#include <array>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "device/cpu/thread_pool.h"

namespace heddle::device {
namespace {

std::unique_ptr<ThreadPool> one_thread() {
  return ThreadPool::create({}).value();
}

TEST(TaskQueue, RunsTasksOfAnySizeInOrder) {
  const auto pool = one_thread();
  TaskQueue tasks;
  std::vector<std::size_t> order;
  // Enough of them to need several chunks, twice, so that chunks are used again.
  for (int round = 0; round < 2; ++round) {
    order.clear();
    for (std::size_t i = 0; i < 1000; ++i) {
      std::array<std::size_t, 50> payload{};
      payload.fill(i);
      if (i % 2 == 0) {
        tasks.push([payload, &order](ThreadPool&) { order.push_back(payload[49]); });
      } else {
        tasks.push([i, &order](ThreadPool&) { order.push_back(i); });
      }
    }
    EXPECT_EQ(tasks.size(), 1000U);
    EXPECT_TRUE(order.empty()) << "nothing runs before it is asked for";
    ASSERT_TRUE(tasks.run_all(*pool));
    ASSERT_EQ(order.size(), 1000U);
    for (std::size_t i = 0; i < order.size(); ++i) {
      ASSERT_EQ(order[i], i);
    }
    EXPECT_EQ(tasks.size(), 0U);
  }
}

TEST(TaskQueue, StopsAtTheFirstErrorAndForgetsTheRest) {
  const auto pool = one_thread();
  TaskQueue tasks;
  int runs = 0;
  tasks.push([&](ThreadPool&) { ++runs; });
  tasks.push([&](ThreadPool&) -> Result<void> {
    ++runs;
    return Error{.code = Code::kCancelled, .message = "stage 3 abandoned"};
  });
  tasks.push([&](ThreadPool&) { ++runs; });
  const Result<void> outcome = tasks.run_all(*pool);
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().message, "stage 3 abandoned");
  EXPECT_EQ(runs, 2);
  EXPECT_TRUE(tasks.run_all(*pool)) << "an error is reported once";
  EXPECT_EQ(runs, 2);
}

TEST(TaskQueue, DestroysMoveOnlyTasksOnceWhetherRunOrNot) {
  const auto pool = one_thread();
  const auto alive = std::make_shared<int>(0);
  TaskQueue tasks;
  for (const bool run : {true, false}) {
    for (int i = 0; i < 3; ++i) {
      tasks.push([held = std::make_unique<std::shared_ptr<int>>(alive)](ThreadPool&) {
        EXPECT_EQ(**held, 0);
      });
    }
    EXPECT_EQ(alive.use_count(), 4);
    if (run) {
      ASSERT_TRUE(tasks.run_all(*pool));
    } else {
      tasks.clear();
    }
    EXPECT_EQ(alive.use_count(), 1);
  }
}

TEST(TaskQueueDeathTest, ATaskMayNotPush) {
  const auto pool = one_thread();
  TaskQueue tasks;
  tasks.push([&](ThreadPool&) { tasks.push([](ThreadPool&) {}); });
  EXPECT_DEATH((void)tasks.run_all(*pool), "running_");
}

}  // namespace
}  // namespace heddle::device
