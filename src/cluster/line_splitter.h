#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace heddle::cluster {

/// Makes lines of a stream that comes in parts. A line that gets longer than the bound is none.
class LineSplitter {
 public:
  explicit LineSplitter(std::size_t line_max) : line_max_(line_max) {}

  /// Calls `tell` with each line that is whole now, without its end, as long as it returns true.
  /// False once it returned false or a line is too long; then nothing more is told.
  template <class Tell>
  bool feed(std::string_view part, Tell&& tell) {
    while (!ended_ && !part.empty()) {
      const std::size_t end = part.find('\n');
      const std::string_view piece = part.substr(0, end);
      if (rest_.size() + piece.size() > line_max_) {
        ended_ = true;
        break;
      }
      if (end == std::string_view::npos) {
        rest_ += piece;
        break;
      }
      part.remove_prefix(end + 1);
      const std::string line = std::exchange(rest_, {}).append(piece);
      ended_ = !line.empty() && !tell(std::string_view(line));
    }
    return !ended_;
  }

 private:
  std::size_t line_max_;
  std::string rest_{};
  bool ended_ = false;
};

}  // namespace heddle::cluster
