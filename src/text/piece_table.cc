#include "text/piece_table.h"

#include <cstddef>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

namespace heddle::text {
namespace {

constexpr std::uint8_t kSpecialBit = 0x80;

/// Takes values off the front of the records.
class Reader {
 public:
  explicit Reader(std::string_view records) : rest_(records) {}

  std::optional<std::uint8_t> byte() {
    if (rest_.empty()) {
      return std::nullopt;
    }
    const auto value = static_cast<std::uint8_t>(rest_[0]);
    rest_.remove_prefix(1);
    return value;
  }

  std::optional<std::string_view> text() {
    std::uint32_t size = 0;
    if (rest_.size() < sizeof size) {
      return std::nullopt;
    }
    std::memcpy(&size, rest_.data(), sizeof size);
    rest_.remove_prefix(sizeof size);
    if (rest_.size() < size) {
      return std::nullopt;
    }
    const std::string_view value = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return value;
  }

 private:
  std::string_view rest_;
};

}  // namespace

Result<PieceTable> PieceTable::read(Rules rules, std::string_view records) {
  if (records.size() > std::numeric_limits<std::uint32_t>::max()) {
    return Error{Code::kCorrupt, "vocabulary: the texts of all tokens together exceed 4 GiB"};
  }
  PieceTable table(std::move(rules));
  const auto count = static_cast<std::size_t>(table.rules_.id_limit);
  table.entries_.reserve(count);
  Reader reader(records);
  for (std::size_t id = 0; id < count; ++id) {
    const std::optional<std::uint8_t> head = reader.byte();
    const std::optional<std::string_view> text = reader.text();
    const std::optional<std::string_view> first = reader.text();
    if (!head || !text || !first ||
        (*head & ~kSpecialBit) > static_cast<std::uint8_t>(PieceKind::kFragment)) {
      return Error{Code::kCorrupt,
                   "vocabulary: record of token " + std::to_string(id) + " is broken"};
    }
    Entry entry;
    entry.kind = static_cast<PieceKind>(*head & ~kSpecialBit);
    entry.special = (*head & kSpecialBit) != 0;
    entry.text = static_cast<std::uint32_t>(table.bytes_.size());
    entry.text_size = static_cast<std::uint32_t>(text->size());
    table.bytes_ += *text;
    entry.first = *first == *text ? entry.text : static_cast<std::uint32_t>(table.bytes_.size());
    entry.first_size = static_cast<std::uint32_t>(first->size());
    if (*first != *text) {
      table.bytes_ += *first;
    }
    table.entries_.push_back(entry);
  }
  return table;
}

Piece PieceTable::at(TokenId id) const {
  if (id < 0 || id >= rules_.id_limit) {
    return {};
  }
  const Entry& entry = entries_[static_cast<std::size_t>(id)];
  const std::string_view bytes = bytes_;
  return {.kind = entry.kind,
          .special = entry.special,
          .text = bytes.substr(entry.text, entry.text_size),
          .first = bytes.substr(entry.first, entry.first_size)};
}

}  // namespace heddle::text
