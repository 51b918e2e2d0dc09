#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "base/time.h"
#include "config/config.h"

namespace boost::asio {
class io_context;
}

namespace heddle::cli {

/// What a process of heddle runs until it is told to end. Loop thread.
class Service {
 public:
  virtual ~Service() = default;
  /// Takes over the configuration as it is now; one that is wrong changes nothing.
  virtual void reload() = 0;
  /// Takes nothing new, and lets what runs end within `patience`; `done` is called once.
  virtual void end(Duration patience, std::function<void()> done) = 0;
};

/// A process with one loop, which SIGTERM and SIGINT end and SIGHUP has reload.
struct ProcessSetup {
  std::string what{};       ///< For messages: "the server".
  std::size_t threads = 0;  ///< That it needs.
  log::Level log_level = log::Level::kInfo;
  log::Format log_format = log::Format::kText;
  Duration patience{};  ///< With what runs when it is told to end.
  /// Begins, before the loop runs. An Error ends the process at once.
  std::function<Result<std::unique_ptr<Service>>(boost::asio::io_context&)> start{};
};

/// Runs it to its end, whatever that waits for: a second signal, and a hard bound of time, end it
/// at once. Returns the exit status, having said why where it is not 0.
int run_process(const ProcessSetup& setup);

}  // namespace heddle::cli
