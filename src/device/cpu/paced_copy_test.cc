#include "device/cpu/paced_copy.h"

#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

namespace heddle::device {
namespace {

std::vector<std::byte> pattern(std::size_t bytes) {
  std::vector<std::byte> values(bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    values[i] = static_cast<std::byte>(i * 31 + i / 256);
  }
  return values;
}

// Only lower bounds are asserted: a busy machine makes a paced copy slower, never faster.
TEST(PacedCopy, TakesAtLeastTheTimeOfItsLink) {
  const std::vector<std::byte> source = pattern(300'001);
  std::vector<std::byte> target(source.size());
  const std::atomic<bool> cancel{false};
  Pacer link(10'000'000);
  const auto start = std::chrono::steady_clock::now();
  ASSERT_TRUE(paced_copy(target.data(), source.data(), source.size(), link, cancel));
  ASSERT_TRUE(paced_copy(target.data(), source.data(), source.size(), link, cancel));
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(60));
  EXPECT_EQ(target, source);
}

TEST(PacedCopy, UnlimitedCopiesEverything) {
  const std::vector<std::byte> source = pattern((std::size_t{9} << 20U) + 1);
  std::vector<std::byte> target(source.size());
  const std::atomic<bool> cancel{false};
  Pacer link(0);
  ASSERT_TRUE(paced_copy(target.data(), source.data(), source.size(), link, cancel));
  EXPECT_EQ(target, source);
}

TEST(PacedCopy, StopsWhenCancelled) {
  const std::vector<std::byte> source = pattern(100'000);
  std::vector<std::byte> target(source.size());
  const std::atomic<bool> cancel{true};
  Pacer link(1);  // A day's work, were it not cancelled.
  const Result<void> outcome =
      paced_copy(target.data(), source.data(), source.size(), link, cancel);
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code, Code::kCancelled);
}

TEST(PacedCopy, PiecesAreAboutFiveMilliseconds) {
  EXPECT_EQ(Pacer(100'000'000).piece_bytes(), 500'000U);
  EXPECT_EQ(Pacer(1).piece_bytes(), 4096U);
  EXPECT_EQ(Pacer(100'000'000'000).piece_bytes(), std::size_t{4} << 20U);
}

}  // namespace
}  // namespace heddle::device
