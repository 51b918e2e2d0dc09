#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "spec/model_spec.h"

namespace heddle::engine {

/// The rotation that stands for a position: pair i of a head turns by position * radians[i], and
/// queries and keys are scaled by `scale`.
struct RopeFrequencies {
  std::vector<double> radians{};  ///< [spec::rotary_dim() / 2], per position.
  double scale = 1.0;             ///< The attention factor of YaRN and LongRoPE; 1 otherwise.
};

/// radians[i] = rope_theta^(-2i / d) with d = spec::rotary_dim(), stretched as the model's
/// RopeScaling says:
///
/// - linear: divided by factor (position interpolation; S. Chen et al., arXiv:2306.15595);
/// - llama3: wavelengths beyond original / low_freq_factor are, those below original /
///   high_freq_factor are not, and between them a mean is taken (as in Meta's Llama 3.1 release);
/// - yarn: the same idea with a linear ramp over dimensions, and `scale` = 0.1 ln(factor) + 1 (B.
///   Peng et al., "YaRN: Efficient Context Window Extension of Large Language Models",
///   arXiv:2309.00071, section 3);
/// - proportional: divided by factor, and only the first `share` of the pairs turn, at the speeds
/// of
///   a head that turns whole (as Gemma 4's files are computed);
/// - longrope: each divided by a factor of its own, and `scale` = sqrt(1 + ln(factor) /
///   ln(original)) (Y. Ding et al., "LongRoPE: Extending LLM Context Window Beyond 2 Million
///   Tokens", arXiv:2402.13753; the scale as Phi-3's files are computed).
///
/// That is how layers of kModels rotate. Those of kLocal do by local_theta, unscaled, and those of
/// kNone not at all.
[[nodiscard]] RopeFrequencies rope_frequencies(const spec::ModelSpec& model,
                                               spec::LayerRope rope = spec::LayerRope::kModels);

/// Fills out[0, n) with the cosines and out[n, 2n) with the sines of a position, n = d / 2,
/// times `scale`: computed in double and rounded once.
void rope_cos_sin(const RopeFrequencies& frequencies, std::int64_t position, std::span<float> out);

/// rope_cos_sin() of positions, each computed when it is first asked for and then kept: those of a
/// long prompt take as long as some layers of it on a GPU. Used by one thread.
class RopeTable {
 public:
  /// Positions that are kept, from 0 on; others are computed each time.
  static constexpr std::int64_t kKept = 32768;

  explicit RopeTable(RopeFrequencies frequencies) : frequencies_(std::move(frequencies)) {}

  [[nodiscard]] const RopeFrequencies& frequencies() const { return frequencies_; }
  /// The cosines and sines of a position. Valid until the next call.
  [[nodiscard]] std::span<const float> row(std::int64_t position);

 private:
  static constexpr std::size_t kChunk = 64;  ///< Positions that are computed together.

  RopeFrequencies frequencies_;
  std::vector<std::vector<float>> chunks_{};
  std::vector<float> beyond_{};
};

}  // namespace heddle::engine
