#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/rng.h"

namespace heddle::twin {

/// A sequence's tokens, as a mark for each prefix of them: equal marks are of equal prefixes of the
/// same model and cache salt.
class PrefixMarks {
 public:
  /// Of a sequence whose tokens nobody looks at; only empty() is asked.
  PrefixMarks() = default;
  PrefixMarks(ModelId model, std::string_view salt, std::span<const TokenId> tokens)
      : marks_{model.value()} {
    for (const char letter : salt) {
      marks_[0] = after(marks_[0], static_cast<std::uint64_t>(letter));
    }
    for (const TokenId token : tokens) {
      append(token);
    }
  }

  [[nodiscard]] bool empty() const { return marks_.empty(); }
  void append(TokenId token) {
    marks_.push_back(after(marks_.back(), static_cast<std::uint64_t>(token)));
  }
  /// Of the first so many tokens.
  [[nodiscard]] std::uint64_t at(std::int64_t tokens) const {
    return marks_.at(static_cast<std::size_t>(tokens));
  }

 private:
  static std::uint64_t after(std::uint64_t mark, std::uint64_t next) {
    return Rng(mark ^ Rng(next).next()).next();
  }

  std::vector<std::uint64_t> marks_{};
};

}  // namespace heddle::twin
