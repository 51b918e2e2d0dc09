#pragma once

#include <cstdint>

namespace heddle::ops {

/// How the token of one row is drawn; spec::SamplingParams says what each means.
struct SampleRow {
  float temperature = 1.0F;  ///< 0: the largest logit, lowest id on ties; the rest is ignored.
  float top_p = 1.0F;
  float min_p = 0.0F;
  std::int32_t top_k = 0;
  double uniform = 0.0;    ///< The row's random number, in [0, 1).
  std::int32_t mask = -1;  ///< Which of SampleArgs::masks the row has; -1: none.
};

/// What stands for a token where logits hold a NaN, or no finite largest one that the mask allows.
constexpr std::int32_t kNoToken = -1;

/// Words of a mask over a vocabulary.
[[nodiscard]] constexpr std::int64_t mask_words(std::int64_t vocab) {
  return (vocab + 31) / 32;
}

}  // namespace heddle::ops
