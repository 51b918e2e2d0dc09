#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "text/piece_table.h"

struct heddle_text_tokenizer;

namespace heddle::text {

/// Whether encoding adds what the model wants around a text: begin of sequence and such. Chat
/// templates write these themselves, so a rendered chat is encoded with kNone.
enum class SpecialTokens : std::uint8_t { kNone, kAdd };

/// Whether decoded text shows special tokens.
enum class ShowSpecial : std::uint8_t { kNo, kYes };

/// A Hugging Face tokenizer. Token ids and texts are those of the Python libraries, to the byte.
/// Immutable; any thread may use it.
class Tokenizer {
 public:
  /// Makes a tokenizer from the text of tokenizer.json and, unless empty, of tokenizer_config.json,
  /// which may add tokens (added_tokens_decoder, bos_token, ...) and, where tokenizer.json has no
  /// post-processor, say that encoding adds begin and end of sequence (add_bos_token,
  /// add_eos_token). Padding and truncation are ignored: they belong to training. kCorrupt when
  /// either text is broken, or they contradict each other.
  static Result<std::shared_ptr<const Tokenizer>> open(std::string_view tokenizer_json,
                                                       std::string_view config_json = {});

  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  /// kInvalidArgument when `text` is not UTF-8. Text that spells a special token becomes that
  /// token, as in the Python libraries. About 3 MB/s, so long prompts do not belong on a loop
  /// thread.
  [[nodiscard]] Result<std::vector<TokenId>> encode(std::string_view text,
                                                    SpecialTokens special) const;

  /// One text or two as an encoder takes them, with what the tokenizer adds around them.
  struct Encoded {
    std::vector<TokenId> tokens{};
    /// Where tokens of another type begin, which are the second text's; 0: all are of one type.
    std::int64_t second_text = 0;
  };
  /// The two become what the tokenizer makes of a pair, as "[CLS] first [SEP] second [SEP]". Of
  /// more than `most` tokens (0: any number) the last ones of the last text are left out.
  /// kInvalidArgument when a text is not UTF-8, or what is not cut has `most` tokens or more.
  [[nodiscard]] Result<Encoded> encode_texts(std::string_view first,
                                             std::optional<std::string_view> second,
                                             std::int64_t most) const;

  /// The text of `ids`; ids that no token has are left out. kInvalidArgument for a negative one.
  /// To decode as tokens arrive, use Detokenizer.
  [[nodiscard]] Result<std::string> decode(std::span<const TokenId> ids, ShowSpecial special) const;

  /// The bytes that a token stands for within a text, not at its start; for a piece of a character
  /// these are not UTF-8. Empty when no token has this id. Lives as long as the tokenizer.
  [[nodiscard]] std::string_view token_bytes(TokenId id) const { return pieces_.at(id).text; }

  /// Whether this is a control token, which text shown to people leaves out.
  [[nodiscard]] bool is_special(TokenId id) const { return pieces_.at(id).special; }

  /// One past the greatest id. A model's own vocabulary may be larger (padded), never smaller.
  [[nodiscard]] TokenId vocab_size() const { return pieces_.rules().id_limit; }

  /// The most bytes that one token stands for.
  [[nodiscard]] std::size_t longest_token() const { return longest_token_; }

  /// The id of the token that the vocabulary spells `token`.
  [[nodiscard]] std::optional<TokenId> token_to_id(std::string_view token) const;

  /// For other wrappers of the Rust library.
  [[nodiscard]] const heddle_text_tokenizer* handle() const { return handle_; }

  /// What Detokenizer works from.
  [[nodiscard]] const PieceTable& pieces() const { return pieces_; }

 private:
  Tokenizer(heddle_text_tokenizer* handle, PieceTable pieces);

  heddle_text_tokenizer* handle_;  ///< Owned.
  PieceTable pieces_;
  std::size_t longest_token_ = 0;
};

}  // namespace heddle::text
