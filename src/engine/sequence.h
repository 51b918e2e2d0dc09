#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "engine/adapters.h"
#include "engine/engine.h"
#include "engine/model_kv.h"
#include "engine/prefix_keys.h"
#include "ops/penalties.h"
#include "spec/sampling.h"

namespace heddle::engine {

/// A sequence in the engine: its tokens, how far their KV is computed, and where it lies.
struct Sequence {
  SequenceStart start{};  ///< Its tokens grow as they are sampled.
  std::int64_t computed = 0;
  SequenceKv kv{};
  const AdapterWeights* adapter = nullptr;  ///< Of start.adapter, once it has begun with it.
  std::optional<PrefixKeys> prefix{};       ///< None where prefixes are not cached.
  bool asked = false;                       ///< For a prefix, since it has had none of its own.
  bool begun = false;                       ///< Something of it was computed here.
  bool followed = false;                    ///< Followers of its pipeline know it.
  std::int64_t reused = 0;                  ///< Tokens that a cached prefix had when it began.
  /// What penalties and biases do, by token id. Only kept where a penalty is not neutral.
  std::vector<ops::TokenUse> uses{};
  /// Which tokens its grammar allows next, ops::mask_words; empty where it has none.
  std::vector<std::uint32_t> mask{};
  /// With Pooling::kMean: the sum of the hidden states of the computed tokens.
  std::vector<double> pooled{};
  /// With prompt_logprobs: what is known of the prompt's tokens, all but the first.
  std::vector<spec::PromptToken> prompt{};

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(start.tokens.size()); }
  [[nodiscard]] std::int64_t generated() const { return size() - start.prompt_tokens; }
};

/// Whether it stands for a text instead of generating one.
[[nodiscard]] inline bool pools(const spec::SamplingParams& params) {
  return params.pooling != spec::Pooling::kNone;
}

/// Whether what it tells of its prompt is outstanding.
[[nodiscard]] inline bool scores_prompt(const Sequence& sequence) {
  return sequence.start.params.prompt_logprobs >= 0 && sequence.generated() == 0 &&
         !pools(sequence.start.params);
}

/// Whether all tokens have to be computed here, whatever KV there may be of them.
[[nodiscard]] inline bool needs_every_row(const Sequence& sequence) {
  return sequence.start.params.pooling == spec::Pooling::kMean ||
         sequence.start.params.pooling == spec::Pooling::kFirst || scores_prompt(sequence);
}

/// Whether any penalty of `params` depends on which tokens were seen.
[[nodiscard]] bool counts_tokens(const spec::SamplingParams& params);

/// The uses of a sequence's tokens and biases, by token id.
[[nodiscard]] std::vector<ops::TokenUse> token_uses(const SequenceStart& start);

/// Notes one more generated token in `uses`.
void count_generated(std::vector<ops::TokenUse>& uses, TokenId token);

/// Whether, and why, a sequence ends with the token that was appended last: a stop token or the end
/// of its grammar before max_tokens before the context's end.
[[nodiscard]] spec::FinishReason finish_reason(const Sequence& sequence, std::int64_t context);

}  // namespace heddle::engine
