#include "base/child.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/clock.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace heddle {

std::string describe(const ProcessEnd& end) {
  if (end.how == ProcessEnd::How::kUnseen) {
    return "an end that nobody saw";
  }
  if (end.how == ProcessEnd::How::kExited) {
    return "exit status " + std::to_string(end.number);
  }
  // NOLINTNEXTLINE(concurrency-mt-unsafe): of the C library's own table.
  const char* name = ::strsignal(end.number);
  return "signal " + std::to_string(end.number) + " (" + name + ")";
}

Result<Child> Child::adopt(pid_t pid) {
  // glibc 2.36 declares pidfd_open without extern "C".
  const int pidfd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  const int error = errno;
  Child child(pid, Descriptor(pidfd));
  if (pidfd < 0) {
    return Error{Code::kUnavailable,
                 "watch process " + std::to_string(pid) + ": " + std::strerror(error)};
  }
  return child;
}

Child::~Child() {
  if (running()) {
    signal(SIGKILL);
    (void)wait();
  }
}

Child::Child(Child&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      pidfd_(std::move(other.pidfd_)),
      end_(std::exchange(other.end_, std::nullopt)) {}

Child& Child::operator=(Child&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(pidfd_, other.pidfd_);
  std::swap(end_, other.end_);
  return *this;
}

void Child::signal(int number) const {
  if (running()) {
    (void)::kill(pid_, number);  // Not reaped yet, so the number is still its own.
  }
}

void Child::signal_group(int number) const {
  if (running() && ::kill(-pid_, number) != 0) {
    (void)::kill(pid_, number);  // Its group may be another by now.
  }
}

bool Child::wait(Duration patience) {
  const Instant deadline = steady_now() + patience;
  while (running()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - steady_now());
    pollfd ended{.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
    const int ready = ::poll(&ended, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
    if (ready > 0) {
      (void)wait();
    } else if (ready == 0) {
      return false;
    } else {
      HEDDLE_CHECK(errno == EINTR);
    }
  }
  return true;
}

const ProcessEnd& Child::wait() {
  if (end_) {
    return *end_;
  }
  siginfo_t status{};
  int result = -1;
  do {
    // By number: whoever polls the descriptor may have made it non-blocking, which waitid would
    // heed.
    result = ::waitid(P_PID, static_cast<id_t>(pid_), &status, WEXITED);
  } while (result != 0 && errno == EINTR);
  if (result != 0) {
    return end_.emplace(ProcessEnd{.how = ProcessEnd::How::kUnseen});
  }
  const auto how =
      status.si_code == CLD_EXITED ? ProcessEnd::How::kExited : ProcessEnd::How::kKilled;
  return end_.emplace(ProcessEnd{.how = how, .number = status.si_status});
}

}  // namespace heddle
