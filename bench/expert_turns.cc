// A table: how often a layer finds an expert in the device's memory, by half-life and share of
// slots. Routers are made up: those of a layer take experts by Zipf's law in an order of their own,
// of which a part is drawn anew for each request.
//
//     bench/expert_turns [LAYERS EXPERTS ACTIVE PASSES]

#include "policy/expert_turns.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <numeric>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/rng.h"

namespace heddle::policy {
namespace {

struct Mixture {
  std::int64_t layers = 24;
  std::int64_t experts = 64;
  std::int64_t active = 8;
  std::int64_t passes = 4000;
};
constexpr std::int64_t kPassesOfRequest = 200;

/// By pass, the experts that it takes, ascending over all layers.
std::vector<std::vector<std::int64_t>> draw_passes(const Mixture& mixture, double skew, Rng& rng) {
  const auto count = static_cast<std::size_t>(mixture.experts);
  std::vector<std::vector<std::int64_t>> orders(static_cast<std::size_t>(mixture.layers),
                                                std::vector<std::int64_t>(count));
  for (std::vector<std::int64_t>& order : orders) {
    std::iota(order.begin(), order.end(), 0);
    for (std::size_t i = count; i > 1; --i) {
      std::swap(order[i - 1], order[rng.below(i)]);
    }
  }
  std::vector<double> sums(count);
  for (std::size_t i = 0; i < count; ++i) {
    sums[i] = (i > 0 ? sums[i - 1] : 0.0) + 1.0 / std::pow(static_cast<double>(i + 1), skew);
  }
  std::vector<std::vector<std::int64_t>> passes;
  for (std::int64_t pass = 0; pass < mixture.passes; ++pass) {
    std::vector<std::int64_t>& taken = passes.emplace_back();
    for (std::size_t layer = 0; layer < orders.size(); ++layer) {
      std::vector<std::int64_t>& order = orders[layer];
      for (std::size_t i = 0; pass % kPassesOfRequest == 0 && i < count / 4; ++i) {
        std::swap(order[rng.below(count)], order[rng.below(count)]);
      }
      const std::size_t end = taken.size() + static_cast<std::size_t>(mixture.active);
      while (taken.size() < end) {
        const double drawn = sums.back() * static_cast<double>(rng.below(1U << 30U)) / (1U << 30U);
        const auto rank = std::upper_bound(sums.begin(), sums.end(), drawn) - sums.begin();
        const std::int64_t expert = static_cast<std::int64_t>(layer) * mixture.experts +
                                    order[static_cast<std::size_t>(rank)];
        if (std::find(taken.begin(), taken.end(), expert) == taken.end()) {
          taken.push_back(expert);
        }
      }
    }
    std::sort(taken.begin(), taken.end());
  }
  return passes;
}

/// Of all that passes take in the second half, the share that is there [percent].
double found(const std::vector<std::vector<std::int64_t>>& passes,
             const Mixture& mixture,
             std::int64_t slots,
             double half_life) {
  ExpertTurns turns(mixture.layers * mixture.experts, slots, half_life);
  std::int64_t there = 0;
  std::int64_t taken = 0;
  for (std::size_t pass = 0; pass < passes.size(); ++pass) {
    turns.begin_pass();
    for (const std::int64_t expert : passes[pass]) {
      const bool was = turns.take(expert).there;
      if (2 * pass >= passes.size()) {
        there += was ? 1 : 0;
        ++taken;
      }
    }
  }
  return 100.0 * static_cast<double>(there) / static_cast<double>(taken);
}

/// Likewise where the one that was taken longest ago gives way at once, within a pass too.
double found_by_lru(const std::vector<std::vector<std::int64_t>>& passes, std::int64_t slots) {
  std::list<std::int64_t> latest;
  std::unordered_map<std::int64_t, std::list<std::int64_t>::iterator> places;
  std::int64_t there = 0;
  std::int64_t taken = 0;
  for (std::size_t pass = 0; pass < passes.size(); ++pass) {
    for (const std::int64_t expert : passes[pass]) {
      const auto place = places.find(expert);
      const bool was = place != places.end();
      if (was) {
        latest.erase(place->second);
      } else if (std::cmp_equal(latest.size(), slots)) {
        places.erase(latest.back());
        latest.pop_back();
      }
      latest.push_front(expert);
      places[expert] = latest.begin();
      if (2 * pass >= passes.size()) {
        there += was ? 1 : 0;
        ++taken;
      }
    }
  }
  return 100.0 * static_cast<double>(there) / static_cast<double>(taken);
}

void print_table(const Mixture& mixture) {
  constexpr std::array kHalfLives{0.1, 4.0, 16.0, kExpertHalfLife, 256.0, 1e9};
  std::printf("| skew | slots | LRU |");
  for (const double half_life : kHalfLives) {
    std::printf(" %g |", half_life);
  }
  std::printf("\n|");
  for (std::size_t i = 0; i < kHalfLives.size() + 3; ++i) {
    std::printf(" --- |");
  }
  std::printf("\n");
  for (const double skew : {0.0, 0.6, 1.2}) {
    Rng rng(1);
    const auto passes = draw_passes(mixture, skew, rng);
    for (const double share : {0.25, 0.5, 0.75}) {
      const auto slots =
          static_cast<std::int64_t>(share * static_cast<double>(mixture.layers * mixture.experts));
      std::printf("| %.1f | %.0f %% | %.1f |", skew, 100 * share, found_by_lru(passes, slots));
      for (const double half_life : kHalfLives) {
        std::printf(" %.1f |", found(passes, mixture, slots, half_life));
      }
      std::printf("\n");
    }
  }
}

}  // namespace
}  // namespace heddle::policy

int main(int argc, char** argv) {
  heddle::policy::Mixture mixture;
  if (argc == 5) {
    mixture = {.layers = std::atoll(argv[1]),
               .experts = std::atoll(argv[2]),
               .active = std::atoll(argv[3]),
               .passes = std::atoll(argv[4])};
  }
  heddle::policy::print_table(mixture);
  return 0;
}
