#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/error.h"
#include "api/requests.h"
#include "base/ids.h"
#include "gateway/model_text.h"
#include "text/tokenizer.h"

/// Texts on their way to tokens, in steps of a bounded time and memory, for the text pool.
namespace heddle::gateway {

/// How much text is taken.
struct TextBounds {
  std::string param{};         ///< What it came as.
  std::int64_t context = 0;    ///< Of the model [tokens].
  std::int64_t tokens = 0;     ///< That a text may have.
  std::size_t bytes = 0;       ///< That it may have; so many tokens cannot spell more.
  std::size_t free_bytes = 0;  ///< Texts of so many are taken whatever their tokens.
};

/// Of a prompt: what the context has room for, 16 bytes a token or, where it is less, its longest.
[[nodiscard]] TextBounds prompt_bounds(const ModelText& model, std::string param);
/// Of a text that shall just be tokenised: 256 KiB, or what twice the context has room for.
[[nodiscard]] TextBounds tokenize_bounds(const ModelText& model, std::string param);

/// Status 400, code context_length_exceeded, where so many bytes cannot be within the bounds.
[[nodiscard]] std::optional<api::ApiError> check_bytes(std::size_t bytes, const TextBounds& bounds);

/// One text. A long one is first counted in slices, whose tokens are forgotten, as tokenising takes
/// 100 to 350 bytes of memory for each byte; only what fits is tokenised as a whole.
class TextReading {
 public:
  /// Both are lent until the last step.
  TextReading(const text::Tokenizer& tokenizer,
              std::string_view text,
              text::SpecialTokens special,
              TextBounds bounds);

  /// Goes on, for some 0.1 s and 100 MB; longer only with a text that fits. True when there is
  /// nothing left to do.
  bool step();
  /// What it came to.
  [[nodiscard]] api::Parsed<std::vector<TokenId>> take() { return std::move(result_); }

 private:
  bool count_slice();
  bool fail(api::ApiError error);

  const text::Tokenizer& tokenizer_;
  std::string_view text_;
  text::SpecialTokens special_;
  TextBounds bounds_;
  std::size_t counted_ = 0;  ///< Bytes from its beginning.
  std::int64_t tokens_ = 0;  ///< Of them, at least.
  api::Parsed<std::vector<TokenId>> result_{};
};

/// The prompts of a request, one after the other.
class PromptsReading {
 public:
  /// @param echo  Whether their texts are wanted, too.
  PromptsReading(const std::vector<api::Prompt>& prompts,
                 const text::Tokenizer& tokenizer,
                 text::SpecialTokens special,
                 const TextBounds& bounds,
                 bool echo = false);

  /// What is wrong, if so: before the first step already where a prompt has too many bytes.
  [[nodiscard]] const std::optional<api::ApiError>& error() const { return error_; }
  /// As that of TextReading.
  bool step();

  [[nodiscard]] std::vector<std::vector<TokenId>> take_tokens() { return std::move(tokens_); }
  [[nodiscard]] std::vector<std::string> take_echo() { return std::move(echo_texts_); }

 private:
  void keep(std::vector<TokenId> tokens);

  const std::vector<api::Prompt>& prompts_;
  const text::Tokenizer& tokenizer_;
  text::SpecialTokens special_;
  TextBounds bounds_;
  bool echo_;
  std::optional<TextReading> reading_{};  ///< Of the prompt that is next, where it is a text.
  std::vector<std::vector<TokenId>> tokens_{};
  std::vector<std::string> echo_texts_{};
  std::optional<api::ApiError> error_{};
};

}  // namespace heddle::gateway
