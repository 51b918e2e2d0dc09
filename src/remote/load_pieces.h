#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.h"
#include "history/load_book.h"
#include "remote/messages.h"

/// A history::LoadBook in pieces that are small beside a frame: what hosts and their manager say to
/// each other of past loads.
namespace heddle::remote {

/// About how many bytes a piece has at most, names included; far below what a frame may have.
inline constexpr std::size_t kLoadsBytesMost = std::size_t{64} << 10U;

/// Where a piece begins: windows of `model` from `window` on, then models after it.
struct LoadPlace {
  std::string model{};
  std::int64_t window = 0;
  friend bool operator==(const LoadPlace&, const LoadPlace&) = default;
};

/// What the book has from there on, as far as one message goes; `last` where that is all.
/// @param known  Windows that this book has just so are left out. May be null.
[[nodiscard]] Loads piece_from(const history::LoadBook& book,
                               const LoadPlace& from,
                               const history::LoadBook* known = nullptr);

/// Where the piece after this one begins. One without models is followed by nothing else.
[[nodiscard]] LoadPlace place_after(const Loads& piece);

/// Enters all of a piece, in place of what was there.
void put(const Loads& piece, history::LoadBook& book);

/// Whether a host can answer so: for windows of the length that was asked for, from there on, and
/// with something in it unless it is the last. kCorrupt, with what is wrong.
Result<void> check_answer(const Loads& answer, const TellLoads& asked);

}  // namespace heddle::remote
