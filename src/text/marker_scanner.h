#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace heddle::text {

/// Parts markers from the text around them, in whatever portions it comes. All markers begin with
/// one character, which none of them has again. Owned by one thread.
class MarkerScanner {
 public:
  explicit MarkerScanner(std::span<const std::string_view> markers) : markers_(markers) {}

  /// Takes the next character. Calls `meet` with a marker that is whole, or `put` with each
  /// character that is of none.
  template <class Put, class Meet>
  void push(char c, const Put& put, const Meet& meet) {
    held_ += c;
    if (const auto marker = std::ranges::find(markers_, held_); marker != markers_.end()) {
      held_.clear();
      meet(*marker);
      return;
    }
    if (std::ranges::any_of(markers_, [this](auto marker) { return marker.starts_with(held_); })) {
      return;
    }
    // Another marker may begin with this character alone.
    const bool begins = held_.size() > 1 && c == markers_.front().front();
    const std::string plain = std::exchange(held_, begins ? std::string(1, c) : std::string());
    std::ranges::for_each(std::string_view(plain).substr(0, plain.size() - held_.size()), put);
  }

  /// The text has ended: what might have become a marker is none.
  template <class Put>
  void finish(const Put& put) {
    std::ranges::for_each(std::exchange(held_, {}), put);
  }

 private:
  std::span<const std::string_view> markers_;
  std::string held_{};  ///< The beginning of a marker.
};

}  // namespace heddle::text
