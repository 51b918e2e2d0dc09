#include "core/step_costs.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace heddle::core {
namespace {

// A modest core: 10 GB/s of memory, 40 G bf16 multiply-adds a second. Off by far on most devices;
// a few steps put it right.
constexpr std::uint64_t kWeightBytesPerNs = 10;
constexpr std::uint64_t kWeightBytesPerNsPerToken = 80;
constexpr Duration kContextTokenGuess{20};

Duration average(Duration old, Duration measured) {
  return std::max(Duration{1}, old + (measured - old) / 8);
}

Duration predicted(const policy::StepCost& cost, const StepWork& work) {
  return cost.fixed + cost.per_token * work.tokens + cost.per_context_token * work.attention_pairs;
}

}  // namespace

void StepCosts::add(ModelId model, std::uint64_t image_bytes) {
  if (auto known = left_.extract(model)) {
    costs_.insert(std::move(known));
    return;
  }
  const auto ns = [image_bytes](std::uint64_t bytes_per_ns) {
    return Duration{static_cast<Duration::rep>(image_bytes / bytes_per_ns) + 1};
  };
  costs_[model] = {.model = model,
                   .fixed = ns(kWeightBytesPerNs),
                   .per_token = ns(kWeightBytesPerNsPerToken),
                   .per_context_token = kContextTokenGuess};
}

void StepCosts::remove(ModelId model) {
  left_.insert(costs_.extract(model));
}

void StepCosts::learn(const std::vector<StepWork>& work, Duration took) {
  Duration all{};
  for (const StepWork& part : work) {
    all += predicted(costs_.at(part.model), part);
  }
  if (all <= Duration{}) {
    return;
  }
  for (const StepWork& part : work) {
    policy::StepCost& cost = costs_.at(part.model);
    // The models of a step share the error in proportion to what was expected of them.
    const double share =
        static_cast<double>(predicted(cost, part).count()) / static_cast<double>(all.count());
    const Duration measured{static_cast<Duration::rep>(share * static_cast<double>(took.count()))};
    const Duration attention = cost.per_context_token * part.attention_pairs;
    const Duration tokens = cost.per_token * part.tokens;
    // Few tokens: reading the weights is most of it. Many: the multiplications are.
    if (cost.fixed >= tokens) {
      cost.fixed = average(cost.fixed, measured - tokens - attention);
    } else {
      cost.per_token = average(cost.per_token, (measured - cost.fixed - attention) / part.tokens);
    }
  }
}

Duration StepCosts::prefill(ModelId model,
                            std::int64_t computed,
                            std::int64_t tokens,
                            std::int64_t chunk) const {
  const policy::StepCost& cost = costs_.at(model);
  const std::int64_t pairs = tokens * computed + tokens * (tokens + 1) / 2;
  return std::max(
      Duration{1},
      cost.fixed * tokens / chunk + cost.per_token * tokens + cost.per_context_token * pairs);
}

std::vector<policy::StepCost> StepCosts::costs() const {
  std::vector<policy::StepCost> costs;
  for (const auto& [id, cost] : costs_) {
    costs.push_back(cost);
  }
  return costs;
}

}  // namespace heddle::core
