#pragma once

#include <functional>
#include <memory>
#include <string>

#include <boost/asio/any_io_executor.hpp>

#include "base/result.h"
#include "base/self_process.h"
#include "external/child_watch.h"
#include "rpc/descriptor.h"

#include <sys/types.h>

namespace heddle::agent {

/// One running worker: this program again, with the verb `worker`. It dies with this object, and
/// with the thread that started it (which therefore is the loop thread, to the end). Loop thread
/// only.
class WorkerProcess {
 public:
  /// Starts a worker that talks over `socket`, which is the only descriptor it inherits beside the
  /// standard ones. `on_exit` is told how it ended ("signal 9 (Killed)"), on the loop,
  /// unless the object was destroyed before. kUnavailable when no process can be made.
  static Result<std::unique_ptr<WorkerProcess>> spawn(
      const boost::asio::any_io_executor& executor,
      rpc::Descriptor socket,
      std::function<void(const std::string& how)> on_exit);

  [[nodiscard]] pid_t pid() const;
  /// Ends it at once, as SIGKILL does. on_exit still comes.
  void kill();

 private:
  WorkerProcess(const boost::asio::any_io_executor& executor,
                Child child,
                std::function<void(const std::string&)> on_exit);
  external::ChildWatch watch_;
};

/// The descriptor under which a worker finds its socket; said on its command line as well.
inline constexpr int kWorkerSocket = kParentSocket;

}  // namespace heddle::agent
