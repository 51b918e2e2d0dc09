#include "spec/json_string_reader.h"

#include <charconv>
#include <utility>

namespace heddle::spec {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD.
constexpr std::size_t kUnicodeEscape = 6;                  // As "\u00e9".

bool is_high(std::uint32_t unit) {
  return unit >= 0xD800U && unit < 0xDC00U;
}

bool is_low(std::uint32_t unit) {
  return unit >= 0xDC00U && unit < 0xE000U;
}

void encode(std::uint32_t code, std::string& out) {
  const auto tail = [&out](std::uint32_t bits) {
    out += static_cast<char>(0x80U | (bits & 0x3FU));
  };
  if (code < 0x80U) {
    out += static_cast<char>(code);
  } else if (code < 0x800U) {
    out += static_cast<char>(0xC0U | code >> 6U);
    tail(code);
  } else if (code < 0x10000U) {
    out += static_cast<char>(0xE0U | code >> 12U);
    tail(code >> 6U);
    tail(code);
  } else {
    out += static_cast<char>(0xF0U | code >> 18U);
    tail(code >> 12U);
    tail(code >> 6U);
    tail(code);
  }
}

}  // namespace

bool JsonStringReader::push(char c, std::string& out) {
  if (!escape_.empty()) {
    escape_ += c;
    resolve(out);
    return true;
  }
  if (c == '\\') {
    escape_ = c;
    return true;
  }
  if (std::exchange(high_, 0) != 0) {
    out += kReplacement;
  }
  if (c == '"') {
    return false;
  }
  out += c;
  return true;
}

/// escape_ has two characters or more.
void JsonStringReader::resolve(std::string& out) {
  if (escape_[1] == 'u') {
    if (escape_.size() < kUnicodeEscape) {
      return;
    }
    std::uint32_t unit = 0;
    const char* const end = escape_.data() + escape_.size();
    const auto [stopped, error] = std::from_chars(escape_.data() + 2, end, unit, 16);
    escape_.clear();
    if (error != std::errc{} || stopped != end) {
      add(0xFFFDU, out);
    } else {
      add(unit, out);
    }
    return;
  }
  constexpr std::string_view kNames = "\"\\/bfnrt";
  constexpr std::string_view kValues = "\"\\/\b\f\n\r\t";
  const std::size_t at = kNames.find(escape_[1]);
  escape_.clear();
  add(at == std::string_view::npos ? 0xFFFDU : static_cast<unsigned char>(kValues[at]), out);
}

void JsonStringReader::add(std::uint32_t unit, std::string& out) {
  const std::uint32_t high = std::exchange(high_, 0);
  if (high != 0 && is_low(unit)) {
    encode(0x10000U + ((high - 0xD800U) << 10U) + (unit - 0xDC00U), out);
    return;
  }
  if (high != 0) {
    out += kReplacement;
  }
  if (is_high(unit)) {
    high_ = unit;
  } else if (is_low(unit)) {
    out += kReplacement;
  } else {
    encode(unit, out);
  }
}

std::string json_string_text(std::string_view inside) {
  JsonStringReader reader;
  std::string text;
  for (const char c : inside) {
    if (!reader.push(c, text)) {
      break;
    }
  }
  return text;
}

}  // namespace heddle::spec
