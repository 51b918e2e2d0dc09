#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/descriptor.h"
#include "base/result.h"
#include "base/time.h"

#include <sys/types.h>

namespace heddle {

/// How a process ended.
struct ProcessEnd {
  enum class How : std::uint8_t {
    kExited,
    kKilled,  ///< By a signal.
    kUnseen,  ///< The kernel did not keep it, as SIGCHLD is ignored.
  };
  How how = How::kExited;
  int number = 0;  ///< The exit status, or the signal.
  [[nodiscard]] bool well() const { return how == How::kExited && number == 0; }
  friend bool operator==(const ProcessEnd&, const ProcessEnd&) = default;
};
/// "exit status 7" or "signal 9 (Killed)".
[[nodiscard]] std::string describe(const ProcessEnd& end);

/// A process that this one has started, and that nobody else waits for. It is killed with this
/// object, and leaves no zombie.
class Child {
 public:
  /// Takes charge of it. kUnavailable where it cannot be watched; then it is killed at once.
  static Result<Child> adopt(pid_t pid);
  ~Child();
  Child(Child&& other) noexcept;
  Child& operator=(Child&& other) noexcept;
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// Its own as long as it is running().
  [[nodiscard]] pid_t pid() const { return pid_; }
  /// A descriptor that can be polled, and is readable once it has ended.
  [[nodiscard]] int watch() const { return pidfd_.get(); }

  /// Whether nobody has seen its end yet by one of the calls below.
  [[nodiscard]] bool running() const { return pid_ > 0 && !end_; }
  /// To it alone; nothing where it is not running().
  void signal(int number) const;
  /// To its process group, or to it alone where it leads none.
  void signal_group(int number) const;

  /// Waits for its end, for so long at most; whether it has ended.
  bool wait(Duration patience);
  /// Waits for its end, however long that takes.
  const ProcessEnd& wait();

 private:
  Child(pid_t pid, Descriptor pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}

  pid_t pid_ = -1;
  Descriptor pidfd_{};
  std::optional<ProcessEnd> end_{};
};

}  // namespace heddle
