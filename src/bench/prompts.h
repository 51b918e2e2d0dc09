#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/rng.h"

namespace heddle::bench {

/// Prompts of random words, so that no two begin alike and no cache of prefixes flatters a server.
class PromptMaker {
 public:
  explicit PromptMaker(std::uint64_t seed) : rng_(seed) {}

  [[nodiscard]] std::string words(std::int64_t count);
  /// Of tokens drawn from these, of which there is one at least: as long as wanted, to the token.
  [[nodiscard]] std::vector<TokenId> tokens(std::span<const TokenId> from, std::int64_t count);

  /// All the words that prompts are made of, once.
  [[nodiscard]] static std::string every_word();

 private:
  Rng rng_;
};

/// How many tokens a server counts for a prompt of so many words.
struct WordSample {
  std::int64_t words = 0;
  std::int64_t tokens = 0;
};

/// A tokenizer as seen from outside: tokens = fixed + per_word * words, the fixed ones being those
/// of the chat template.
struct TokenScale {
  double fixed = 0;
  double per_word = 1;

  /// For a prompt of about so many tokens; at least 1.
  [[nodiscard]] std::int64_t words(std::int64_t tokens) const;
};

/// The line through two samples, `less` having fewer words.
[[nodiscard]] TokenScale scale_through(WordSample less, WordSample more);

}  // namespace heddle::bench
