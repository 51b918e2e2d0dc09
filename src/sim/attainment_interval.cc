#include "sim/attainment_interval.h"

#include <algorithm>

#include "base/rng.h"

namespace heddle::sim {
namespace {

/// Of a day, half an hour each.
constexpr std::size_t kBlocks = 48;
constexpr std::size_t kDraws = 1000;
constexpr std::uint64_t kSeed = 95;

double part(std::int64_t met, std::int64_t requests) {
  return requests > 0 ? static_cast<double>(met) / static_cast<double>(requests) : 0;
}

}  // namespace

AttainmentInterval::AttainmentInterval(Instant begin, Duration span)
    : begin_(begin),
      width_(std::max(Duration(1), span / static_cast<Duration::rep>(kBlocks) + Duration(1))),
      blocks_(kBlocks) {}

void AttainmentInterval::add(Instant arrival, bool met) {
  const auto at = std::max<Duration::rep>(0, (arrival - begin_) / width_);
  Block& block = blocks_[std::min(static_cast<std::size_t>(at), kBlocks - 1)];
  ++block.requests;
  block.met += met ? 1 : 0;
}

void AttainmentInterval::add(const AttainmentInterval& other) {
  for (std::size_t i = 0; i < kBlocks; ++i) {
    blocks_[i].requests += other.blocks_[i].requests;
    blocks_[i].met += other.blocks_[i].met;
  }
}

double AttainmentInterval::attainment() const {
  Block all;
  for (const Block& block : blocks_) {
    all.requests += block.requests;
    all.met += block.met;
  }
  return part(all.met, all.requests);
}

AttainmentInterval::Bounds AttainmentInterval::bounds() const {
  Rng rng(kSeed);
  std::vector<double> drawn;
  for (std::size_t draw = 0; draw < kDraws; ++draw) {
    Block sum;
    for (std::size_t i = 0; i < kBlocks; ++i) {
      const Block& block = blocks_[rng.below(kBlocks)];
      sum.requests += block.requests;
      sum.met += block.met;
    }
    drawn.push_back(part(sum.met, sum.requests));
  }
  std::sort(drawn.begin(), drawn.end());
  return {.low = drawn[kDraws / 40], .high = drawn[kDraws - 1 - kDraws / 40]};
}

}  // namespace heddle::sim
