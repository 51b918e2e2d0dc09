#pragma once

#include <array>
#include <cstddef>
#include <ctime>
#include <string_view>

namespace heddle::gateway {

/// The time as the header Date has it (RFC 9110, 5.6.7): "Sun, 06 Nov 1994 08:49:37 GMT". It is
/// written once a second. Owned by one thread.
class HttpDate {
 public:
  /// @param now  Seconds since 1970. What comes back holds until the next call.
  [[nodiscard]] std::string_view at(std::time_t now);

 private:
  std::time_t written_ = -1;
  std::size_t size_ = 0;
  std::array<char, 64> text_{};
};

}  // namespace heddle::gateway
