#include "sim/guest_times.h"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

#include "sim/test_hardware.h"

namespace heddle::sim {
namespace {

using namespace std::chrono_literals;

ModelShape llama() {
  return test_models(1)[0].shape;
}

/// A hot iteration of 30 ms with as much attention away as at home.
GuestPair even_pair(const ModelShape& shape) {
  return {
      .hot = shape, .hot_step = 30ms, .home = 200us, .away = 200us, .link = 250e9, .poll = 4700ns};
}

TEST(StepKernels, AddUpToTheStepAndTheHeadIsTheLongest) {
  const std::vector<Duration> kernels = step_kernels(llama(), 13ms);
  EXPECT_EQ(kernels.size(), 32U * 12 + 1);
  const Duration sum = std::accumulate(kernels.begin(), kernels.end(), Duration{});
  EXPECT_NEAR(to_seconds(sum), 13e-3, 1e-6);
  EXPECT_EQ(std::max_element(kernels.begin(), kernels.end()), kernels.end() - 1);
  EXPECT_NEAR(to_seconds(kernels.back()), 0.9e-3, 0.2e-3);
  EXPECT_TRUE(step_kernels(llama(), Duration{}).empty());
}

TEST(GuestTimes, NobodyWaitsOnADeviceWhereNoModelRuns) {
  const ModelShape shape = llama();
  const GuestTimes times = guest_times(even_pair(shape));
  EXPECT_EQ(times.hot.per_layer_ps, 2'000'000) << "the message";
  EXPECT_EQ(times.hot.stall_ps, 0);
  EXPECT_EQ(times.host_overhead, Duration{});
}

TEST(GuestTimes, GuestsWaitForTheKernelThatRuns) {
  const ModelShape shape = llama();
  const std::vector<Duration> kernels = step_kernels(shape, 13ms);
  GuestPair pair = even_pair(shape);
  pair.kernels = kernels;
  pair.split = false;
  const GuestTimes times = guest_times(pair);
  EXPECT_GT(times.hot.stall_ps, 50'000'000);
  EXPECT_EQ(times.hot.per_layer_ps, times.hot.stall_ps + 2'000'000) << "without slack it is all";
  EXPECT_NEAR(to_seconds(times.host_overhead), 385 * 4.7e-6, 1e-6) << "a look after each kernel";
}

TEST(GuestTimes, SlackHidesTheWait) {
  const ModelShape shape = llama();
  const std::vector<Duration> kernels = step_kernels(shape, 13ms);
  GuestPair pair = even_pair(shape);
  pair.kernels = kernels;
  pair.split = false;
  pair.away = 100us;
  const GuestTimes some = guest_times(pair);
  EXPECT_LT(some.hot.stall_ps, guest_times(even_pair(shape)).hot.stall_ps + 60'000'000);
  pair.home = 5ms;
  EXPECT_EQ(guest_times(pair).hot.stall_ps, 0);
}

TEST(GuestTimes, SplitKernelsLetGuestsWaitLessAtTheHostsCost) {
  const ModelShape shape = llama();
  const std::vector<Duration> kernels = step_kernels(shape, 13ms);
  GuestPair pair = even_pair(shape);
  pair.kernels = kernels;
  pair.away = 150us;
  const GuestTimes split = guest_times(pair);
  pair.split = false;
  const GuestTimes whole = guest_times(pair);
  EXPECT_LT(split.hot.stall_ps, whole.hot.stall_ps);
  EXPECT_LE(split.hot.stall_ps * shape.layers, 1'510'000'000) << "5 % of 30 ms";
  EXPECT_GT(split.host_overhead, whole.host_overhead);
}

TEST(GuestTimes, FirstPositionsNeedNoPollsAndLeaveNewKeysAtHome) {
  const ModelShape shape = llama();
  const std::vector<Duration> kernels = step_kernels(shape, 13ms);
  GuestPair pair = even_pair(shape);
  pair.kernels = kernels;
  const GuestTimes whole = guest_times(pair);
  pair.first_positions = true;
  const GuestTimes first = guest_times(pair);
  EXPECT_EQ(first.host_overhead, Duration{});
  EXPECT_LT(first.hot.per_sequence_ps, whole.hot.per_sequence_ps);
  EXPECT_GT(first.hot.stall_ps, whole.hot.stall_ps) << "no kernel is split for them";
  EXPECT_EQ(first.hot.move_ps, 524'288) << "128 KiB at 250 GB/s";
}

}  // namespace
}  // namespace heddle::sim
