#include "text/utf8_stream.h"

#include <cstddef>
#include <cstdint>

namespace heddle::text {
namespace {

/// The start of `bytes`, as far as it belongs together.
struct Sequence {
  std::size_t size = 0;  ///< Bytes of a character, or of a maximal invalid or unfinished part.
  bool valid = false;    ///< It is a whole character.
  bool partial = false;  ///< More bytes could make it one.
};

struct Range {
  std::uint8_t low = 0;
  std::uint8_t high = 0;
};

/// What may follow `lead` (table 3-7 of the Unicode standard): overlong forms, surrogates and code
/// points past U+10FFFF are ruled out by the second byte.
Range second_byte(std::uint8_t lead) {
  switch (lead) {
    case 0xE0:
      return {0xA0, 0xBF};
    case 0xED:
      return {0x80, 0x9F};
    case 0xF0:
      return {0x90, 0xBF};
    case 0xF4:
      return {0x80, 0x8F};
    default:
      return {0x80, 0xBF};
  }
}

std::size_t length_of(std::uint8_t lead) {
  if (lead < 0x80) {
    return 1;
  }
  if (lead >= 0xC2 && lead <= 0xDF) {
    return 2;
  }
  if (lead >= 0xE0 && lead <= 0xEF) {
    return 3;
  }
  return lead >= 0xF0 && lead <= 0xF4 ? 4 : 0;
}

Sequence first_sequence(std::string_view bytes) {
  const auto lead = static_cast<std::uint8_t>(bytes[0]);
  const std::size_t length = length_of(lead);
  if (length == 0) {
    return {.size = 1};
  }
  Range range = second_byte(lead);
  for (std::size_t at = 1; at < length; ++at) {
    if (at == bytes.size()) {
      return {.size = at, .partial = true};
    }
    const auto byte = static_cast<std::uint8_t>(bytes[at]);
    if (byte < range.low || byte > range.high) {
      return {.size = at};
    }
    range = {0x80, 0xBF};
  }
  return {.size = length, .valid = true};
}

}  // namespace

void Utf8Stream::push(std::string_view bytes, std::string& out) {
  pending_ += bytes;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const Sequence sequence = first_sequence(rest);
    if (sequence.partial) {
      break;
    }
    out += sequence.valid ? rest.substr(0, sequence.size) : kReplacement;
    rest.remove_prefix(sequence.size);
  }
  pending_.erase(0, pending_.size() - rest.size());
}

void Utf8Stream::flush(std::string& out) {
  if (!pending_.empty()) {
    out += kReplacement;
    pending_.clear();
  }
}

}  // namespace heddle::text
