#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace heddle::fuzz {

/// The bytes of an input as a series of choices; once they are used up, each is the first.
class Choices {
 public:
  Choices(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}

  [[nodiscard]] bool left() const { return size_ > 0; }
  std::uint8_t byte() {
    if (size_ == 0) {
      return 0;
    }
    --size_;
    return *data_++;
  }
  /// Below `end`, which is at most 65536.
  std::size_t below(std::size_t end) {
    const std::size_t low = byte();
    return (end > 256 ? low * 256 + byte() : low) % end;
  }
  bool chance(std::size_t one_in) { return below(one_in) == 1; }
  /// Mostly small, at times up to `most`.
  std::size_t count(std::size_t most) { return chance(6) ? below(most + 1) : below(6); }
  template <std::size_t N>
  std::string_view of(const std::array<std::string_view, N>& list) {
    return list[below(N)];
  }
  /// A short text, of letters that may need care.
  std::string text() {
    constexpr std::array<std::string_view, 14> kParts = {
        "a", "b", "ab", " ", "1", "é", "日", "▁", "Ġ", "\\n", "<0x0A>", "\U0001F600", "-", ""};
    std::string text;
    for (std::size_t left = below(5); left > 0; --left) {
      text += of(kParts);
    }
    return text;
  }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
};

}  // namespace heddle::fuzz
