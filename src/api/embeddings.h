#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/error.h"
#include "api/requests.h"
#include "spec/sampling.h"

namespace heddle::api {

/// A body of POST /v1/embeddings.
struct EmbeddingRequest {
  std::string model{};
  std::vector<Prompt> inputs{};  ///< Not empty.
  bool base64 = false;           ///< Numbers as the bytes of little-endian float32, in base64.
  std::optional<std::int64_t> dimensions{};  ///< Keep so many of the first.
  bool add_special_tokens = true;
  /// Texts are cut to so many tokens; -1: to as many as the model takes. Nothing: those that are
  /// too long are refused.
  std::optional<std::int64_t> truncate{};
  std::int32_t priority = 0;
  std::optional<Duration> keep_alive{};  ///< As in GenerationParams.
  std::vector<std::string> warnings{};   ///< Likewise.
};

/// As the parsers of requests.h.
[[nodiscard]] Parsed<EmbeddingRequest> parse_embedding_request(std::string_view body);

/// Keeps the first `dimensions` numbers; all of them where it is nothing.
void cut(std::vector<float>& embedding, std::optional<std::int64_t> dimensions);

/// Scales it to length 1; a vector of zeros stays one.
void normalise(std::vector<float>& embedding);

/// The answer: one vector for each input, in order.
[[nodiscard]] std::string embeddings_json(const std::string& model,
                                          const std::vector<std::vector<float>>& embeddings,
                                          std::int64_t prompt_tokens,
                                          bool base64);

}  // namespace heddle::api
