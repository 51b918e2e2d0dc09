#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/error.h"
#include "base/ids.h"
#include "gateway/model_text.h"
#include "text/tokenizer.h"

namespace heddle::gateway {

/// A text, or a pair of them, that shall be tokenised as a whole.
struct WholeText {
  std::string_view first{};
  std::optional<std::string_view> second{};
  const std::vector<TokenId>* tokens = nullptr;  ///< In place of both, where it came so.
  std::string param{};                           ///< What it came as: "documents[3]".
};

/// The texts of a request whose texts stand for themselves, on their way to tokens: pairs, and
/// those that are cut where they are too long. In steps, for the text pool.
class WholeTextsReading {
 public:
  /// How long a text may be.
  struct Bounds {
    std::int64_t tokens = 0;  ///< With what the tokenizer adds.
    bool cuts = false;        ///< What is beyond is left out, of a pair of its second text.
    text::SpecialTokens special = text::SpecialTokens::kAdd;  ///< Of a text by itself.
  };

  /// The texts' characters and `tokenizer` are lent until the last step.
  WholeTextsReading(std::vector<WholeText> texts, const text::Tokenizer& tokenizer, Bounds bounds);

  /// Goes on, with some 64 KiB of texts and at least one; true when there is nothing left to do.
  bool step();
  /// What is wrong, if so, by the name of the text that is.
  [[nodiscard]] const std::optional<api::ApiError>& error() const { return error_; }
  [[nodiscard]] std::vector<text::Tokenizer::Encoded> take() { return std::move(encoded_); }

 private:
  std::size_t read(const WholeText& text);
  Result<text::Tokenizer::Encoded> encode(const WholeText& text) const;
  [[nodiscard]] std::string_view within(std::string_view text) const;

  std::vector<WholeText> texts_;
  const text::Tokenizer& tokenizer_;
  Bounds bounds_;
  std::size_t bytes_ = 0;  ///< That so many tokens spell at most.
  std::vector<text::Tokenizer::Encoded> encoded_{};
  std::optional<api::ApiError> error_{};
};

/// Of which texts at most `truncate` tokens are taken; -1: as many as the model takes; nothing:
/// they are not cut. Or what is wrong: more than the model takes, or less than what is added to a
/// text.
[[nodiscard]] api::Parsed<WholeTextsReading::Bounds> bounds_of_whole(
    const ModelText& model, std::optional<std::int64_t> truncate);

}  // namespace heddle::gateway
