#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace heddle::policy {

/// Passes of a model until what was counted before is worth half.
inline constexpr double kExpertHalfLife = 64.0;

/// Which experts of a model have the slots in a device's memory, where there are fewer slots than
/// experts: those that most passes took, lately. That is LRFU (D. Lee et al., "LRFU: A Spectrum of
/// Policies that Subsumes the Least Recently Used and Least Frequently Used Policies", IEEE
/// Transactions on Computers 50(12), 2001), equation 1 with F(x) = 2^(-x / h), x in passes. A pass
/// counts when it is over. Else an expert that it has taken would be worth more than one that it
/// comes to next, and layers, which come round in turn, would each drive out what the next needs.
/// One thread.
class ExpertTurns {
 public:
  /// Of `experts` over all layers, `slots` are there at once: at least 1 and at most all. None is
  /// there at first. `half_life` in passes, above 0: hardly any is LRU, very many are LFU.
  ExpertTurns(std::int64_t experts, std::int64_t slots, double half_life = kExpertHalfLife);

  /// The pass before is over, if there was one.
  void begin_pass();

  struct Turn {
    std::int64_t slot = 0;
    bool there = false;  ///< Else it is to be fetched into that slot, whatever was there.
  };
  /// The pass takes this expert, below `experts`, for the first time. It has that slot until
  /// another is given it.
  Turn take(std::int64_t expert);

  /// Experts that have a slot.
  [[nodiscard]] std::int64_t resident() const { return used_; }

 private:
  [[nodiscard]] std::int64_t coldest() const;

  double growth_;        ///< Of the weight from a pass to the next.
  double weight_ = 1.0;  ///< Of the present pass; it grows, in place of what was counted shrinking.
  std::vector<double> counts_;                      ///< By expert.
  std::vector<std::int64_t> taken_{};               ///< By the present pass.
  std::vector<std::optional<std::int64_t>> slots_;  ///< By expert.
  std::vector<std::int64_t> experts_;               ///< By slot, of those used.
  std::int64_t used_ = 0;
};

}  // namespace heddle::policy
