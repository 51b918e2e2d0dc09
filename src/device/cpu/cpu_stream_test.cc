#include "device/cpu/cpu_stream.h"

#include <array>
#include <thread>

#include <gtest/gtest.h>

namespace heddle::device {
namespace {

TEST(CpuStream, RunsNothingBeforeItIsSynchronised) {
  CpuStream stream(ThreadPool::create({}).value(), 0);
  std::array<std::byte, 4> middle{};
  std::array<std::byte, 4> target{};
  stream.enqueue([&](ThreadPool& pool) {
    pool.parallel_for(4, 1, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) {
        middle[static_cast<std::size_t>(i)] = std::byte{7};
      }
    });
  });
  stream.copy(target.data(), middle.data(), target.size());
  EXPECT_EQ(middle[0], std::byte{0});
  ASSERT_TRUE(stream.synchronize());
  EXPECT_EQ(target[3], std::byte{7}) << "in order: the copy sees what the task wrote";
}

TEST(CpuStream, AFailedTaskEndsTheWorkAndIsReportedOnce) {
  CpuStream stream(ThreadPool::create({}).value(), 0);
  bool ran = false;
  stream.enqueue([](ThreadPool&) -> Result<void> {
    return Error{.code = Code::kCancelled, .message = "abandoned"};
  });
  stream.enqueue([&](ThreadPool&) { ran = true; });
  const Result<void> outcome = stream.synchronize();
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code, Code::kCancelled);
  EXPECT_TRUE(stream.synchronize());
  EXPECT_FALSE(ran);
}

TEST(CpuStream, CopiesAreBoundByTheLink) {
  CpuStream stream(ThreadPool::create({}).value(), 10'000'000);
  const std::vector<std::byte> source(400'000, std::byte{5});
  std::vector<std::byte> target(source.size());
  const auto start = std::chrono::steady_clock::now();
  stream.copy(target.data(), source.data(), 200'000);
  stream.copy(target.data() + 200'000, source.data() + 200'000, 200'000);
  ASSERT_TRUE(stream.synchronize());
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(40));
  EXPECT_EQ(target, source);
}

}  // namespace
}  // namespace heddle::device
