#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/time.h"

namespace heddle::agent {

/// Whether the one read of weights that is under way gets on. A thread that waits for a disk cannot
/// be ended; that it does is said. Loop thread only.
class ReadWatch {
 public:
  /// Without a byte for so long, something is wrong with the disk or the network behind it.
  static constexpr Duration kPatience = std::chrono::seconds(10);
  /// Looks that come later than this after the one before count as this: a server that was stopped
  /// has not waited.
  static constexpr Duration kLookMost = std::chrono::milliseconds(500);

  void begin(std::string model, std::string from, Instant now) {
    *this = ReadWatch();
    model_ = std::move(model);
    from_ = std::move(from);
    began_ = looked_ = now;
    reads_ = true;
  }
  void got_on() {
    if (std::exchange(stuck_, false)) {
      log::info("weights are read again", {{"model", model_}, {"from", from_}});
    }
    stood_ = {};
  }
  /// How long it took.
  [[nodiscard]] Duration end(Instant now) {
    reads_ = stuck_ = false;
    return now - began_;
  }
  void look(Instant now) {
    stood_ += std::min<Duration>(now - std::exchange(looked_, now), kLookMost);
    if (reads_ && !stuck_ && stood_ >= kPatience) {
      stuck_ = true;
      log::warning("weights do not come", {{"model", model_}, {"from", from_}});
    }
  }
  /// For people; empty: nothing is wrong.
  [[nodiscard]] std::string trouble() const {
    return stuck_ ? "the weights of \"" + model_ + "\" are read and do not come" : std::string();
  }

 private:
  std::string model_{};
  std::string from_{};
  Instant began_{};
  Instant looked_{};
  Duration stood_{};
  bool reads_ = false;
  bool stuck_ = false;
};

}  // namespace heddle::agent
