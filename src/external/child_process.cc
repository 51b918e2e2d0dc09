#include "external/child_process.h"

#include <array>
#include <cerrno>
#include <cstring>

#include "base/check.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace heddle::external {

namespace asio = boost::asio;

namespace {

/// Where the child failed, if it did.
enum class Step : int { kRun, kJoin, kDirectory };

struct Failure {
  Step step = Step::kRun;
  int error = 0;
};

/// All that the child needs, made before it is: there it must not allocate, nor take a lock.
struct Plan {
  std::vector<char*> argv{};
  std::vector<char*> env{};
  const char* directory = nullptr;
  const char* join_file = nullptr;
  int input = -1;
  int output = -1;
  int report = -1;
  pid_t parent = -1;
};

[[noreturn]] void fail(const Plan& plan, Step step) {
  const Failure failure{.step = step, .error = errno};
  (void)!::write(plan.report, &failure, sizeof failure);
  ::_exit(127);
}

/// In the child, which shares our memory until it runs the program: system calls only.
[[noreturn]] void become(const Plan& plan) {
  (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != plan.parent) {
    ::_exit(127);  // We died before it could ask to die with us.
  }
  (void)::setsid();
  if (plan.join_file != nullptr) {
    const int group = ::open(plan.join_file, O_WRONLY | O_CLOEXEC);
    if (group < 0 || ::write(group, "0", 1) != 1) {
      fail(plan, Step::kJoin);
    }
  }
  if (plan.directory != nullptr && ::chdir(plan.directory) != 0) {
    fail(plan, Step::kDirectory);
  }
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction action{};
    action.sa_handler = SIG_DFL;
    (void)::sigaction(number, &action, nullptr);  // Fails for some, which have no handlers.
  }
  sigset_t none;
  sigemptyset(&none);
  (void)::sigprocmask(SIG_SETMASK, &none, nullptr);
  (void)::dup2(plan.input, STDIN_FILENO);
  (void)::dup2(plan.output, STDOUT_FILENO);
  (void)::dup2(plan.output, STDERR_FILENO);
  (void)::close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
  (void)::execvpe(plan.argv[0], plan.argv.data(), plan.env.data());
  fail(plan, Step::kRun);
}

/// With all signals blocked meanwhile: a handler of ours must not run in the child.
__attribute__((noinline)) pid_t make_child(const Plan& plan) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  (void)::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = ::vfork();  // NOLINT(clang-analyzer-security.insecureAPI.vfork)
  if (pid == 0) {
    become(plan);
  }
  const int error = errno;
  (void)::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return pid;
}

Error describe(const Failure& failure, const Command& command) {
  const std::string why = std::string(": ") + std::strerror(failure.error);
  switch (failure.step) {
    case Step::kJoin:
      return {Code::kUnavailable,
              "put " + command.argv[0] + " in a control group by " + command.join_file + why};
    case Step::kDirectory:
      return {Code::kInvalidArgument,
              "start " + command.argv[0] + " in the directory " + command.directory + why};
    case Step::kRun:
      break;
  }
  const bool wrong = failure.error == ENOENT || failure.error == EACCES || failure.error == ENOEXEC;
  return {wrong ? Code::kInvalidArgument : Code::kUnavailable,
          "run the program " + command.argv[0] + why};
}

std::vector<std::string> environment(const Command& command) {
  std::vector<std::string> all;
  const auto added = [&](std::string_view assignment) {
    const std::string_view name = assignment.substr(0, assignment.find('='));
    for (const auto& [key, value] : command.env) {
      if (key == name) {
        return true;
      }
    }
    return false;
  };
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!added(*variable)) {
      all.emplace_back(*variable);
    }
  }
  for (const auto& [key, value] : command.env) {
    all.push_back(key + "=" + value);
  }
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> all;
  for (std::string& text : strings) {
    all.push_back(text.data());
  }
  all.push_back(nullptr);
  return all;
}

/// The child's number; the error it met on its way to its program.
Result<pid_t> start(const Command& command, const Descriptor& output) {
  std::vector<std::string> argv = command.argv;
  std::vector<std::string> env = environment(command);
  std::array<int, 2> report{-1, -1};
  if (::pipe2(report.data(), O_CLOEXEC) != 0) {
    return Error{Code::kUnavailable, std::string("make a pipe: ") + std::strerror(errno)};
  }
  const Descriptor reading(report[0]);
  Descriptor writing(report[1]);
  const Descriptor input(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const Plan plan{.argv = pointers(argv),
                  .env = pointers(env),
                  .directory = command.directory.empty() ? nullptr : command.directory.c_str(),
                  .join_file = command.join_file.empty() ? nullptr : command.join_file.c_str(),
                  .input = input.get(),
                  .output = output.get(),
                  .report = writing.get(),
                  .parent = ::getpid()};
  const pid_t pid = make_child(plan);
  if (pid < 0) {
    return Error{Code::kUnavailable,
                 "make a process for " + command.argv[0] + ": " + std::strerror(errno)};
  }
  writing = Descriptor();
  Failure failure;
  ssize_t got = -1;
  do {
    got = ::read(reading.get(), &failure, sizeof failure);
  } while (got < 0 && errno == EINTR);
  if (got == static_cast<ssize_t>(sizeof failure)) {
    (void)::waitpid(pid, nullptr, 0);
    return describe(failure, command);
  }
  return pid;
}

}  // namespace

Result<std::unique_ptr<ChildProcess>> ChildProcess::spawn(
    const asio::any_io_executor& executor,
    const Command& command,
    const Descriptor& output,
    std::function<void(const std::string& how)> on_exit) {
  HEDDLE_CHECK(!command.argv.empty());
  const Result<pid_t> pid = start(command, output);
  if (!pid) {
    return pid.error();
  }
  Result<Child> child = Child::adopt(*pid);
  if (!child) {
    return Error{child.error().code, command.argv[0] + ": " + child.error().message};
  }
  return std::unique_ptr<ChildProcess>(
      new ChildProcess(executor, std::move(*child), std::move(on_exit)));
}

ChildProcess::ChildProcess(const asio::any_io_executor& executor,
                           Child child,
                           std::function<void(const std::string&)> on_exit)
    : watch_(executor, std::move(child), std::move(on_exit)) {}

pid_t ChildProcess::pid() const {
  return watch_.child().pid();
}
void ChildProcess::signal(int number) const {
  watch_.child().signal_group(number);
}

}  // namespace heddle::external
