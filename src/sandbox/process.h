#pragma once

#include <atomic>
#include <string>
#include <variant>

#include "base/child.h"
#include "base/descriptor.h"
#include "base/result.h"
#include "base/time.h"
#include "sandbox/message.h"

namespace heddle::sandbox {

/// What one part of an answer may take.
struct Bounds {
  Duration cpu{};       ///< Processor time of the process.
  Duration patience{};  ///< Time by the clock.
};

/// Why there is no answer; the process has ended.
struct Silence {
  enum class Why : std::uint8_t {
    kDied,       ///< By itself: it aborted, or overflowed its stack.
    kKilled,     ///< By somebody else.
    kCpu,        ///< It took too much processor time.
    kImpatient,  ///< Nothing came for too long, though it hardly ran.
    kStopped,    ///< The server ends.
  };
  Why why = Why::kDied;
  std::string how{};  ///< "signal 6 (Aborted)".
};

/// One process that tries things. Belongs to one thread, which outlives it; all calls block.
class Process {
 public:
  /// @param stopping  Gives every wait up once it is true.
  static Result<Process> start(const std::atomic<bool>& stopping);

  /// Asks; false where the process is gone, which hear() then tells of.
  bool ask(const Question& question, Duration patience);
  /// Waits for the next answer, or ends the process.
  std::variant<Answer, Silence> hear(const Bounds& bounds);

 private:
  Process(Child child, Descriptor socket, const std::atomic<bool>& stopping)
      : child_(std::move(child)), socket_(std::move(socket)), stopping_(&stopping) {}
  [[nodiscard]] Duration cpu() const;
  /// Ends it; what it ended by where `why` is how it seemed.
  Silence end(Silence::Why why);

  Child child_;
  Descriptor socket_;
  const std::atomic<bool>* stopping_;
};

}  // namespace heddle::sandbox
