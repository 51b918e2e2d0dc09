#include "cli/raw_terminal.h"

#include <unistd.h>

namespace heddle::cli {

RawTerminal::RawTerminal() {
  if (tcgetattr(STDIN_FILENO, &before_) != 0) {
    return;
  }
  termios raw = before_;
  raw.c_iflag &= ~static_cast<tcflag_t>(ICRNL | IXON);
  raw.c_lflag &= ~static_cast<tcflag_t>(ECHO | ICANON | ISIG | IEXTEN);
  raw.c_cc[VMIN] = 1;
  raw.c_cc[VTIME] = 0;
  raw_ = tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0;
}

RawTerminal::~RawTerminal() {
  if (raw_) {
    (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
  }
}

}  // namespace heddle::cli
