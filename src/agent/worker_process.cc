#include "agent/worker_process.h"

#include <array>
#include <cstring>
#include <utility>

#include <signal.h>
#include <spawn.h>
#include <unistd.h>

namespace heddle::agent {

namespace asio = boost::asio;

namespace {

/// What posix_spawn is to do in the child; destroyed as it must be.
class SpawnPlan {
 public:
  SpawnPlan() {
    HEDDLE_CHECK(::posix_spawn_file_actions_init(&actions_) == 0);
    HEDDLE_CHECK(::posix_spawnattr_init(&attributes_) == 0);
  }
  ~SpawnPlan() {
    ::posix_spawn_file_actions_destroy(&actions_);
    ::posix_spawnattr_destroy(&attributes_);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;

  /// The child keeps 0, 1, 2 and `socket` (as kWorkerSocket), whatever others forgot to mark.
  void keep_only(int socket) {
    HEDDLE_CHECK(::posix_spawn_file_actions_adddup2(&actions_, socket, kWorkerSocket) == 0);
    HEDDLE_CHECK(::posix_spawn_file_actions_addclosefrom_np(&actions_, kWorkerSocket + 1) == 0);
  }

  /// Ctrl-C in a terminal reaches the whole group. The child starts with such signals blocked and
  /// unblocks them when it has learned to ignore them.
  void start_with_blocked_signals() {
    sigset_t blocked;
    sigemptyset(&blocked);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
      sigaddset(&blocked, signal);
    }
    sigset_t defaults;
    sigfillset(&defaults);
    HEDDLE_CHECK(::posix_spawnattr_setsigmask(&attributes_, &blocked) == 0);
    HEDDLE_CHECK(::posix_spawnattr_setsigdefault(&attributes_, &defaults) == 0);
    HEDDLE_CHECK(::posix_spawnattr_setflags(&attributes_,
                                            POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF) == 0);
  }

  Result<pid_t> run(const char* program, char* const* arguments) {
    pid_t pid = -1;
    const int error = ::posix_spawn(&pid, program, &actions_, &attributes_, arguments, environ);
    if (error != 0) {
      return Error{Code::kUnavailable,
                   std::string("start a worker process: ") + std::strerror(error)};
    }
    return pid;
  }

 private:
  posix_spawn_file_actions_t actions_{};
  posix_spawnattr_t attributes_{};
};

}  // namespace

Result<std::unique_ptr<WorkerProcess>> WorkerProcess::spawn(
    const asio::any_io_executor& executor,
    rpc::Descriptor socket,
    std::function<void(const std::string& how)> on_exit) {
  SpawnPlan plan;
  plan.keep_only(socket.get());
  plan.start_with_blocked_signals();
  std::string name = "heddle";
  std::string verb = "worker";
  std::string flag = "--fd";
  std::string number = std::to_string(kWorkerSocket);
  const std::array<char*, 5> arguments = {
      name.data(), verb.data(), flag.data(), number.data(), nullptr};
  const Result<pid_t> pid = plan.run("/proc/self/exe", arguments.data());
  if (!pid) {
    return pid.error();
  }
  Result<Child> child = Child::adopt(*pid);
  if (!child) {
    return Error{child.error().code, "worker: " + child.error().message};
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
