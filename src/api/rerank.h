#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/error.h"
#include "api/requests.h"

namespace heddle::api {

/// Two texts of which a model says how well the second one fits the first, and how they came.
struct ScoredPair {
  std::size_t first = 0;  ///< Of PairsRequest::firsts.
  std::string second{};
  std::string param{};  ///< Of the request: "documents[3]".
};

/// What requests for scores have in common: those of POST /v1/rerank and of POST /v1/score.
struct PairsRequest {
  std::string model{};
  std::vector<std::string> firsts{};  ///< A query, or several texts.
  std::vector<ScoredPair> pairs{};    ///< Not empty; of a rerank query and document.
  /// The second text of a pair is cut, so that the pair has so many tokens at most; -1: as many as
  /// the model takes. Nothing: pairs that are too long are refused.
  std::optional<std::int64_t> truncate{};
  std::optional<std::int64_t> top_n{};  ///< Of a rerank: so many of the best; nothing: all.
  bool return_documents = true;         ///< Of a rerank.
  std::int32_t priority = 0;
  std::optional<Duration> keep_alive{};  ///< As in GenerationParams.
  std::vector<std::string> warnings{};   ///< Likewise.
};

/// A body of POST /v1/rerank, as Jina, Cohere and vLLM have it: `query`, `documents` (strings, or
/// objects with `text`), `top_n`, `return_documents`. As the parsers of requests.h.
[[nodiscard]] Parsed<PairsRequest> parse_rerank_request(std::string_view body);

/// A body of POST /v1/score, as vLLM has it: `text_1` and `text_2`, each a string or a list of
/// strings: one against each, or pair by pair.
[[nodiscard]] Parsed<PairsRequest> parse_score_request(std::string_view body);

/// What a score says: the probability 1 / (1 + exp(-logit)) that a model with one label gives.
[[nodiscard]] double relevance(float logit);

/// The answer to a rerank: documents by falling score, of equal ones in their order.
/// @param logits  One for each pair of `request`.
[[nodiscard]] std::string rerank_json(const std::string& id,
                                      const PairsRequest& request,
                                      const std::vector<float>& logits,
                                      std::int64_t tokens);

/// The answer to a request for scores, in the order of its pairs.
/// @param created  Seconds since 1970.
[[nodiscard]] std::string scores_json(const std::string& id,
                                      std::int64_t created,
                                      const PairsRequest& request,
                                      const std::vector<float>& logits,
                                      std::int64_t tokens);

}  // namespace heddle::api
