#include "agent/worker_process.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <boost/asio/posix/stream_descriptor.hpp>

#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
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

std::string describe(const siginfo_t& status) {
  if (status.si_code == CLD_EXITED) {
    return "exited with status " + std::to_string(status.si_status);
  }
  return "killed by signal " + std::to_string(status.si_status) + " (" +
         ::strsignal(status.si_status) + ")";
}

}  // namespace

class WorkerProcess::Impl : public std::enable_shared_from_this<WorkerProcess::Impl> {
 public:
  Impl(const asio::any_io_executor& executor,
       pid_t pid,
       int pidfd,
       std::function<void(const std::string&)> on_exit)
      : pid_(pid), pidfd_(executor, pidfd), on_exit_(std::move(on_exit)) {}

  void watch() {
    pidfd_.async_wait(asio::posix::stream_descriptor::wait_read,
                      [self = shared_from_this()](const boost::system::error_code& error) {
                        if (!error && self->pid_ > 0) {
                          const std::string how = self->reap();
                          self->on_exit_(how);
                        }
                      });
  }

  void end() {
    if (pid_ > 0) {
      kill();
      (void)reap();
    }
    boost::system::error_code ignored;
    pidfd_.close(ignored);
  }

  [[nodiscard]] pid_t pid() const { return pid_; }

  void kill() const {
    if (pid_ > 0) {
      (void)::kill(pid_, SIGKILL);  // Not reaped yet, so the number is still its own.
    }
  }

 private:
  std::string reap() {
    siginfo_t status{};
    int result = -1;
    do {
      // By number: the loop has made the pidfd non-blocking, which waitid would heed.
      result = ::waitid(P_PID, static_cast<id_t>(pid_), &status, WEXITED);
    } while (result != 0 && errno == EINTR);
    pid_ = -1;
    return result == 0 ? describe(status) : std::string("ended in a way that nobody saw");
  }

  pid_t pid_;
  asio::posix::stream_descriptor pidfd_;
  std::function<void(const std::string&)> on_exit_;
};

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
  // glibc 2.36 declares pidfd_open without extern "C".
  const int pidfd = static_cast<int>(::syscall(SYS_pidfd_open, *pid, 0));
  if (pidfd < 0) {
    const int error = errno;
    (void)::kill(*pid, SIGKILL);
    (void)::waitpid(*pid, nullptr, 0);
    return Error{Code::kUnavailable,
                 std::string("watch a worker process: ") + std::strerror(error)};
  }
  auto impl = std::make_shared<Impl>(executor, *pid, pidfd, std::move(on_exit));
  impl->watch();
  return std::unique_ptr<WorkerProcess>(new WorkerProcess(std::move(impl)));
}

WorkerProcess::WorkerProcess(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
WorkerProcess::~WorkerProcess() {
  impl_->end();
}
pid_t WorkerProcess::pid() const {
  return impl_->pid();
}
void WorkerProcess::kill() {
  impl_->kill();
}

}  // namespace heddle::agent
