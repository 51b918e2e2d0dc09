#include "policy/preemption.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

namespace heddle::policy {
namespace {

constexpr std::size_t kExactCandidates = 16;

/// What is still missing, device by device.
class Missing {
 public:
  explicit Missing(std::span<const DevicePages> missing) {
    for (const DevicePages& one : missing) {
      if (one.pages > 0) {
        missing_.push_back(one);
      }
    }
  }

  [[nodiscard]] bool any() const {
    return std::any_of(missing_.begin(), missing_.end(), [](const auto& m) { return m.pages > 0; });
  }

  /// Whether swapping the candidate out would bring anything that is missing now.
  [[nodiscard]] bool gains(const SwapCandidate& candidate) const {
    return std::any_of(missing_.begin(), missing_.end(), [&](const DevicePages& m) {
      return m.pages > 0 && held_on(candidate, m.device) > 0;
    });
  }

  void take(const SwapCandidate& candidate) { change(candidate, -1); }
  void put_back(const SwapCandidate& candidate) { change(candidate, 1); }

 private:
  static std::int64_t held_on(const SwapCandidate& candidate, DeviceId device) {
    std::int64_t pages = 0;
    for (const DevicePages& held : candidate.holds) {
      pages += held.device == device ? held.pages : 0;
    }
    return pages;
  }

  void change(const SwapCandidate& candidate, std::int64_t sign) {
    for (DevicePages& m : missing_) {
      m.pages += sign * held_on(candidate, m.device);
    }
  }

  std::vector<DevicePages> missing_{};
};

using Candidates = std::vector<const SwapCandidate*>;

/// The paper's choice out of candidates in its order; without sparing.
std::optional<Candidates> take_until_enough(const Candidates& candidates, Missing& missing) {
  Candidates chosen;
  for (const SwapCandidate* candidate : candidates) {
    if (missing.any() && missing.gains(*candidate)) {
      missing.take(*candidate);
      chosen.push_back(candidate);
    }
  }
  return missing.any() ? std::nullopt : std::optional(std::move(chosen));
}

/// Looks at all subsets, the earlier candidates first, and cuts off what costs more than the best.
class LeastCost {
 public:
  LeastCost(const Candidates& candidates, Missing missing, Duration ageing)
      : candidates_(candidates), missing_(std::move(missing)) {
    for (const SwapCandidate* candidate : candidates) {
      costs_.push_back(preemption_cost(*candidate, ageing));
    }
  }

  std::optional<Candidates> find() {
    visit(0, 0);
    return best_;
  }

 private:
  void visit(std::size_t at, double cost) {
    if (best_ && std::tuple(cost, chosen_.size()) >= std::tuple(best_cost_, best_->size())) {
      return;
    }
    if (!missing_.any()) {
      best_ = chosen_;
      best_cost_ = cost;
      return;
    }
    if (at == candidates_.size()) {
      return;
    }
    if (missing_.gains(*candidates_[at])) {
      missing_.take(*candidates_[at]);
      chosen_.push_back(candidates_[at]);
      visit(at + 1, cost + costs_[at]);
      chosen_.pop_back();
      missing_.put_back(*candidates_[at]);
    }
    visit(at + 1, cost);
  }

  const Candidates& candidates_;
  std::vector<double> costs_{};
  Missing missing_;
  Candidates chosen_{};
  std::optional<Candidates> best_{};
  double best_cost_ = std::numeric_limits<double>::infinity();
};

/// Cheapest first, then spares those that were not needed, the most costly first.
std::optional<Candidates> cheapest_first(Candidates candidates, Missing missing, Duration ageing) {
  const auto key = [&](const SwapCandidate* candidate) {
    return std::tuple(preemption_cost(*candidate, ageing),
                      candidate->queue,
                      candidate->last_used,
                      candidate->model);
  };
  std::sort(candidates.begin(), candidates.end(), [&](const auto* a, const auto* b) {
    return key(a) < key(b);
  });
  auto chosen = take_until_enough(candidates, missing);
  for (std::size_t i = chosen ? chosen->size() : 0; i-- > 0;) {
    missing.put_back(*(*chosen)[i]);
    if (missing.any()) {
      missing.take(*(*chosen)[i]);
    } else {
      chosen->erase(chosen->begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  return chosen;
}

std::optional<Candidates> choose(const Candidates& candidates,
                                 const Missing& missing,
                                 const PreemptionOptions& options) {
  if (options.variant == PreemptionVariant::kPaper) {
    Missing left = missing;
    return take_until_enough(candidates, left);
  }
  if (candidates.size() > kExactCandidates) {
    return cheapest_first(candidates, missing, options.ageing);
  }
  return LeastCost(candidates, missing, options.ageing).find();
}

bool in_paper_order(const SwapCandidate* a, const SwapCandidate* b) {
  return std::tie(a->queue, a->last_used, a->model) < std::tie(b->queue, b->last_used, b->model);
}

}  // namespace

double preemption_cost(const SwapCandidate& candidate, Duration ageing) {
  const double age =
      ageing > Duration{} ? to_seconds(candidate.oldest_wait) / to_seconds(ageing) : 0;
  const double swaps = to_seconds(candidate.swap_out + candidate.swap_in);
  if (candidate.queue == 0) {
    return candidate.worth.value_or(swaps);
  }
  return std::max(swaps, candidate.worth.value_or(0)) *
         (1 + static_cast<double>(candidate.queue) * (1 + age));
}

Preemption choose_swap_victims(std::span<const SwapCandidate> candidates,
                               std::span<const DevicePages> missing,
                               Instant now,
                               Duration slack,
                               const PreemptionOptions& options) {
  const Missing all_missing(missing);
  if (!all_missing.any()) {
    return {.outcome = PreemptionOutcome::kEnough};
  }
  Candidates willing;
  Candidates eventually;
  std::optional<Instant> retry_at;
  for (const SwapCandidate& candidate : candidates) {
    if (!all_missing.gains(candidate)) {
      continue;
    }
    eventually.push_back(&candidate);
    const Instant until = candidate.running_since + options.residence_swaps * candidate.swap_in;
    if (candidate.held || candidate.in_transition) {
      continue;
    }
    if (now < until) {
      retry_at = retry_at ? std::min(*retry_at, until) : until;
    } else {
      willing.push_back(&candidate);
    }
  }
  std::sort(willing.begin(), willing.end(), in_paper_order);
  if (auto chosen = choose(willing, all_missing, options)) {
    std::sort(chosen->begin(), chosen->end(), in_paper_order);
    Preemption result{.outcome = PreemptionOutcome::kPreempt,
                      .drain = std::clamp(slack, Duration{}, options.drain_most)};
    for (const SwapCandidate* victim : *chosen) {
      result.victims.push_back(victim->model);
    }
    return result;
  }
  Missing left = all_missing;
  if (take_until_enough(eventually, left)) {
    return {.outcome = PreemptionOutcome::kWait, .retry_at = retry_at};
  }
  return {.outcome = PreemptionOutcome::kNever};
}

}  // namespace heddle::policy
