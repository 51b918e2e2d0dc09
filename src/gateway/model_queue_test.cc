#include "gateway/model_queue.h"

#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace heddle::gateway {
namespace {

/// Takes one place after another while there is room; how many that were.
std::int64_t fill(ModelQueue& queue,
                  std::int64_t limit,
                  const std::string& share,
                  std::vector<ModelQueue::Places>& held) {
  std::int64_t taken = 0;
  for (; queue.has_room(limit, share, 1); ++taken) {
    held.push_back(queue.take(share, 1));
  }
  return taken;
}

TEST(ModelQueue, LeavesRoomForWhoComesLater) {
  ModelQueue queue;
  std::vector<ModelQueue::Places> held;
  EXPECT_EQ(fill(queue, 512, "greedy", held), 448);
  EXPECT_EQ(fill(queue, 512, "second", held), 56);
  EXPECT_EQ(fill(queue, 512, "third", held), 7);
  EXPECT_EQ(fill(queue, 512, "fourth", held), 1);
  EXPECT_EQ(queue.size(), 512);
  held.clear();
  EXPECT_EQ(queue.size(), 0);
  EXPECT_EQ(queue.size_of("greedy"), 0);
}

TEST(ModelQueue, WhoIsAloneWithFewPlacesHasThemAll) {
  for (const std::int64_t limit : {1, 2, 7}) {
    ModelQueue queue;
    std::vector<ModelQueue::Places> held;
    EXPECT_EQ(fill(queue, limit, "one", held), limit);
  }
}

TEST(ModelQueue, ClientsThatAreNotToldApartShareNothing) {
  ModelQueue queue;
  std::vector<ModelQueue::Places> held;
  EXPECT_EQ(fill(queue, 512, "", held), 512);
  EXPECT_FALSE(queue.has_room(512, "other", 1));
}

TEST(ModelQueue, ManyAtOnceNeedRoomForAll) {
  ModelQueue queue;
  EXPECT_TRUE(queue.has_room(512, "one", 448)) << "as if they came one by one";
  EXPECT_FALSE(queue.has_room(512, "one", 449));
  const ModelQueue::Places some = queue.take("one", 100);
  EXPECT_FALSE(queue.has_room(512, "", 413));
  EXPECT_TRUE(queue.has_room(512, "", 412));
}

TEST(ModelQueue, PlacesAreGivenBackOnceAndOutliveTheQueue) {
  ModelQueue::Places kept;
  {
    ModelQueue queue;
    ModelQueue::Places first = queue.take("one", 2);
    ModelQueue::Places moved = std::move(first);
    EXPECT_EQ(queue.size_of("one"), 2);
    moved = queue.take("two", 3);
    EXPECT_EQ(queue.size_of("one"), 0);
    EXPECT_EQ(queue.size(), 3);
    kept = std::move(moved);
    EXPECT_EQ(queue.size(), 3);
  }
}

}  // namespace
}  // namespace heddle::gateway
