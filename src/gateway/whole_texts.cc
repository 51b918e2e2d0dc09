#include "gateway/whole_texts.h"

#include <algorithm>
#include <utility>

namespace heddle::gateway {

namespace {

constexpr std::size_t kBytesOfStep = 64U << 10U;
constexpr std::size_t kBytesOfToken = 16;         ///< That a token stands for, on average, at most.
constexpr std::size_t kBytesTaken = 256U << 10U;  ///< Of a text, whatever its tokens.

}  // namespace

WholeTextsReading::WholeTextsReading(std::vector<WholeText> texts,
                                     const text::Tokenizer& tokenizer,
                                     Bounds bounds)
    : texts_(std::move(texts)), tokenizer_(tokenizer), bounds_(bounds) {
  const std::size_t each = std::clamp<std::size_t>(tokenizer.longest_token(), 1, kBytesOfToken);
  bytes_ = std::max(static_cast<std::size_t>(bounds.tokens) * each, kBytesTaken);
}

/// As much of a text that is cut as its tokens can come from.
std::string_view WholeTextsReading::within(std::string_view text) const {
  std::size_t end = std::min(text.size(), bytes_);
  while (end < text.size() && end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) {
    --end;
  }
  return text.substr(0, end);
}

Result<text::Tokenizer::Encoded> WholeTextsReading::encode(const WholeText& text) const {
  const auto most = static_cast<std::size_t>(bounds_.tokens);
  text::Tokenizer::Encoded encoded;
  if (text.tokens != nullptr) {
    encoded.tokens = *text.tokens;
  } else if (!text.second && bounds_.special == text::SpecialTokens::kNone) {
    auto tokens = tokenizer_.encode(within(text.first), bounds_.special);
    if (!tokens) {
      return tokens.error();
    }
    encoded.tokens = std::move(tokens).value();
  } else {
    const auto second = text.second ? std::optional(within(*text.second)) : std::nullopt;
    return tokenizer_.encode_texts(within(text.first), second, bounds_.cuts ? bounds_.tokens : 0);
  }
  if (bounds_.cuts && encoded.tokens.size() > most) {
    encoded.tokens.resize(most);
  }
  return encoded;
}

/// How many bytes it read.
std::size_t WholeTextsReading::read(const WholeText& text) {
  const std::size_t bytes = text.first.size() + text.second.value_or("").size();
  const auto too_long = [&](const std::string& is) {
    error_ = api::invalid_request(
        text.param,
        text.param + ": is " + is + (text.second ? " long with its query" : " long") +
            ", but the model takes at most " + std::to_string(bounds_.tokens) +
            " tokens; shorten it, or have it cut with truncate_prompt_tokens");
    error_->code = "context_length_exceeded";
  };
  if (!bounds_.cuts && bytes > bytes_) {
    too_long(std::to_string(bytes) + " bytes");
    return bytes;
  }
  Result<text::Tokenizer::Encoded> encoded = encode(text);
  if (!encoded) {
    error_ = api::from_error(encoded.error(), text.param);
  } else if (encoded->tokens.empty()) {
    error_ = api::invalid_request(text.param, text.param + ": has no tokens; want at least one");
  } else if (std::ssize(encoded->tokens) > bounds_.tokens) {
    too_long(std::to_string(encoded->tokens.size()) + " tokens");
  } else {
    encoded_.push_back(std::move(*encoded));
  }
  return bytes;
}

bool WholeTextsReading::step() {
  std::size_t bytes = 0;
  while (!error_ && encoded_.size() < texts_.size() && bytes < kBytesOfStep) {
    bytes += 1 + read(texts_[encoded_.size()]);
  }
  return error_.has_value() || encoded_.size() == texts_.size();
}

api::Parsed<WholeTextsReading::Bounds> bounds_of_whole(const ModelText& model,
                                                       std::optional<std::int64_t> truncate) {
  const std::int64_t most = model.longest_text();
  if (truncate.value_or(0) > most) {
    return api::invalid_request("truncate_prompt_tokens",
                                "truncate_prompt_tokens: is " + std::to_string(*truncate) +
                                    ", but the model takes at most " + std::to_string(most) +
                                    " tokens; want no more, or -1 for as many");
  }
  const bool all = truncate.value_or(-1) < 0;
  return WholeTextsReading::Bounds{.tokens = all ? most : *truncate, .cuts = truncate.has_value()};
}

}  // namespace heddle::gateway
