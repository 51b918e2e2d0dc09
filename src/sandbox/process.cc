#include "sandbox/process.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/self_process.h"
#include "sandbox/channel.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>

namespace heddle::sandbox {

using namespace std::chrono_literals;

namespace {

/// How often a wait looks at clocks at least.
constexpr Duration kLook = 50ms;

}  // namespace

Result<Process> Process::start(const std::atomic<bool>& stopping) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return Error{Code::kUnavailable, std::string("make a socket: ") + std::strerror(errno)};
  }
  Descriptor ours(ends[0]);
  Result<Child> child = start_self("sandbox", Descriptor(ends[1]));
  if (!child) {
    return child.error();
  }
  return Process(std::move(*child), std::move(ours), stopping);
}

Duration Process::cpu() const {
  clockid_t clock{};
  timespec spent{};
  if (::clock_getcpuclockid(child_.pid(), &clock) != 0 || ::clock_gettime(clock, &spent) != 0) {
    return Duration::zero();  // It has ended, which its socket tells.
  }
  return std::chrono::seconds(spent.tv_sec) + std::chrono::nanoseconds(spent.tv_nsec);
}

bool Process::ask(const Question& question, Duration patience) {
  const Instant deadline = steady_now() + patience;
  return send_message(socket_.get(), encode(question), [&](int socket, short events) {
    pollfd ready{.fd = socket, .events = events, .revents = 0};
    (void)::poll(&ready, 1, static_cast<int>(kLook / 1ms));
    return steady_now() < deadline && !stopping_->load();
  });
}

std::variant<Answer, Silence> Process::hear(const Bounds& bounds) {
  const Duration cpu_end = cpu() + bounds.cpu;
  const Instant deadline = steady_now() + bounds.patience;
  Silence::Why why = Silence::Why::kDied;
  const auto wait = [&](int socket, short events) {
    pollfd ready{.fd = socket, .events = events, .revents = 0};
    if (::poll(&ready, 1, static_cast<int>(kLook / 1ms)) > 0) {
      return true;
    }
    if (stopping_->load()) {
      why = Silence::Why::kStopped;
    } else if (cpu() >= cpu_end) {
      why = Silence::Why::kCpu;
    } else if (steady_now() >= deadline) {
      why = Silence::Why::kImpatient;
    }
    return why == Silence::Why::kDied;
  };
  const std::optional<std::string> message = receive_message(socket_.get(), wait);
  if (!message) {
    return end(why);
  }
  Result<Answer> answer = decode_answer(*message);
  if (!answer) {
    return end(Silence::Why::kDied);
  }
  return std::move(*answer);
}

Silence Process::end(Silence::Why why) {
  if (why == Silence::Why::kDied && !child_.wait(1s)) {
    child_.signal(SIGKILL);  // It closed its socket, or talked nonsense, and goes on.
  } else if (why != Silence::Why::kDied) {
    child_.signal(SIGKILL);
  }
  const ProcessEnd& ended = child_.wait();
  const bool by_others =
      ended.how == ProcessEnd::How::kKilled && (ended.number == SIGKILL || ended.number == SIGTERM);
  if (why == Silence::Why::kDied && by_others) {
    why = Silence::Why::kKilled;
  }
  return {.why = why, .how = describe(ended)};
}

}  // namespace heddle::sandbox
