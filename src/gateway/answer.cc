#include "gateway/answer.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <span>
#include <string_view>
#include <utility>

namespace heddle::gateway {

namespace {

constexpr std::array<std::string_view, 7> kMarkers{"<think>",
                                                   "</think>",
                                                   "<tool_call>",
                                                   "</tool_call>",
                                                   "<|python_tag|>",
                                                   "[TOOL_CALLS]",
                                                   "[ARGS]"};

bool is_harmony(const Answer::Options& options) {
  return options.tools == text::ToolFormat::kHarmony ||
         options.reasoning == text::ReasoningFormat::kHarmony;
}

bool is_gemma4(const Answer::Options& options) {
  return options.tools == text::ToolFormat::kGemma4 ||
         options.reasoning == text::ReasoningFormat::kGemma4;
}

/// The special tokens that parsers of an answer want to see.
std::span<const std::string_view> markers_of(const Answer::Options& options) {
  if (is_harmony(options)) {
    return text::kHarmonyMarkers;
  }
  if (is_gemma4(options)) {
    return text::kGemma4Markers;
  }
  const bool parsed =
      options.tools != text::ToolFormat::kNone || options.reasoning != text::ReasoningFormat::kNone;
  return parsed ? std::span(kMarkers) : std::span<const std::string_view>();
}

/// What a parser makes of the next text, and of what it held back where that is the last.
template <typename Parser>
text::HarmonyParser::Found found_by(Parser& parser, const std::string& text, bool last, bool cut) {
  text::HarmonyParser::Found found = parser.push(text);
  if (last) {
    text::HarmonyParser::Found rest = parser.finish(cut);
    found.reasoning += rest.reasoning;
    found.text += rest.text;
    std::ranges::move(rest.calls, std::back_inserter(found.calls));
  }
  return found;
}

}  // namespace

Result<Answer> Answer::make(std::shared_ptr<const text::TextModel> model, Options options) {
  Result<AnswerText> text = AnswerText::make(model,
                                             {.stop = options.stop,
                                              .include_stop = options.include_stop,
                                              .min_tokens = options.min_tokens},
                                             markers_of(options));
  if (!text) {
    return text.error();
  }
  return Answer(std::move(model), std::move(text).value(), options);
}

Answer::Answer(std::shared_ptr<const text::TextModel> model,
               AnswerText text,
               const Options& options)
    : model_(std::move(model)),
      text_(std::move(text)),
      stop_(options.stop),
      reasoning_(options.reasoning, options.prompt_end),
      tools_(options.tools, options.give_calls),
      logprobs_(options.logprobs),
      prompt_(options.prompt),
      top_(options.top),
      scored_(options.scored),
      scored_top_(options.scored_top),
      prompt_only_(options.prompt_only) {
  if (is_harmony(options)) {
    harmony_.emplace(options.reasoning == text::ReasoningFormat::kHarmony,
                     options.tools == text::ToolFormat::kHarmony,
                     options.prompt_end,
                     options.give_calls);
  } else if (is_gemma4(options)) {
    gemma4_.emplace(options.reasoning == text::ReasoningFormat::kGemma4,
                    options.tools == text::ToolFormat::kGemma4,
                    options.prompt_end);
  }
}

api::TokenChance Answer::chance(const spec::TokenLogprob& one) const {
  return {.bytes = std::string(model_->tokenizer()->token_bytes(one.token)),
          .logprob = one.logprob};
}

api::TokenLogprobs Answer::describe(const std::vector<spec::TokenLogprob>& told) const {
  api::TokenLogprobs described;
  for (const spec::TokenLogprob& one : told) {
    if (&one == &told.front()) {
      described.token = chance(one);
      described.hidden = model_->tokenizer()->is_special(one.token);
    } else {
      described.top.push_back(chance(one));
    }
  }
  return described;
}

/// Those of the prompt, which come with the first token; a prompt's own first one has none.
std::vector<api::TokenLogprobs> Answer::describe_prompt(const core::TokenEvent& first) {
  std::vector<api::TokenLogprobs> tokens;
  for (const TokenId token : std::exchange(prompt_, {})) {
    const std::size_t at = tokens.size();
    const bool told = at > 0 && at <= first.details.prompt.size();
    tokens.push_back(told ? describe(first.details.prompt[at - 1].logprobs)
                          : describe({{.token = token}}));
    tokens.back().top.resize(std::min(tokens.back().top.size(), top_));
    tokens.back().first = !told;
    text_offset_ += tokens.back().hidden ? 0 : api::count_characters(tokens.back().token.bytes);
  }
  return tokens;
}

/// Those of the prompt as vLLM tells them: each token but the first, then the likeliest others.
api::PromptLogprobs Answer::score_prompt(const core::TokenEvent& first) {
  api::PromptLogprobs scores(std::exchange(scored_, {}).size());
  for (std::size_t at = 1; at < scores.size() && at <= first.details.prompt.size(); ++at) {
    const std::vector<spec::TokenLogprob>& told = first.details.prompt[at - 1].logprobs;
    for (std::size_t i = 0; i < told.size() && i <= scored_top_; ++i) {
      const auto place = static_cast<std::int32_t>(i);
      std::vector<api::PromptChance>& all = scores[at];
      if (i > 0 && told[i].token == told[0].token) {
        all.front().rank = place;
      } else {
        all.push_back({.token = told[i].token, .chance = chance(told[i]), .rank = place});
      }
    }
  }
  return scores;
}

/// Of the tokens whose text is shown, or will be; those of a stop string never are.
std::vector<api::TokenLogprobs> Answer::take_logprobs() {
  const bool all = text_.shown() == text_.decoded();
  std::vector<api::TokenLogprobs> taken;
  while (!held_.empty() && (all || held_.front().begin < text_.shown())) {
    taken.push_back(std::move(held_.front().logprobs));
    held_.pop_front();
  }
  return taken;
}

/// Thinking, text and calls of `text`, and of what was held back when it is the last.
text::HarmonyParser::Found Answer::take_apart(const std::string& text) {
  const bool cut = text_.finish() == spec::FinishReason::kLength;
  if (harmony_) {
    return found_by(*harmony_, text, text_.ended(), cut);
  }
  if (gemma4_) {
    return found_by(*gemma4_, text, text_.ended(), cut);
  }
  text::ReasoningSplitter::Parts parts = reasoning_.push(text);
  if (text_.ended()) {
    text::ReasoningSplitter::Parts rest = reasoning_.finish();
    parts.reasoning += rest.reasoning;
    parts.text += rest.text;
  }
  text::ToolCallParser::Found found = tools_.push(parts.text);
  if (text_.ended()) {
    text::ToolCallParser::Found rest = tools_.finish(cut);
    found.text += rest.text;
    std::move(rest.calls.begin(), rest.calls.end(), std::back_inserter(found.calls));
  }
  return {.reasoning = std::move(parts.reasoning),
          .text = std::move(found.text),
          .calls = std::move(found.calls)};
}

bool Answer::thinking() const {
  return harmony_ ? harmony_->thinking() : gemma4_ ? gemma4_->thinking() : reasoning_.thinking();
}

void Answer::part(std::string text, api::Choice& news) {
  text::HarmonyParser::Found found = take_apart(text);
  news.reasoning = std::move(found.reasoning);
  news.text = std::move(found.text);
  for (text::ToolCall& call : found.calls) {
    calls_ += call.continues ? 0 : 1;
    news.calls.push_back({.index = calls_ - 1,
                          .name = std::move(call.name),
                          .arguments = std::move(call.arguments),
                          .whole = call.whole});
  }
  news.called = calls_ > 0;
}

api::Choice Answer::push(const core::TokenEvent& event) {
  const std::size_t begin = text_.decoded();
  const bool thought = thinking();
  // An end of turn is no text and has no place among the tokens of one.
  const std::vector<TokenId>& eos = model_->eos();
  const bool is_text = event.finish != spec::FinishReason::kStop ||
                       !std::binary_search(eos.begin(), eos.end(), event.token);
  api::Choice news{.text_offset = text_offset_};
  if (logprobs_) {
    news.logprobs = describe_prompt(event);
  }
  if (!scored_.empty()) {
    news.prompt_logprobs = score_prompt(event);
  }
  if (prompt_only_) {
    (void)text_.push(event.token, spec::FinishReason::kLength);
    news.finish = spec::FinishReason::kLength;
    return news;
  }
  part(text_.push(event.token, event.finish), news);
  // A marker that ends in this token still belongs to the thought.
  reasoning_tokens_ += thought || thinking() ? 1 : 0;
  news.finish = text_.finish();
  if (text_.stop()) {
    news.stop = stop_[*text_.stop()];
  }
  if (logprobs_) {
    if (is_text && !event.details.logprobs.empty()) {
      held_.push_back({.begin = begin, .logprobs = describe(event.details.logprobs)});
    }
    std::ranges::move(take_logprobs(), std::back_inserter(*news.logprobs));
    text_offset_ += api::count_characters(news.text);
  }
  return news;
}

}  // namespace heddle::gateway
