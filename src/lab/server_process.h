#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/child.h"
#include "base/descriptor.h"
#include "base/result.h"
#include "base/time.h"

#include <sys/types.h>

namespace heddle::lab {

/// A server of our own: `PROGRAM serve --config FILE`, or another of the verbs that run until they
/// are ended. It is killed with this object, and dies with the thread that started it.
class ServerProcess {
 public:
  /// Starts `command`, the program first, and waits until it has said where it is. Its log goes to
  /// `log`. kUnavailable, with the end of the log, when it ends or says nothing for so long.
  /// @param environment  Its whole environment, as "NAME=value"; none: that of this process.
  static Result<std::unique_ptr<ServerProcess>> start(
      const std::vector<std::string>& command,
      const std::string& log,
      Duration patience,
      const std::optional<std::vector<std::string>>& environment = std::nullopt);
  /// Such as "http://127.0.0.1:40123"; empty of one that answers no HTTP.
  [[nodiscard]] const std::string& url() const { return url_; }
  [[nodiscard]] pid_t pid() const { return child_.pid(); }

  /// Ends it as an operator would, and kills it after so long. An error when it ended otherwise
  /// than with status 0.
  Result<void> stop(Duration patience);

 private:
  ServerProcess(Child child, Descriptor output, std::string log);
  Result<void> read_greeting(Duration patience);

  Child child_;
  Descriptor output_;
  std::string log_;
  std::string url_{};
};

}  // namespace heddle::lab
