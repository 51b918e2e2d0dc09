#include "engine/prompt_scores.h"

#include <algorithm>

#include "ops/log_probs.h"

namespace heddle::engine {

void PromptScores::gather(std::span<const ScoredRow> rows, std::int64_t turn, Mirror& mirror) {
  rows_ = std::ssize(rows);
  turn_ = turn;
  std::vector<std::int32_t> picks;
  std::vector<std::int32_t> choices;
  std::vector<ops::LogProbRow> log_prob_rows;
  for (const ScoredRow& row : rows) {
    // The choice is counted within its turn.
    const auto choice = static_cast<std::int32_t>(std::ssize(picks) % turn);
    log_prob_rows.push_back({.choice = choice, .top = std::min(row.top, ops::kLogProbsTopMax)});
    picks.push_back(row.row);
    choices.push_back(row.token);
  }
  picks_ = mirror.add(picks);
  choices_ = mirror.add(choices);
  log_prob_rows_ = mirror.add(log_prob_rows);
  const std::size_t places = rows.size() * static_cast<std::size_t>(ops::kLogProbsWidth);
  tokens_ = mirror.add(std::vector<std::int32_t>(places, -1));
  values_ = mirror.add(std::vector<float>(places, 0.0F));
}

void PromptScores::enqueue(ops::OpContext& context,
                           const Decoder& decoder,
                           const Activations& activations,
                           const Mirror& mirror) const {
  for (std::int64_t first = 0; first < rows_; first += turn_) {
    const std::int64_t n = std::min(turn_, rows_ - first);
    const auto logits = decoder.logits(
        context, ops::vector_of(mirror.device<std::int32_t>(picks_) + first, n), activations);
    const std::int64_t place = first * ops::kLogProbsWidth;
    ops::log_probs(context,
                   {.logits = logits,
                    .rows = mirror.device<ops::LogProbRow>(log_prob_rows_) + first,
                    .choices = ops::vector_of(mirror.device<std::int32_t>(choices_) + first, n),
                    .tokens = mirror.device<std::int32_t>(tokens_) + place,
                    .log_probs = mirror.device<float>(values_) + place});
  }
}

void PromptScores::fetch(device::Stream& stream, Mirror& mirror) const {
  if (rows_ > 0) {
    const auto places = static_cast<std::size_t>(rows_ * ops::kLogProbsWidth);
    mirror.fetch(stream, tokens_, values_ + places * sizeof(float) - tokens_);
  }
}

spec::PromptToken PromptScores::of(std::size_t i, const Mirror& mirror) const {
  const std::size_t place = i * static_cast<std::size_t>(ops::kLogProbsWidth);
  const std::int32_t* const tokens = mirror.host<std::int32_t>(tokens_) + place;
  const float* const values = mirror.host<float>(values_) + place;
  spec::PromptToken told;
  for (std::int64_t k = 0; k < ops::kLogProbsWidth && tokens[k] >= 0; ++k) {
    told.logprobs.push_back({.token = tokens[k], .logprob = values[k]});
  }
  return told;
}

}  // namespace heddle::engine
