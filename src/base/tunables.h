#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"

namespace heddle {

/// Numbers that were chosen before any GPU had run them: what they trade against each other is to
/// be measured. Benchmarks try others by the environment (docs/guide/gpu-bench.md); the product's
/// configuration has none of them.
enum class Tuned : std::uint8_t {
  kThinBeforeBlas,
  kNarrowBlocks,
  kWideBlocks,
  kSplitSteps,
  kAttentionParts,
  kPartsMib,
  kBlasWorkspaceMib,
  kNormShortColumns,
  kNormThreads,
  kRowThreads,
  kRowBlocks,
  kPieceMib,
  kUnmapMib,
  kNormTokens,
  kPieces,
  kOneShotKib,
  kBlasCandidates,
  kSurveyMs,
  kUnpackedTokens,
  kSkinnyBeforeBlas,
  kSkinnyBlocks,
  kWideRows,
  kWgmmaAttention,
};

/// One of them: an integer from `least` to `most` that `step` divides.
struct Tunable {
  Tuned which{};
  const char* name = "";  ///< Of the environment: "HEDDLE_TUNE_THIN_BEFORE_BLAS".
  std::int64_t usual = 0;
  std::int64_t least = 0;
  std::int64_t most = 0;
  std::int64_t step = 1;
  const char* what = "";  ///< For people, with its unit.
};

/// Values of all of them.
class Tunables {
 public:
  /// The usual values.
  Tunables();
  /// Those of an environment (of "NAME=VALUE" each), and the usual values of what is not there.
  /// kInvalidArgument: HEDDLE_TUNE_ANYTHING that is none of them, or what is no value of it; says
  /// what would be right.
  static Result<Tunables> read(std::span<const std::string> environment);

  [[nodiscard]] std::int64_t get(Tuned which) const {
    return values_[static_cast<std::size_t>(which)];
  }

 private:
  std::array<std::int64_t, 23> values_{};
};

/// All of them, in the order of Tuned.
[[nodiscard]] std::span<const Tunable> all_tunables();

/// Those of this process's environment, as Tunables::read().
[[nodiscard]] Result<Tunables> read_tunables();

/// A value of this process's environment, which is read once. Where read_tunables() fails this says
/// so on standard error and ends the process with status 2: what would be measured is not what was
/// asked for.
[[nodiscard]] std::int64_t tuned(Tuned which);

}  // namespace heddle
