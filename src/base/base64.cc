#include "base/base64.h"

#include <array>
#include <cstdint>

namespace heddle {

namespace {

constexpr std::string_view kBase64Digits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr std::uint8_t kNoDigit = 64;

constexpr std::array<std::uint8_t, 256> values_of_digits() {
  std::array<std::uint8_t, 256> values{};
  values.fill(kNoDigit);
  for (std::size_t i = 0; i < kBase64Digits.size(); ++i) {
    values[static_cast<std::uint8_t>(kBase64Digits[i])] = static_cast<std::uint8_t>(i);
  }
  return values;
}

}  // namespace

std::string to_base64(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::string_view group = bytes.substr(i, 3);
    std::uint32_t bits = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      bits = (bits << 8U) | (k < group.size() ? static_cast<std::uint8_t>(group[k]) : 0U);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      text += k <= group.size() ? kBase64Digits[(bits >> (18U - 6U * k)) & 63U] : '=';
    }
  }
  return text;
}

std::optional<std::string> from_base64(std::string_view text) {
  static constexpr std::array<std::uint8_t, 256> kValues = values_of_digits();
  if (text.size() % 4 != 0) {
    return std::nullopt;
  }
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool pad = i >= text.size() - padding;
    const std::uint8_t value = pad ? 0 : kValues[static_cast<std::uint8_t>(text[i])];
    if (value == kNoDigit) {
      return std::nullopt;
    }
    bits = (bits << 6U) | value;
    if (i % 4 == 3) {
      bytes += static_cast<char>((bits >> 16U) & 255U);
      bytes += static_cast<char>((bits >> 8U) & 255U);
      bytes += static_cast<char>(bits & 255U);
      bits = 0;
    }
  }
  bytes.resize(bytes.size() - padding);
  if (to_base64(bytes) != text) {  // Bits that count for nothing have to be zero.
    return std::nullopt;
  }
  return bytes;
}

}  // namespace heddle
