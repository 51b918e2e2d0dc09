#pragma once

#include <cstdint>
#include <vector>

namespace heddle::policy {

/// Tokens [begin, end) of a sequence whose layers of linear attention keep a state, which goes by
/// them in one pass. All in tokens.
struct StateSpan {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t prompt = 0;  ///< Of the sequence.
  std::int64_t block = 0;   ///< A cached prefix ends at multiples of this.
  std::int64_t apart = 0;  ///< Of a long prompt, one state for each so many; a multiple of `block`.
  std::int64_t parted = 0;  ///< Where it parts from what KV is cached of, a multiple; 0: nowhere.
};

/// A length of the prefix behind which the state is to be kept.
struct StatePoint {
  std::int64_t length = 0;
  bool lasting = false;  ///< Else until the sequence has a later one.
  friend bool operator==(const StatePoint&, const StatePoint&) = default;
};

/// Which states of a sequence are worth a copy: a prefix can be gone on from only where there is
/// one, and a copy takes as much memory as KV of thousands of tokens. Lasting ones are at the last
/// border of a block within the prompt, but for its last token, which is always computed: from
/// there the next turn of a chat goes on, and other choices; where the sequence parts from what is
/// cached of others, as that is a prefix that several share; and each `apart` tokens before. A span
/// without one of these has the last border within it, for whoever is preempted, moves, or goes on
/// with the answer. Ascending, within (begin, end]. Pure.
///
/// TensorRT-LLM has the same kinds: periodic, from the end of the prompt, and of branches
/// (llmapi.MambaStateConfig, 1.3).
[[nodiscard]] std::vector<StatePoint> state_points(const StateSpan& span);

/// How many tokens lie between two copies of a long prompt, so that these have at most a fifth of
/// what they have together with its KV: a multiple of `block`. `state_bytes` is what one takes,
/// `token_bytes` KV of a token, above 0.
[[nodiscard]] std::int64_t state_spacing(std::int64_t state_bytes,
                                         std::int64_t token_bytes,
                                         std::int64_t block);

}  // namespace heddle::policy
