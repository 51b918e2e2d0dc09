#include "agent/worker_process.h"

#include <utility>

#include <signal.h>

namespace heddle::agent {

namespace asio = boost::asio;

Result<std::unique_ptr<WorkerProcess>> WorkerProcess::spawn(
    const asio::any_io_executor& executor,
    rpc::Descriptor socket,
    std::function<void(const std::string& how)> on_exit) {
  Result<Child> child = start_self("worker", std::move(socket));
  if (!child) {
    return child.error();
  }
  return std::unique_ptr<WorkerProcess>(
      new WorkerProcess(executor, std::move(*child), std::move(on_exit)));
}

WorkerProcess::WorkerProcess(const asio::any_io_executor& executor,
                             Child child,
                             std::function<void(const std::string&)> on_exit)
    : watch_(executor, std::move(child), std::move(on_exit)) {}

pid_t WorkerProcess::pid() const {
  return watch_.child().pid();
}
void WorkerProcess::kill() {
  watch_.child().signal(SIGKILL);
}

}  // namespace heddle::agent
