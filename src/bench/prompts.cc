#include "bench/prompts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

namespace heddle::bench {

namespace {

/// Short and common, so that most tokenizers have a token for each.
constexpr std::array<std::string_view, 64> kWords{
    "time",  "year",  "way",    "day",  "thing", "man",   "world", "life", "hand",  "part", "child",
    "eye",   "place", "work",   "week", "case",  "point", "home",  "room", "water", "area", "money",
    "story", "fact",  "month",  "lot",  "right", "study", "book",  "word", "job",   "side", "kind",
    "head",  "house", "friend", "hour", "game",  "line",  "end",   "law",  "car",   "city", "name",
    "team",  "idea",  "body",   "back", "face",  "door",  "art",   "war",  "party", "land", "girl",
    "road",  "tree",  "food",   "sun",  "sea",   "wind",  "stone", "bird", "ship"};

}  // namespace

std::string PromptMaker::words(std::int64_t count) {
  std::string text;
  for (std::int64_t i = 0; i < count; ++i) {
    text += i > 0 ? " " : "";
    text += kWords.at(rng_.below(kWords.size()));
  }
  return text;
}

std::vector<TokenId> PromptMaker::tokens(std::span<const TokenId> from, std::int64_t count) {
  std::vector<TokenId> prompt;
  prompt.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    prompt.push_back(from[rng_.below(from.size())]);
  }
  return prompt;
}

std::string PromptMaker::every_word() {
  std::string text;
  for (const std::string_view word : kWords) {
    text += text.empty() ? "" : " ";
    text += word;
  }
  return text;
}

std::int64_t TokenScale::words(std::int64_t tokens) const {
  const double words = (static_cast<double>(tokens) - fixed) / per_word;
  return std::max<std::int64_t>(1, std::llround(words));
}

TokenScale scale_through(WordSample less, WordSample more) {
  const auto words = static_cast<double>(more.words - less.words);
  const auto tokens = static_cast<double>(more.tokens - less.tokens);
  if (words <= 0 || tokens <= 0) {
    return {};
  }
  const double per_word = tokens / words;
  return {.fixed = static_cast<double>(less.tokens) - per_word * static_cast<double>(less.words),
          .per_word = per_word};
}

}  // namespace heddle::bench
