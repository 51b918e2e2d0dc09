#pragma once

#include <termios.h>

namespace heddle::cli {

/// The terminal of stdin in raw mode, for as long as this lives: keys come at once, are not shown,
/// and Ctrl-C is one of them.
class RawTerminal {
 public:
  RawTerminal();
  ~RawTerminal();
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

  /// False: stdin is no terminal, and was left as it is.
  [[nodiscard]] bool works() const { return raw_; }

 private:
  termios before_{};
  bool raw_ = false;
};

}  // namespace heddle::cli
