#include "lab/server_process.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <utility>

#include "base/clock.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace heddle::lab {

namespace {

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

/// In the child, between fork and exec: nothing but system calls.
[[noreturn]] void become(
    const char* const* arguments, char* const* environment, int output, int log, pid_t parent) {
  (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const bool orphan = ::getppid() != parent;
  if (!orphan && ::dup2(output, STDOUT_FILENO) >= 0 && ::dup2(log, STDERR_FILENO) >= 0) {
    ::execve(arguments[0], const_cast<char* const*>(arguments), environment);
  }
  ::_exit(kNotStarted);
}

/// Ends with a null, as the system wants it.
std::vector<const char*> pointers(const std::vector<std::string>& texts) {
  std::vector<const char*> all;
  for (const std::string& text : texts) {
    all.push_back(text.c_str());
  }
  all.push_back(nullptr);
  return all;
}

}  // namespace

ServerProcess::ServerProcess(Child child, Descriptor output, std::string log)
    : child_(std::move(child)), output_(std::move(output)), log_(std::move(log)) {}

Result<std::unique_ptr<ServerProcess>> ServerProcess::start(
    const std::vector<std::string>& command,
    const std::string& log,
    Duration patience,
    const std::optional<std::vector<std::string>>& environment) {
  const Descriptor log_file(::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!log_file) {
    return unavailable("write " + log + ": " + std::strerror(errno));
  }
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) {
    return unavailable(std::string("start a server: ") + std::strerror(errno));
  }
  Descriptor reading(pipe[0]);
  Descriptor writing(pipe[1]);
  const std::vector<const char*> arguments = pointers(command);
  const std::vector<const char*> variables =
      pointers(environment.value_or(std::vector<std::string>{}));
  char* const* const own = environment ? const_cast<char* const*>(variables.data()) : ::environ;
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) {
    become(arguments.data(), own, writing.get(), log_file.get(), parent);
  }
  if (pid < 0) {
    return unavailable(std::string("start a server: ") + std::strerror(errno));
  }
  writing = Descriptor();
  Result<Child> child = Child::adopt(pid);
  if (!child) {
    return child.error();
  }
  std::unique_ptr<ServerProcess> server(
      new ServerProcess(std::move(*child), std::move(reading), log));
  const Result<void> said = server->read_greeting(patience);
  if (!said) {
    return unavailable(said.error().message + "\n" + tail(log));
  }
  return server;
}

Result<void> ServerProcess::read_greeting(Duration patience) {
  const Instant deadline = steady_now() + patience;
  std::string text;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - steady_now());
    pollfd ready{.fd = output_.get(), .events = POLLIN, .revents = 0};
    if (left.count() <= 0 || ::poll(&ready, 1, static_cast<int>(left.count())) == 0) {
      return unavailable("the server has not said where it listens");
    }
    std::array<char, 4096> buffer{};
    const ssize_t count = ::read(output_.get(), buffer.data(), buffer.size());
    if (count <= 0) {
      return unavailable(child_.wait(patience) ? "the server ended: " + describe(child_.wait())
                                               : "the server has closed its output");
    }
    text.append(buffer.data(), static_cast<std::size_t>(count));
    const std::size_t end = text.find('\n');
    if (end != std::string::npos) {
      const std::size_t begin = std::min(text.find("http://"), end);
      url_ = text.substr(begin, text.find_first_of(" \n", begin) - begin);
      return {};
    }
  }
}

Result<void> ServerProcess::stop(Duration patience) {
  child_.signal(SIGTERM);
  if (!child_.wait(patience)) {
    return unavailable("the server did not end within the time it was given");
  }
  if (const ProcessEnd& end = child_.wait(); !end.well()) {
    return unavailable("the server ended: " + describe(end) + "\n" + tail(log_));
  }
  return {};
}

}  // namespace heddle::lab
