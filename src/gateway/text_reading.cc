#include "gateway/text_reading.h"

#include <algorithm>
#include <utility>

namespace heddle::gateway {

namespace {

constexpr std::size_t kTokenBytesMax = 16;        ///< That a token stands for, on average, at most.
constexpr std::size_t kWholeBytes = 256U << 10U;  ///< Are tokenised without being counted first.
constexpr std::size_t kSliceBytes = 64U << 10U;
constexpr std::size_t kLookBack = 1024;  ///< For a place to cut.
/// A cut may part a token, and a slice may begin with one that the whole text does not have.
constexpr std::int64_t kTokensOfCut = 8;

bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/// Where to cut `text` near `end`: before a space, where tokens mostly begin; else at least between
/// two characters.
std::size_t cut(std::string_view text, std::size_t end) {
  if (end >= text.size()) {
    return text.size();
  }
  for (std::size_t at = end; at > end - kLookBack; --at) {
    if (is_space(text[at]) && !is_space(text[at - 1])) {
      return at;
    }
  }
  while ((static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) {
    --end;
  }
  return end;
}

/// @param is, most  What the text is, and what it may be: "5 bytes".
api::ApiError too_long(const TextBounds& bounds, const std::string& is, const std::string& most) {
  api::ApiError error = api::invalid_request(
      bounds.param,
      bounds.param + ": is " + is + " long, but at most " + most +
          " are taken for this model, whose context is " + std::to_string(bounds.context) +
          " tokens, prompt and answer together; shorten it");
  error.code = "context_length_exceeded";
  return error;
}

TextBounds bounds_of(const ModelText& model, std::string param, std::int64_t tokens) {
  const std::size_t token_bytes =
      std::clamp<std::size_t>(model.text->tokenizer()->longest_token(), 1, kTokenBytesMax);
  return {.param = std::move(param),
          .context = model.context,
          .tokens = tokens,
          .bytes = static_cast<std::size_t>(tokens) * token_bytes};
}

}  // namespace

TextBounds prompt_bounds(const ModelText& model, std::string param) {
  return bounds_of(model, std::move(param), model.context);
}

TextBounds tokenize_bounds(const ModelText& model, std::string param) {
  TextBounds bounds = bounds_of(model, std::move(param), 2 * model.context);
  bounds.free_bytes = kWholeBytes;
  return bounds;
}

std::optional<api::ApiError> check_bytes(std::size_t bytes, const TextBounds& bounds) {
  const std::size_t most = std::max(bounds.bytes, bounds.free_bytes);
  if (bytes <= most) {
    return std::nullopt;
  }
  return too_long(bounds, std::to_string(bytes) + " bytes", std::to_string(most) + " bytes");
}

TextReading::TextReading(const text::Tokenizer& tokenizer,
                         std::string_view text,
                         text::SpecialTokens special,
                         TextBounds bounds)
    : tokenizer_(tokenizer), text_(text), special_(special), bounds_(std::move(bounds)) {}

bool TextReading::fail(api::ApiError error) {
  result_ = std::move(error);
  return true;
}

bool TextReading::count_slice() {
  const std::size_t end = cut(text_, counted_ + kSliceBytes);
  const auto tokens =
      tokenizer_.encode(text_.substr(counted_, end - counted_), text::SpecialTokens::kNone);
  if (!tokens) {
    return fail(api::from_error(tokens.error(), bounds_.param));
  }
  tokens_ += std::max<std::int64_t>(std::ssize(*tokens) - kTokensOfCut, 0);
  counted_ = end;
  if (tokens_ > bounds_.tokens) {
    const std::string most = std::to_string(bounds_.tokens) + " tokens";
    return fail(too_long(bounds_, "more than " + most, most));
  }
  return false;
}

bool TextReading::step() {
  if (counted_ == 0) {
    if (std::optional<api::ApiError> wrong = check_bytes(text_.size(), bounds_)) {
      return fail(std::move(*wrong));
    }
  }
  if (text_.size() > kWholeBytes && counted_ < text_.size()) {
    return count_slice();
  }
  Result<std::vector<TokenId>> tokens = tokenizer_.encode(text_, special_);
  if (!tokens) {
    return fail(api::from_error(tokens.error(), bounds_.param));
  }
  result_ = std::move(tokens).value();
  return true;
}

PromptsReading::PromptsReading(const std::vector<api::Prompt>& prompts,
                               const text::Tokenizer& tokenizer,
                               text::SpecialTokens special,
                               const TextBounds& bounds,
                               bool echo)
    : prompts_(prompts), tokenizer_(tokenizer), special_(special), bounds_(bounds), echo_(echo) {
  for (const api::Prompt& prompt : prompts) {
    const auto* text = std::get_if<std::string>(&prompt);
    error_ = text != nullptr ? check_bytes(text->size(), bounds) : std::nullopt;
    if (error_) {
      return;
    }
  }
}

void PromptsReading::keep(std::vector<TokenId> tokens) {
  if (echo_) {
    const api::Prompt& prompt = prompts_[tokens_.size()];
    const auto* text = std::get_if<std::string>(&prompt);
    Result<std::string> shown = text != nullptr ? Result<std::string>(*text)
                                                : tokenizer_.decode(tokens, text::ShowSpecial::kNo);
    if (!shown) {
      error_ = api::from_error(shown.error(), bounds_.param);
      return;
    }
    echo_texts_.push_back(std::move(*shown));
  }
  tokens_.push_back(std::move(tokens));
}

bool PromptsReading::step() {
  std::size_t read = 0;
  while (!error_ && tokens_.size() < prompts_.size() && read < kSliceBytes) {
    const api::Prompt& prompt = prompts_[tokens_.size()];
    const auto* text = std::get_if<std::string>(&prompt);
    if (text == nullptr) {
      const auto& tokens = std::get<std::vector<TokenId>>(prompt);
      read += tokens.size();
      keep(tokens);
      continue;
    }
    if (!reading_) {
      reading_.emplace(tokenizer_, *text, special_, bounds_);
    }
    if (!reading_->step()) {
      return false;
    }
    auto tokens = reading_->take();
    reading_.reset();
    read += text->size();
    if (auto* wrong = std::get_if<api::ApiError>(&tokens)) {
      error_ = std::move(*wrong);
    } else {
      keep(std::get<0>(std::move(tokens)));
    }
  }
  return error_.has_value() || tokens_.size() == prompts_.size();
}

}  // namespace heddle::gateway
