#include "device/cpu/thread_pool.h"

#include <atomic>
#include <barrier>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::device {
namespace {

/// `size` members on cores this process may use, sharing cores where it has fewer.
std::unique_ptr<ThreadPool> make_pool(std::size_t size) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  EXPECT_EQ(::sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  std::vector<int> usable;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(static_cast<std::size_t>(core), &allowed)) {
      usable.push_back(core);
    }
  }
  std::vector<int> cores;
  for (std::size_t i = 0; i < size; ++i) {
    cores.push_back(usable[i % usable.size()]);
  }
  return ThreadPool::create(cores).value();
}

struct Piece {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  friend auto operator<=>(const Piece&, const Piece&) = default;
};

std::set<Piece> split(ThreadPool& pool, std::int64_t count, std::int64_t grain) {
  std::mutex mutex;
  std::set<Piece> pieces;
  pool.parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end, int member) {
    EXPECT_LT(member, pool.size());
    const std::lock_guard lock(mutex);
    pieces.insert({.begin = begin, .end = end});
  });
  return pieces;
}

TEST(ThreadPool, CoversEveryIndexOnceInWholeGrains) {
  for (const std::size_t size : {1U, 2U, 3U, 4U}) {
    const auto pool = make_pool(size);
    ASSERT_EQ(pool->size(), static_cast<int>(size));
    for (const std::int64_t count : {0, 1, 2, 7, 64, 100, 1001}) {
      for (const std::int64_t grain : {1, 3, 64}) {
        std::int64_t next = 0;
        for (const Piece& piece : split(*pool, count, grain)) {
          EXPECT_EQ(piece.begin, next);
          EXPECT_LT(piece.begin, piece.end);
          EXPECT_EQ(piece.begin % grain, 0);
          next = piece.end;
        }
        EXPECT_EQ(next, count);
        EXPECT_EQ(split(*pool, count, grain), split(*pool, count, grain));
      }
    }
  }
}

TEST(ThreadPool, MembersAreDifferentThreads) {
  const auto pool = make_pool(3);
  std::vector<std::thread::id> ids(3);
  std::barrier all(3);  // No member can do two of the three pieces.
  pool->parallel_for(3, 1, [&](std::int64_t begin, std::int64_t end, int member) {
    EXPECT_EQ(end, begin + 1);
    all.arrive_and_wait();
    ids[static_cast<std::size_t>(member)] = std::this_thread::get_id();
  });
  EXPECT_EQ(ids[0], std::this_thread::get_id());
  EXPECT_EQ(std::set(ids.begin(), ids.end()).size(), 3U);
}

TEST(ThreadPool, LoopsSeeWhatEarlierLoopsWrote) {
  const auto pool = make_pool(3);
  std::vector<std::int64_t> values(257, 1);
  for (int round = 0; round < 2000; ++round) {
    pool->parallel_for(257, 8, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) {
        values[static_cast<std::size_t>(i)] += i;
      }
    });
  }
  const std::int64_t sum = std::accumulate(values.begin(), values.end(), std::int64_t{0});
  EXPECT_EQ(sum, 257 + 2000 * (256 * 257 / 2));
}

TEST(ThreadPool, PinsItsMakerForItsLifeOnly) {
  cpu_set_t before;
  cpu_set_t during;
  cpu_set_t after;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(before), &before), 0);
  {
    const auto pool = make_pool(1);
    ASSERT_EQ(::sched_getaffinity(0, sizeof(during), &during), 0);
    EXPECT_EQ(CPU_COUNT(&during), 1);
  }
  ASSERT_EQ(::sched_getaffinity(0, sizeof(after), &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

TEST(ThreadPool, RefusesCoresThatAreNotThere) {
  for (const int core : {-1, CPU_SETSIZE - 1, 1 << 20}) {
    const std::vector<int> cores{core};
    const auto refused = ThreadPool::create(cores);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
    EXPECT_THAT(refused.error().message, ::testing::HasSubstr("core " + std::to_string(core)));
  }
}

}  // namespace
}  // namespace heddle::device
