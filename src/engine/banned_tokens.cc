#include "engine/banned_tokens.h"

#include <algorithm>

namespace heddle::engine {
namespace {

/// Whether the answer, of which so much is known, ends with all of the word but its last token.
bool begins_at_end(const spec::BadWord& word, const Sequence& sequence, std::int64_t generated) {
  const auto before = static_cast<std::int64_t>(word.tokens.size()) - 1;
  if (before > generated) {
    return false;
  }
  const auto answer = sequence.start.tokens.begin() + sequence.start.prompt_tokens;
  return std::equal(word.tokens.begin(), word.tokens.end() - 1, answer + (generated - before));
}

}  // namespace

std::vector<TokenId> banned_tokens(const Sequence& sequence, std::int64_t generated) {
  const spec::SamplingParams& params = sequence.start.params;
  std::vector<TokenId> banned;
  if (generated < params.min_tokens) {
    banned = params.stop_tokens;
  }
  for (const spec::BadWord& word : params.bad_words) {
    if (begins_at_end(word, sequence, generated)) {
      banned.push_back(word.tokens.back());
    }
  }
  std::sort(banned.begin(), banned.end());
  banned.erase(std::unique(banned.begin(), banned.end()), banned.end());
  return banned;
}

bool bans_by_token(const spec::SamplingParams& params) {
  return std::any_of(params.bad_words.begin(), params.bad_words.end(), [](const auto& word) {
    return word.tokens.size() > 1;
  });
}

void append_uses(const Sequence& sequence,
                 std::int64_t generated,
                 std::vector<ops::TokenUse>& uses) {
  auto use = sequence.uses.begin();
  for (const TokenId token : banned_tokens(sequence, generated)) {
    while (use != sequence.uses.end() && use->token < token) {
      uses.push_back(*use++);
    }
    const bool used = use != sequence.uses.end() && use->token == token;
    uses.push_back(used ? *use++ : ops::TokenUse{.token = token});
    uses.back().bias = kBannedBias;
  }
  uses.insert(uses.end(), use, sequence.uses.end());
}

}  // namespace heddle::engine
