#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace heddle::text {

/// How a token takes part in decoded text.
enum class PieceKind : std::uint8_t {
  kNone,          ///< No token has this id.
  kText,          ///< Whole characters.
  kFallbackByte,  ///< One byte of a run of bytes that is one string, valid or not, as a whole.
  kFragment,      ///< Bytes of byte-level BPE, which may start or end inside a character.
};

/// What one token contributes to decoded text.
struct Piece {
  PieceKind kind = PieceKind::kNone;
  bool special = false;      ///< Left out when special tokens are skipped.
  std::string_view text{};   ///< Its bytes, anywhere but at the start.
  std::string_view first{};  ///< Its bytes as the first token: often without the leading space.
};

/// A vocabulary, seen from its decoder: what each id contributes to text, and how text starts.
/// Immutable.
class PieceTable {
 public:
  /// Rules about the text as a whole.
  struct Rules {
    TokenId id_limit = 0;           ///< One past the greatest id.
    std::uint32_t strip_count = 0;  ///< Up to this many of `strip` go from the start of the text.
    std::string strip{};            ///< One character, as UTF-8.
  };

  /// Reads the records that rust/src/tokenizer/pieces.rs writes, one for each id below the limit:
  /// kind (uint8; bit 7: special), then two texts, each a uint32 length and bytes.
  /// kCorrupt when they are cut short or too large for 32-bit offsets.
  static Result<PieceTable> read(Rules rules, std::string_view records);

  /// Of an id outside the vocabulary: kind kNone.
  [[nodiscard]] Piece at(TokenId id) const;
  [[nodiscard]] const Rules& rules() const { return rules_; }

 private:
  struct Entry {
    std::uint32_t text = 0;   ///< Offset in bytes_.
    std::uint32_t first = 0;  ///< Offset; the same as `text` where the two are equal.
    std::uint32_t text_size = 0;
    std::uint32_t first_size = 0;
    PieceKind kind = PieceKind::kNone;
    bool special = false;
  };

  explicit PieceTable(Rules rules) : rules_(std::move(rules)) {}

  Rules rules_;
  std::string bytes_;
  std::vector<Entry> entries_;
};

}  // namespace heddle::text
