#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "base/descriptor.h"
#include "base/result.h"

#include <sys/types.h>

namespace heddle::lab {

/// One end of a conversation between two processes: whole messages, in order.
class Line {
 public:
  Line() = default;
  explicit Line(Descriptor socket) : socket_(std::move(socket)) {}

  /// False where the other end is gone.
  bool say(const std::string& text) const;
  /// Waits for the next message, of at most 4 KiB; nothing once the other end is gone.
  [[nodiscard]] std::optional<std::string> hear() const;
  /// Whether hear() would not wait.
  [[nodiscard]] bool heard() const;

 private:
  Descriptor socket_{};
};

/// A process that does one thing for this one, and is talked to. It ends with this object, and with
/// the process that made it.
class ForkedProcess {
 public:
  /// Forks; there `serve` runs, and the process ends when it returns. To be made before this
  /// process has threads or uses CUDA's driver, which do not live on in a child.
  explicit ForkedProcess(const std::function<void(const Line&)>& serve);
  ~ForkedProcess();
  ForkedProcess(const ForkedProcess&) = delete;
  ForkedProcess& operator=(const ForkedProcess&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }  ///< -1: it could not be made.
  /// Says something and waits for the answer. kUnavailable where there is no process, or it ended.
  Result<std::string> ask(const std::string& text) const;

 private:
  pid_t pid_ = -1;
  Line line_{};
};

}  // namespace heddle::lab
