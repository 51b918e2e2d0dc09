#include "base/self_process.h"

#include <array>
#include <cstring>
#include <utility>

#include "base/check.h"

#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace heddle {

namespace {

constexpr std::array kParentsSignals = {SIGINT, SIGTERM, SIGHUP};

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

  /// The child keeps 0, 1, 2 and `socket` (as kParentSocket), whatever others forgot to mark.
  void keep_only(int socket) {
    HEDDLE_CHECK(::posix_spawn_file_actions_adddup2(&actions_, socket, kParentSocket) == 0);
    HEDDLE_CHECK(::posix_spawn_file_actions_addclosefrom_np(&actions_, kParentSocket + 1) == 0);
  }

  /// The child starts with the signals that are its parent's blocked, and unblocks them when it has
  /// learned to ignore them.
  void start_with_blocked_signals() {
    sigset_t blocked;
    sigemptyset(&blocked);
    for (const int signal : kParentsSignals) {
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
      return Error{Code::kUnavailable, std::string("start a process: ") + std::strerror(error)};
    }
    return pid;
  }

 private:
  posix_spawn_file_actions_t actions_{};
  posix_spawnattr_t attributes_{};
};

}  // namespace

Result<Child> start_self(std::string verb, Descriptor socket) {
  SpawnPlan plan;
  plan.keep_only(socket.get());
  plan.start_with_blocked_signals();
  std::string name = "heddle";
  std::string flag = "--fd";
  std::string number = std::to_string(kParentSocket);
  const std::array<char*, 5> arguments = {
      name.data(), verb.data(), flag.data(), number.data(), nullptr};
  const Result<pid_t> pid = plan.run("/proc/self/exe", arguments.data());
  Result<Child> child = pid ? Child::adopt(*pid) : Result<Child>(pid.error());
  return child ? std::move(child) : Error{child.error().code, verb + ": " + child.error().message};
}

void follow_parent() {
  (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
  sigset_t mine;
  sigemptyset(&mine);
  for (const int signal : kParentsSignals) {
    (void)::signal(signal, SIG_IGN);
    sigaddset(&mine, signal);
  }
  (void)::signal(SIGPIPE, SIG_IGN);
  (void)::sigprocmask(SIG_UNBLOCK, &mine, nullptr);
}

}  // namespace heddle
