#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "policy/batching.h"

namespace heddle::core {

/// What one model did in a step, for learning what it costs.
struct StepWork {
  ModelId model{};
  std::int64_t tokens = 0;
  std::int64_t attention_pairs = 0;  ///< Pairs of a query token and a token it attended to.
};

/// What steps cost on this device, per model: a first guess, then averages of what was measured
/// (exponentially weighted, 1/8 to the newest).
class StepCosts {
 public:
  /// Of a model that was here before, what was known when it left. Else guesses from the bytes of
  /// weights: one pass reads them all, a token multiplies with them all.
  void add(ModelId model, std::uint64_t image_bytes);
  void remove(ModelId model);

  /// Takes in a step that took `took` and waited for no weights.
  void learn(const std::vector<StepWork>& work, Duration took);

  /// What reading `tokens` of a prompt behind `computed` others takes, in steps of `chunk` tokens
  /// that do nothing else; > 0.
  [[nodiscard]] Duration prefill(ModelId model,
                                 std::int64_t computed,
                                 std::int64_t tokens,
                                 std::int64_t chunk) const;

  /// Of those that are here, by model id.
  [[nodiscard]] std::vector<policy::StepCost> costs() const;

 private:
  std::map<ModelId, policy::StepCost> costs_{};
  std::map<ModelId, policy::StepCost> left_{};  ///< Of those that were here.
};

}  // namespace heddle::core
