#include "external/run_program.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/child.h"
#include "base/clock.h"
#include "base/descriptor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

namespace heddle::external {

namespace {

constexpr std::size_t kOutputMax = 1U << 20U;
constexpr std::size_t kErrorShown = 500;

struct Pipe {
  Descriptor reading{};
  Descriptor writing{};
};

Result<Pipe> make_pipe() {
  std::array<int, 2> ends{-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    return Error{Code::kUnavailable, std::string("make a pipe: ") + std::strerror(errno)};
  }
  return Pipe{.reading = Descriptor(ends[0]), .writing = Descriptor(ends[1])};
}

/// In a group of its own, so that what it starts can be killed with it.
Result<pid_t> spawn(const std::vector<std::string>& argv, int output, int errors) {
  std::vector<std::string> strings = argv;
  std::vector<char*> pointers;
  for (std::string& text : strings) {
    pointers.push_back(text.data());
  }
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  HEDDLE_CHECK(::posix_spawn_file_actions_init(&actions) == 0);
  HEDDLE_CHECK(::posix_spawnattr_init(&attributes) == 0);
  sigset_t none;
  sigset_t all;
  sigemptyset(&none);
  sigfillset(&all);
  HEDDLE_CHECK(
      ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0) == 0 &&
      ::posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO) == 0 &&
      ::posix_spawn_file_actions_adddup2(&actions, errors, STDERR_FILENO) == 0 &&
      ::posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1) == 0 &&
      ::posix_spawnattr_setsigmask(&attributes, &none) == 0 &&
      ::posix_spawnattr_setsigdefault(&attributes, &all) == 0 &&
      ::posix_spawnattr_setpgroup(&attributes, 0) == 0 &&
      ::posix_spawnattr_setflags(
          &attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP) ==
          0);
  pid_t pid = -1;
  const int error =
      ::posix_spawnp(&pid, pointers[0], &actions, &attributes, pointers.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    return Error{Code::kUnavailable, "run " + argv[0] + ": " + std::strerror(error)};
  }
  return pid;
}

/// Reads both until both are closed; false when time is up.
bool read_both(const std::array<int, 2>& files,
               std::array<std::string, 2>& texts,
               Instant deadline) {
  std::array<pollfd, 2> waited{{{.fd = files[0], .events = POLLIN, .revents = 0},
                                {.fd = files[1], .events = POLLIN, .revents = 0}}};
  std::array<char, 4096> buffer{};
  while (waited[0].fd >= 0 || waited[1].fd >= 0) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - steady_now()).count();
    if (left <= 0) {
      return false;
    }
    (void)::poll(
        waited.data(), waited.size(), static_cast<int>(std::min<std::int64_t>(left, 1000)));
    for (std::size_t i = 0; i < waited.size(); ++i) {
      if (waited[i].fd < 0 || waited[i].revents == 0) {
        continue;
      }
      const ssize_t got = ::read(waited[i].fd, buffer.data(), buffer.size());
      if (got == 0 || (got < 0 && errno != EINTR)) {
        waited[i].fd = -1;
      } else if (got > 0 && texts[i].size() < kOutputMax) {
        texts[i].append(buffer.data(), static_cast<std::size_t>(got));
      }
    }
  }
  return true;
}

}  // namespace

Result<std::string> run_program(const std::vector<std::string>& argv, Duration patience) {
  HEDDLE_CHECK(!argv.empty());
  const Instant deadline = steady_now() + patience;
  Result<Pipe> output = make_pipe();
  Result<Pipe> errors = make_pipe();
  if (!output || !errors) {
    return output ? errors.error() : output.error();
  }
  const Result<pid_t> pid = spawn(argv, output->writing.get(), errors->writing.get());
  if (!pid) {
    return pid.error();
  }
  Result<Child> child = Child::adopt(*pid);
  if (!child) {
    return child.error();
  }
  output->writing = Descriptor();
  errors->writing = Descriptor();
  std::array<std::string, 2> texts;
  const bool in_time = read_both({output->reading.get(), errors->reading.get()}, texts, deadline);
  if (!in_time) {
    child->signal_group(SIGKILL);
  }
  const ProcessEnd& end = child->wait();
  const std::string what = argv[0] + (argv.size() > 1 ? " " + argv[1] : "");
  if (!in_time) {
    return Error{Code::kDeadlineExceeded, what + " was not over in time"};
  }
  if (!end.well()) {
    std::string& why = texts[1];
    while (!why.empty() && why.back() == '\n') {
      why.pop_back();
    }
    const std::size_t skipped = why.size() > kErrorShown ? why.size() - kErrorShown : 0;
    return Error{Code::kUnavailable,
                 what + " failed with " + describe(end) + ": " + why.substr(skipped)};
  }
  return std::move(texts[0]);
}

}  // namespace heddle::external
