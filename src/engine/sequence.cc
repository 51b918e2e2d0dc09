#include "engine/sequence.h"

#include <algorithm>

namespace heddle::engine {
namespace {

ops::TokenUse& use_of(std::vector<ops::TokenUse>& uses, TokenId token) {
  const auto at =
      std::lower_bound(uses.begin(), uses.end(), token, [](const ops::TokenUse& use, TokenId id) {
        return use.token < id;
      });
  if (at != uses.end() && at->token == token) {
    return *at;
  }
  return *uses.insert(at, {.token = token});
}

}  // namespace

bool counts_tokens(const spec::SamplingParams& params) {
  return params.repetition_penalty != 1.0F || params.presence_penalty != 0.0F ||
         params.frequency_penalty != 0.0F;
}

std::vector<ops::TokenUse> token_uses(const SequenceStart& start) {
  const std::size_t counted = counts_tokens(start.params) ? start.tokens.size() : 0;
  std::vector<ops::TokenUse> uses;
  uses.reserve(start.params.logit_bias.size() + counted);
  for (const auto& [token, bias] : start.params.logit_bias) {
    uses.push_back({.token = token, .bias = bias});
  }
  for (std::size_t i = 0; i < counted; ++i) {
    const bool generated = static_cast<std::int64_t>(i) >= start.prompt_tokens;
    uses.push_back({.token = start.tokens[i], .generated = generated ? 1 : 0, .seen = 1});
  }
  std::sort(uses.begin(), uses.end(), [](const ops::TokenUse& a, const ops::TokenUse& b) {
    return a.token < b.token;
  });
  std::size_t kept = 0;
  for (std::size_t i = 1; i < uses.size(); ++i) {  // Merges equal tokens.
    if (uses[i].token != uses[kept].token) {
      uses[++kept] = uses[i];
      continue;
    }
    uses[kept].generated += uses[i].generated;
    uses[kept].seen |= uses[i].seen;
    uses[kept].bias += uses[i].bias;  // At most one of them has a bias.
  }
  uses.resize(uses.empty() ? 0 : kept + 1);
  return uses;
}

void count_generated(std::vector<ops::TokenUse>& uses, TokenId token) {
  ops::TokenUse& use = use_of(uses, token);
  use.seen = 1;
  ++use.generated;
}

spec::FinishReason finish_reason(const Sequence& sequence, std::int64_t context) {
  const spec::SamplingParams& params = sequence.start.params;
  const auto& stops = params.stop_tokens;
  if (!params.ignore_eos &&
      std::find(stops.begin(), stops.end(), sequence.start.tokens.back()) != stops.end()) {
    return spec::FinishReason::kStop;
  }
  if (sequence.start.grammar != nullptr && sequence.start.grammar->ended()) {
    return spec::FinishReason::kStop;
  }
  if (sequence.generated() >= params.max_tokens || sequence.size() >= context) {
    return spec::FinishReason::kLength;
  }
  return spec::FinishReason::kNone;
}

}  // namespace heddle::engine
