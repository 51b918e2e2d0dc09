#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/any_io_executor.hpp>

#include "agent/worker_process.h"
#include "base/ids.h"
#include "base/result.h"
#include "rpc/link.h"
#include "rpc/messages.h"

namespace heddle::agent {

/// One life of one worker: its process and the link to it, from start to end. Loop thread only. It
/// ends with this object; handlers may destroy it, and none is called after that or from within a
/// call to it.
class WorkerLife {
 public:
  struct Handlers {
    /// It has answered the hello: it is ready, or says why it never will be.
    std::function<void(const std::optional<Error>& failure)> on_hello{};
    /// With descriptors as the report has them beside it.
    std::function<void(core::WorkerReport, std::vector<rpc::Descriptor>)> on_report{};
    std::function<void(const rpc::WorkerStats&)> on_stats{};
    std::function<void(const rpc::Beat&)> on_beat{};
    std::function<void(rpc::KvAsk)> on_kv_ask{};
    std::function<void(rpc::KvGiven)> on_kv_given{};
    /// The process has been reaped and all that it said was heard. Nothing follows.
    std::function<void(const std::string& how)> on_exited{};
  };

  /// Starts the process and says hello. `arena_fd` is borrowed. kUnavailable if it cannot start.
  static Result<std::unique_ptr<WorkerLife>> begin(const boost::asio::any_io_executor& executor,
                                                   const rpc::WorkerHello& hello,
                                                   int arena_fd,
                                                   Handlers handlers);

  /// Ends the process if it does not take what it is sent. Descriptors as the message wants them.
  void send(const rpc::ToWorker& message, std::vector<rpc::Descriptor> descriptors = {});
  /// Ends the process; on_exited follows.
  void kill() { process_->kill(); }

  [[nodiscard]] WorkerEpoch epoch() const { return epoch_; }
  [[nodiscard]] pid_t pid() const { return process_->pid(); }

 private:
  WorkerLife(WorkerEpoch epoch, Handlers handlers)
      : epoch_(epoch), handlers_(std::move(handlers)) {}
  void hear(rpc::Frame frame);
  void tell_if_over();

  WorkerEpoch epoch_;
  Handlers handlers_;
  bool link_closed_ = false;
  std::optional<std::string> exited_{};
  std::unique_ptr<rpc::Link> link_{};
  std::unique_ptr<WorkerProcess> process_{};
};

}  // namespace heddle::agent
