#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "engine/activations.h"
#include "engine/decoder.h"
#include "engine/mirror.h"
#include "ops/context.h"
#include "spec/sampling.h"

namespace heddle::engine {

/// A row of a pass whose next token is known, as it is one of the prompt.
struct ScoredRow {
  std::int32_t row = 0;  ///< Of the hidden states.
  TokenId token = 0;     ///< That follows.
  std::int32_t top = 0;  ///< How many of the likeliest are told with it.
};

/// How likely a model finds the tokens of prompts, as one pass computes it: of each row the log
/// probability of the token that follows, and of the likeliest ones. Part of a Pass, whose mirror
/// it uses; used by one thread.
class PromptScores {
 public:
  /// Forgets what was before. Rows are scored `turn` at once.
  void gather(std::span<const ScoredRow> rows, std::int64_t turn, Mirror& mirror);
  /// Behind the last layer, once the mirror was sent.
  void enqueue(ops::OpContext& context,
               const Decoder& decoder,
               const Activations& activations,
               const Mirror& mirror) const;
  /// The way back, behind that.
  void fetch(device::Stream& stream, Mirror& mirror) const;
  /// Of the i-th row, once the stream is synchronised.
  [[nodiscard]] spec::PromptToken of(std::size_t i, const Mirror& mirror) const;

 private:
  std::int64_t rows_ = 0;
  std::int64_t turn_ = 0;
  std::size_t picks_ = 0;  ///< Offsets in the mirror, as the following.
  std::size_t choices_ = 0;
  std::size_t log_prob_rows_ = 0;
  std::size_t tokens_ = 0;  ///< [rows, ops::kLogProbsWidth], as the next; results.
  std::size_t values_ = 0;
};

}  // namespace heddle::engine
