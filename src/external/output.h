#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "base/result.h"
#include "base/thread.h"
#include "base/time.h"

namespace heddle::external {

/// How much of what an engine writes becomes lines of our log.
struct OutputLimits {
  std::size_t line_bytes = 2048;  ///< Longer lines are cut.
  std::size_t burst = 400;        ///< Lines at once ...
  std::size_t per_second = 20;    ///< ... and in the long run; further ones are only counted.
  std::size_t kept = 10;          ///< The last lines, for whoever asks why it ended.
};

/// Takes what an engine writes to stdout and stderr: line by line into the log, under the model's
/// name. An engine that writes without end is neither held up nor does it fill memory or the log: a
/// thread of its own takes everything, and most of it is dropped. Any thread.
class Output {
 public:
  explicit Output(std::string model, OutputLimits limits = {});
  /// Waits until the last line is logged, or gives up on processes that still hold the other end.
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  /// What is written into the descriptor it returns is taken from then on, until all copies of it
  /// are closed. Once. kUnavailable where no pipe can be made.
  Result<Descriptor> open();
  /// The last lines so far, oldest first, without ends.
  [[nodiscard]] std::vector<std::string> last_lines() const;
  /// Returns when the other end was closed and all is taken, or `patience` has passed.
  void wait(Duration patience) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
  Descriptor stop_{};  ///< Closed: the thread is to end.
  Thread thread_{};
};

}  // namespace heddle::external
