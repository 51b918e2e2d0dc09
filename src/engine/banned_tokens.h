#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "engine/sequence.h"
#include "ops/penalties.h"

/// What a sequence's parameters forbid of its next token, whatever the model thinks of it.
namespace heddle::engine {

/// Bias of a token that may not be drawn: no logit makes up for it, and sums with it are numbers.
inline constexpr float kBannedBias = -1e30F;

/// Tokens that may not follow the first `generated` tokens of the answer, ascending: stop tokens
/// before min_tokens; the last token of a bad word behind all its others.
[[nodiscard]] std::vector<TokenId> banned_tokens(const Sequence& sequence, std::int64_t generated);

/// Whether the token after next may be banned for what the next one is.
[[nodiscard]] bool bans_by_token(const spec::SamplingParams& params);

/// Appends the uses of the sequence's tokens with those that are banned behind `generated` tokens;
/// by token id, as Sequence::uses.
void append_uses(const Sequence& sequence,
                 std::int64_t generated,
                 std::vector<ops::TokenUse>& uses);

}  // namespace heddle::engine
