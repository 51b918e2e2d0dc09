#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace heddle::spec {

/// The language that constrains an answer.
enum class GrammarKind : std::uint8_t {
  kNone,
  kJsonSchema,  ///< A JSON schema; the answer is one JSON value.
  kRegex,       ///< A regular expression, in the syntax of Rust's `regex`.
  kLark,        ///< A context-free grammar in llguidance's variant of Lark.
};

/// What a model may think before an answer that is held to a grammar: any text up to </think>.
enum class Thought : std::uint8_t {
  kNone,   ///< Nothing: the grammar holds from the first token on.
  kMay,    ///< A thought that begins with <think>, or nothing.
  kBegun,  ///< The prompt has ended within a thought.
};

/// What an answer must conform to; every token is drawn from those that keep it possible.
struct Grammar {
  GrammarKind kind = GrammarKind::kNone;
  std::string text{};
  Thought thought = Thought::kNone;  ///< Before the answer.

  [[nodiscard]] bool constrains() const { return kind != GrammarKind::kNone; }
  friend bool operator==(const Grammar&, const Grammar&) = default;
};

/// Which hidden states, after the final norm, stand for a text.
enum class Pooling : std::uint8_t {
  kNone,   ///< None: a text is generated.
  kLast,   ///< That of the last token.
  kMean,   ///< The mean of all.
  kFirst,  ///< That of the first token; of an encoder that scores, the score.
};

/// Tokens that do not stand one behind the other in an answer; at least one.
struct BadWord {
  std::vector<TokenId> tokens{};
  friend bool operator==(const BadWord&, const BadWord&) = default;
};

/// How the next token is chosen from the logits. Defaults are OpenAI's; a neutral value switches
/// the step off. Applied in this order: logit_bias, repetition, presence and frequency penalty,
/// temperature, top_k, top_p, min_p.
struct SamplingParams {
  float temperature = 1.0F;  ///< 0 means greedy: the largest logit, lowest id on ties.
  float top_p = 1.0F;        ///< Nucleus: smallest set of tokens with at least this probability.
  std::int32_t top_k = 0;    ///< Keep the k most likely tokens; 0 keeps all.
  float min_p = 0.0F;        ///< Keep tokens with at least min_p times the top probability.
  float presence_penalty = 0.0F;    ///< Subtracted once from each token generated so far.
  float frequency_penalty = 0.0F;   ///< Subtracted per occurrence among the generated tokens.
  float repetition_penalty = 1.0F;  ///< Divides (or multiplies, below 0) logits of all seen tokens.
  std::vector<std::pair<TokenId, float>> logit_bias{};  ///< Added to the logits; distinct ids.
  std::uint64_t seed = 0;       ///< Drawn at admission where the client gave none.
  std::uint32_t choice = 0;     ///< Which of the `n` answers this is; part of the randomness.
  std::int64_t max_tokens = 0;  ///< Generated tokens, at least 1; set at admission.
  bool ignore_eos = false;      ///< Keep going past stop_tokens.
  std::vector<TokenId> stop_tokens{};  ///< The model's ends of turn plus the client's own.
  /// Tell with each token its log probability and those of this many likeliest ones; -1: tell none.
  std::int32_t logprobs = -1;
  /// Likewise of each token of the prompt but the first, before anything is generated.
  std::int32_t prompt_logprobs = -1;
  std::int64_t min_tokens = 0;       ///< Before so many no stop token is drawn.
  std::vector<BadWord> bad_words{};  ///< The last token of one is not drawn behind its others.
  Grammar grammar{};
  /// Where it is not kNone nothing is sampled: one event ends the sequence, with an embedding.
  Pooling pooling = Pooling::kNone;
  /// The prompt is computed in one pass, as an encoder's has to be.
  bool in_one_pass = false;
  /// From which of the prompt's tokens on it is the second one of two texts; 0: it is one text.
  std::int64_t second_text = 0;
};

/// A token and the natural logarithm of its probability in the model's own distribution: before
/// bias, penalties, temperature and grammar.
struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0.0F;
  friend bool operator==(const TokenLogprob&, const TokenLogprob&) = default;
};

/// A token of a prompt, as TokenDetails::logprobs has it.
struct PromptToken {
  std::vector<TokenLogprob> logprobs{};
  friend bool operator==(const PromptToken&, const PromptToken&) = default;
};

/// What is told with a token where its parameters ask for it.
struct TokenDetails {
  /// The token itself, then the likeliest ones, likeliest first, lowest id first on ties.
  std::vector<TokenLogprob> logprobs{};
  std::vector<float> embedding{};  ///< The pooled hidden state.
  /// With the first token: how many of the prompt's tokens a cached prefix spared.
  std::int64_t cached_tokens = 0;
  /// With the first token: those of the prompt, all but the first.
  std::vector<PromptToken> prompt{};
  friend bool operator==(const TokenDetails&, const TokenDetails&) = default;
};

/// Why a sequence ended.
enum class FinishReason : std::uint8_t {
  kNone,    ///< It has not ended.
  kStop,    ///< A stop token was drawn, or (seen by the gateway only) a stop string appeared.
  kLength,  ///< max_tokens or the model's context length was reached.
};

}  // namespace heddle::spec
