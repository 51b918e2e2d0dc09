#pragma once

#include <cstdint>

namespace heddle::ops {

/// What is to change in the logit of one token of one row.
struct TokenUse {
  std::int32_t token = 0;
  std::int32_t generated = 0;  ///< How often it stands among the generated tokens.
  float bias = 0.0F;           ///< logit_bias.
  std::int32_t seen = 0;       ///< 1 if it stands in the prompt or among the generated tokens.
};

/// One row's penalties, and its uses [begin, end): distinct tokens of the vocabulary.
struct PenaltyRow {
  float repetition = 1.0F;
  float presence = 0.0F;
  float frequency = 0.0F;
  std::int32_t begin = 0;
  std::int32_t end = 0;
};

}  // namespace heddle::ops
