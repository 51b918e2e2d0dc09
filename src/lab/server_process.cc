#include "lab/server_process.h"

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>
#include <utility>

#include "base/clock.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace heddle::lab {

namespace {

constexpr Duration kPollInterval = std::chrono::milliseconds(10);
constexpr std::size_t kLogShown = 2000;
constexpr int kNotStarted = 127;

Error unavailable(std::string message) {
  return {.code = Code::kUnavailable, .message = std::move(message)};
}

/// The end of a file, for messages.
std::string tail(const std::string& file) {
  std::ifstream stream(file, std::ios::binary | std::ios::ate);
  const auto size = stream ? static_cast<std::size_t>(stream.tellg()) : 0;
  const std::size_t shown = std::min(size, kLogShown);
  std::string text(shown, '\0');
  stream.seekg(static_cast<std::streamoff>(size - shown));
  stream.read(text.data(), static_cast<std::streamsize>(shown));
  return text;
}

std::string how(int status) {
  return WIFEXITED(status) ? "ended with status " + std::to_string(WEXITSTATUS(status))
                           : "was killed by signal " + std::to_string(WTERMSIG(status));
}

/// In the child, between fork and exec: nothing but system calls.
[[noreturn]] void become(const char* const* arguments, int output, int log, pid_t parent) {
  (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const bool orphan = ::getppid() != parent;
  if (!orphan && ::dup2(output, STDOUT_FILENO) >= 0 && ::dup2(log, STDERR_FILENO) >= 0) {
    ::execv(arguments[0], const_cast<char* const*>(arguments));
  }
  ::_exit(kNotStarted);
}

}  // namespace

ServerProcess::ServerProcess(pid_t pid, int output, std::string log)
    : pid_(pid), output_(output), log_(std::move(log)) {}

ServerProcess::~ServerProcess() {
  if (pid_ > 0) {
    (void)::kill(pid_, SIGKILL);
    (void)::waitpid(pid_, nullptr, 0);
  }
  (void)::close(output_);
}

Result<std::unique_ptr<ServerProcess>> ServerProcess::start(const std::string& program,
                                                            const std::string& config,
                                                            const std::string& log,
                                                            Duration patience) {
  const int log_fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (log_fd < 0) {
    return unavailable("write " + log + ": " + std::strerror(errno));
  }
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) {
    (void)::close(log_fd);
    return unavailable(std::string("start a server: ") + std::strerror(errno));
  }
  const std::array<const char*, 5> arguments{
      program.c_str(), "serve", "--config", config.c_str(), nullptr};
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) {
    become(arguments.data(), pipe[1], log_fd, parent);
  }
  (void)::close(pipe[1]);
  (void)::close(log_fd);
  if (pid < 0) {
    (void)::close(pipe[0]);
    return unavailable(std::string("start a server: ") + std::strerror(errno));
  }
  std::unique_ptr<ServerProcess> server(new ServerProcess(pid, pipe[0], log));
  const Result<void> said = server->read_url(patience);
  if (!said) {
    return unavailable(said.error().message + "\n" + tail(log));
  }
  return server;
}

Result<void> ServerProcess::read_url(Duration patience) {
  const Instant deadline = steady_now() + patience;
  std::string text;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - steady_now());
    pollfd ready{.fd = output_, .events = POLLIN, .revents = 0};
    if (left.count() <= 0 || ::poll(&ready, 1, static_cast<int>(left.count())) == 0) {
      return unavailable("the server has not said where it listens");
    }
    std::array<char, 4096> buffer{};
    const ssize_t count = ::read(output_, buffer.data(), buffer.size());
    if (count <= 0) {
      int status = 0;
      return unavailable(wait(patience, status) ? "the server " + how(status)
                                                : "the server has closed its output");
    }
    text.append(buffer.data(), static_cast<std::size_t>(count));
    const std::size_t begin = text.find("http://");
    const std::size_t end = text.find_first_of(" \n", begin);
    if (begin != std::string::npos && end != std::string::npos) {
      url_ = text.substr(begin, end - begin);
      return {};
    }
  }
}

bool ServerProcess::wait(Duration patience, int& status) {
  const Instant deadline = steady_now() + patience;
  for (;;) {
    const pid_t ended = ::waitpid(pid_, &status, WNOHANG);
    if (ended == pid_) {
      pid_ = -1;
      return true;
    }
    if (steady_now() > deadline) {
      return false;
    }
    std::this_thread::sleep_for(kPollInterval);
  }
}

Result<void> ServerProcess::stop(Duration patience) {
  int status = 0;
  (void)::kill(pid_, SIGTERM);
  if (!wait(patience, status)) {
    return unavailable("the server did not end within the time it was given");
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return unavailable("the server " + how(status) + "\n" + tail(log_));
  }
  return {};
}

}  // namespace heddle::lab
