#pragma once

#include <functional>
#include <memory>
#include <string>

#include <boost/asio/any_io_executor.hpp>

#include "base/result.h"
#include "rpc/descriptor.h"

#include <sys/types.h>

namespace heddle::agent {

/// One running worker: this program again, with the verb `worker`. It dies with this object, and
/// with the thread that started it (which therefore is the loop thread, to the end). Loop thread
/// only.
class WorkerProcess {
 public:
  /// Starts a worker that talks over `socket`, which is the only descriptor it inherits beside the
  /// standard ones. `on_exit` is told how it ended ("killed by signal 9 (Killed)"), on the loop,
  /// unless the object was destroyed before. kUnavailable when no process can be made.
  static Result<std::unique_ptr<WorkerProcess>> spawn(
      const boost::asio::any_io_executor& executor,
      rpc::Descriptor socket,
      std::function<void(const std::string& how)> on_exit);

  /// Kills it, if it still runs, and takes its exit status.
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  [[nodiscard]] pid_t pid() const;
  /// Ends it at once, as SIGKILL does. on_exit still comes.
  void kill();

 private:
  class Impl;
  explicit WorkerProcess(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

/// The descriptor under which a worker finds its socket; said on its command line as well.
inline constexpr int kWorkerSocket = 3;

}  // namespace heddle::agent
