#pragma once

#include <cstdint>

#include "base/result.h"
#include "spec/sampling.h"
#include "text/model_texts.h"

namespace heddle::gateway {

/// How a model makes vectors of texts, as sentence-transformers' files in its directory say.
struct SentenceFiles {
  spec::Pooling pooling = spec::Pooling::kMean;
  bool normalised = true;        ///< Vectors are scaled to length 1.
  std::int64_t most_tokens = 0;  ///< Of a text; 0: as many as the model has positions.
};

/// Reads modules.json, 1_Pooling/config.json and sentence_bert_config.json of an encoder. Without
/// the first two hidden states are averaged; without the first, vectors are normalised. kCorrupt,
/// naming the file and what is built in, for another pooling than of the first token, the last or
/// the mean of all, and for further modules.
[[nodiscard]] Result<SentenceFiles> read_sentence_files(const text::ModelTexts& texts);

}  // namespace heddle::gateway
