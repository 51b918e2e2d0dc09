#include "gguf/score_merges.h"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "gguf/token_types.h"

namespace heddle::gguf {
namespace {

using spec::JsonWriter;

/// Characters of UTF-8.
std::size_t characters(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

/// The pairs of ordinary tokens that make a token, in the order in which they are to be joined.
class Merges {
 public:
  Merges(const std::vector<std::string>& tokens,
         const std::vector<std::int64_t>& types,
         const std::vector<double>& scores) {
    std::unordered_map<std::string_view, std::size_t> ids;
    for (std::size_t id = 0; id < tokens.size(); ++id) {
      if (is(types[id], TokenType::kNormal)) {
        ids.emplace(tokens[id], id);
      }
    }
    for (std::size_t id = 0; id < tokens.size(); ++id) {
      if (is(types[id], TokenType::kNormal)) {
        add(tokens[id], scores[id], id, ids);
      }
    }
    std::ranges::sort(pairs_, [](const Pair& a, const Pair& b) { return before(a, b); });
  }

  void write(JsonWriter& json) const {
    for (const Pair& pair : pairs_) {
      json.begin_array().string(pair.left).string(pair.right).end_array();
    }
  }

 private:
  struct Pair {
    std::string_view left;
    std::string_view right;
    double score = 0;                             ///< Of the token that they make,
    std::size_t made = 0;                         ///< and its id.
    std::pair<std::size_t, std::size_t> parts{};  ///< Ids.
  };

  /// Best scores first. Where those are equal: the longer left part, the longer right part, and
  /// what comes first in the vocabulary.
  static bool before(const Pair& a, const Pair& b) {
    const auto rank = [](const Pair& pair) {
      return std::tuple(-pair.score,
                        -static_cast<std::ptrdiff_t>(characters(pair.left)),
                        -static_cast<std::ptrdiff_t>(characters(pair.right)),
                        pair.made,
                        pair.parts);
    };
    return rank(a) < rank(b);
  }

  void add(std::string_view token,
           double score,
           std::size_t made,
           const std::unordered_map<std::string_view, std::size_t>& ids) {
    for (std::size_t cut = 1; cut < token.size(); ++cut) {
      const auto left = ids.find(token.substr(0, cut));
      const auto right = left == ids.end() ? left : ids.find(token.substr(cut));
      if (right != ids.end()) {
        pairs_.push_back({.left = left->first,
                          .right = right->first,
                          .score = score,
                          .made = made,
                          .parts = {left->second, right->second}});
      }
    }
  }

  std::vector<Pair> pairs_{};
};

}  // namespace

void write_score_merges(const std::vector<std::string>& tokens,
                        const std::vector<std::int64_t>& types,
                        const std::vector<double>& scores,
                        spec::JsonWriter& json) {
  Merges(tokens, types, scores).write(json);
}

}  // namespace heddle::gguf
