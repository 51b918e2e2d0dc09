#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spec/json_writer.h"

namespace heddle::gguf {

/// Writes the pairs of ordinary tokens that make a token, as elements of an array, in the order in
/// which they are to be joined: best scores first, as transformers makes merges of SentencePiece.
/// @param types, scores  Of each token.
void write_score_merges(const std::vector<std::string>& tokens,
                        const std::vector<std::int64_t>& types,
                        const std::vector<double>& scores,
                        spec::JsonWriter& json);

}  // namespace heddle::gguf
