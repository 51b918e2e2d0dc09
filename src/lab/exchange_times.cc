#include "lab/exchange_times.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/check.h"
#include "collective/shared_area.h"
#include "collective/shared_collective.h"

namespace heddle::lab {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kFew = 64;        // Floats: as good as none.
constexpr std::size_t kMany = 1 << 16;  // Several slots are as fast as one.
constexpr int kFewTimes = 200;
constexpr int kManyTimes = 20;
constexpr int kRepeats = 5;

double middle(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Of a sum of so many floats [s], as this rank sees it. All ranks call it.
double time_sums(collective::Collective& group, std::size_t floats, int times) {
  std::vector<float> data(floats, 1);
  std::vector<double> seconds;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const Clock::time_point began = Clock::now();
    for (int i = 0; i < times; ++i) {
      HEDDLE_CHECK(group.all_reduce(data).has_value());  // Nobody leaves.
    }
    seconds.push_back(std::chrono::duration<double>(Clock::now() - began).count() / times);
    std::fill(data.begin(), data.end(), 1.0F);
  }
  return middle(std::move(seconds));
}

}  // namespace

Result<ExchangeTimes> time_exchanges(std::int64_t ranks) {
  HEDDLE_CHECK(ranks >= 2);
  auto area = collective::SharedArea::create(ranks);
  if (!area) {
    return area.error();
  }
  double few = 0;
  double many = 0;
  const auto run = [&](std::int64_t rank) {
    collective::SharedCollective group(*area, rank);
    const double of_few = time_sums(group, kFew, kFewTimes);
    const double of_many = time_sums(group, kMany, kManyTimes);
    if (rank == 0) {
      few = of_few;
      many = of_many;
    }
  };
  {
    std::vector<std::jthread> others;
    for (std::int64_t rank = 1; rank < ranks; ++rank) {
      others.emplace_back(run, rank);
    }
    run(0);
  }
  return ExchangeTimes{.ranks = ranks,
                       .meet = few,
                       .number = std::max(0.0, many - few) / static_cast<double>(kMany - kFew)};
}

twin::StepTimes with_exchanges(twin::StepTimes step,
                               const ExchangeTimes& times,
                               std::int64_t layers,
                               std::int64_t hidden,
                               std::int64_t vocab) {
  const auto sums = static_cast<double>(2 * layers + 1);
  step.fixed += (sums + 3) * times.meet;  // With the logits, and twice that all agree.
  step.token += sums * static_cast<double>(hidden) * times.number;
  step.row += static_cast<double>(vocab) * times.number;
  return step;
}

}  // namespace heddle::lab
