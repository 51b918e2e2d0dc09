#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "base/time.h"

#include <sys/types.h>

namespace heddle::lab {

/// A server of our own: `PROGRAM serve --config FILE`. It is killed with this object, and dies with
/// the thread that started it.
class ServerProcess {
 public:
  /// Starts it and waits until it has said where it listens. Its log goes to `log`. kUnavailable,
  /// with the end of the log, when it ends or says nothing for so long.
  static Result<std::unique_ptr<ServerProcess>> start(const std::string& program,
                                                      const std::string& config,
                                                      const std::string& log,
                                                      Duration patience);
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  /// Such as "http://127.0.0.1:40123".
  [[nodiscard]] const std::string& url() const { return url_; }
  [[nodiscard]] pid_t pid() const { return pid_; }

  /// Ends it as an operator would, and kills it after so long. An error when it ended otherwise
  /// than with status 0.
  Result<void> stop(Duration patience);

 private:
  ServerProcess(pid_t pid, int output, std::string log);
  Result<void> read_url(Duration patience);
  /// Waits for its end; false when it still runs after so long.
  bool wait(Duration patience, int& status);

  pid_t pid_;
  int output_;
  std::string log_;
  std::string url_{};
};

}  // namespace heddle::lab
