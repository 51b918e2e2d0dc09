#pragma once

#include <span>
#include <string>
#include <string_view>

namespace heddle::gguf {

/// How a model of `tokenizer.ggml.pre` cuts a text before it looks for tokens: what the
/// pre_tokenizer of its own tokenizer.json does. Each expression (Oniguruma's) cuts the pieces that
/// those before it have left, and keeps both what it matches and what lies between.
struct PreTokenizer {
  std::string_view name{};  ///< "llama-bpe".
  std::span<const std::string_view> expressions{};
  bool digits = false;  ///< Cuts each digit off first.
  bool gpt2 = false;    ///< Cuts with the expression of GPT-2 last, which the library has built in.
  bool composes = false;      ///< Composes characters first (NFC).
  bool whole_tokens = false;  ///< A piece that is a token is not taken apart (`ignore_merges`).
  bool begins = false;        ///< Text begins with bos where the file does not say.
};

/// Null for one that is not known.
[[nodiscard]] const PreTokenizer* find_pre_tokenizer(std::string_view name);

/// "default, gpt-2, ...", for messages.
[[nodiscard]] std::string known_pre_tokenizers();

/// The `pre_tokenizer` of a tokenizer.json.
[[nodiscard]] std::string pre_tokenizer_json(const PreTokenizer& cuts);

}  // namespace heddle::gguf
