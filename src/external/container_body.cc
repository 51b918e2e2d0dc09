#include "external/container_body.h"

#include <array>
#include <charconv>
#include <utility>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "external/child_process.h"
#include "external/output.h"
#include "external/proc.h"
#include "external/record.h"
#include "external/run_program.h"

#include <fcntl.h>
#include <unistd.h>

namespace heddle::external {

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace {

/// For what should take a moment.
constexpr Duration kToolPatience = 30s;

/// The namespace of process numbers that a process is in, as the kernel names it.
std::string pid_namespace(pid_t pid) {
  std::array<char, 64> target{};
  const ssize_t size = ::readlink(
      ("/proc/" + std::to_string(pid) + "/ns/pid").c_str(), target.data(), target.size());
  return size > 0 ? std::string(target.data(), static_cast<std::size_t>(size)) : "";
}

class ContainerSet final : public ProcessSet {
 public:
  ContainerSet(std::string runtime, std::string container)
      : runtime_(std::move(runtime)), container_(std::move(container)) {}

  [[nodiscard]] std::vector<pid_t> members() const override {
    const Result<std::string> said =
        run_program({runtime_, "inspect", "--format", "{{.State.Pid}}", container_}, kToolPatience);
    pid_t first = 0;
    if (said) {
      std::from_chars(said->data(), said->data() + said->size(), first);
    }
    if (first <= 0) {
      return {};
    }
    const std::string space = pid_namespace(first);
    if (space.empty() || space == pid_namespace(::getpid())) {
      return {first};  // It shares ours: no telling whose the others are.
    }
    std::vector<pid_t> found = all_processes();
    std::erase_if(found, [&](pid_t pid) { return pid_namespace(pid) != space; });
    return found;
  }

  Result<void> freeze(Duration patience) override { return tell("pause", patience); }
  Result<void> thaw(Duration patience) override { return tell("unpause", patience); }
  void kill() override {
    if (const Result<void> gone = tell("rm", kToolPatience); !gone) {
      log::error("container cannot be removed",
                 {{"container", container_}, {"error", gone.error().message}});
    }
  }

 private:
  [[nodiscard]] Result<void> tell(const std::string& verb, Duration patience) const {
    std::vector<std::string> argv = {runtime_, verb};
    if (verb == "rm") {
      argv.emplace_back("-f");
    }
    argv.push_back(container_);
    const Result<std::string> done = run_program(argv, patience);
    return done ? Result<void>() : Result<void>(done.error());
  }

  std::string runtime_;
  std::string container_;
};

class ContainerBody final : public EngineBody {
 public:
  ContainerBody(const asio::any_io_executor& executor, BodySetup setup)
      : state_(std::make_shared<State>(executor, std::move(setup))) {}
  ~ContainerBody() override { state_->abandon(); }
  ContainerBody(const ContainerBody&) = delete;
  ContainerBody& operator=(const ContainerBody&) = delete;

  asio::awaitable<Result<void>> begin(Duration patience) override {
    return State::begin(state_, patience);
  }
  asio::awaitable<void> end(Duration polite) override { return State::end(state_, polite); }
  [[nodiscard]] std::shared_ptr<ProcessSet> processes() const override { return state_->set; }
  [[nodiscard]] std::optional<std::string> ended() const override { return state_->ended; }
  [[nodiscard]] std::vector<std::string> last_lines() const override {
    return state_->output.last_lines();
  }

 private:
  struct State : std::enable_shared_from_this<State> {
    State(asio::any_io_executor loop, BodySetup how)
        : executor(std::move(loop)),
          setup(std::move(how)),
          runtime(setup.config.container.runtime),
          name("heddle-" + safe_label(setup.model)),
          set(make_container_set(runtime, name)),
          output(setup.model) {}

    static asio::awaitable<Result<void>> begin(std::shared_ptr<State> self, Duration patience);
    static asio::awaitable<void> end(std::shared_ptr<State> self, Duration polite);
    static asio::awaitable<void> clean_up(std::shared_ptr<State> self, std::string how);
    [[nodiscard]] std::vector<std::string> run_argv() const;
    Result<void> record();
    Result<void> watch();
    void exited(const std::string& status);
    void abandon();

    asio::any_io_executor executor;
    BodySetup setup;
    std::string runtime;
    std::string name;
    std::shared_ptr<ProcessSet> set;
    Output output;
    std::unique_ptr<ChildProcess> logs{};
    std::unique_ptr<ChildProcess> waiter{};
    RecordFile file{};
    std::optional<std::string> ended{};
    bool begun = false;
    bool asked = false;
  };

  std::shared_ptr<State> state_;
};

std::vector<std::string> ContainerBody::State::run_argv() const {
  const config::ContainerConfig& container = setup.config.container;
  std::vector<std::string> argv = {runtime, "run", "-d", "--name", name};
  for (const auto& [key, value] : setup.config.env) {
    argv.emplace_back("-e");
    argv.push_back(key + "=" + value);
  }
  argv.insert(argv.end(), container.options.begin(), container.options.end());
  argv.push_back(container.image);
  argv.insert(argv.end(), container.args.begin(), container.args.end());
  return argv;
}

asio::awaitable<Result<void>> ContainerBody::State::begin(std::shared_ptr<State> self,
                                                          Duration patience) {
  if (const Result<void> written = self->record(); !written) {
    self->ended = "it was not started";
    co_return written;
  }
  const auto run = [argv = self->run_argv(), runtime = self->runtime, name = self->name, patience] {
    (void)run_program({runtime, "rm", "-f", name}, kToolPatience);  // Mostly there is none.
    return run_program(argv, patience);
  };
  const Result<std::string> started = co_await self->setup.blocking_pool->run(
      "starting a container", patience + kToolPatience, run);
  self->begun = true;
  Result<void> watched;
  if (started && self->asked) {
    watched = Error{Code::kCancelled, "the engine is being ended"};
  } else if (started) {
    log::info("engine started", {{"model", self->setup.model}, {"container", self->name}});
    watched = self->watch();
  } else {
    watched = started.error();
  }
  if (!watched) {
    co_await clean_up(self, "it was not started");
  }
  co_return watched;
}

Result<void> ContainerBody::State::record() {
  if (setup.record_directory.empty()) {
    return {};
  }
  Result<RecordFile> written = RecordFile::write(
      setup.record_directory,
      {.model = setup.model, .owner = name_process(::getpid()), .mark = name, .runtime = runtime});
  if (!written) {
    return written.error();
  }
  file = std::move(*written);
  return {};
}

/// Its output, and its end, are told by two more processes of the tool.
Result<void> ContainerBody::State::watch() {
  Result<Descriptor> into = output.open();
  if (!into) {
    return into.error();
  }
  auto reader = ChildProcess::spawn(
      executor, {.argv = {runtime, "logs", "-f", name}}, *into, [](const std::string&) {});
  if (!reader) {
    return reader.error();
  }
  logs = std::move(*reader);
  const Descriptor nowhere(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  const auto on_exit = [weak = weak_from_this()](const std::string& how) {
    if (const std::shared_ptr<State> self = weak.lock()) {
      self->exited(how);
    }
  };
  auto watcher = ChildProcess::spawn(executor, {.argv = {runtime, "wait", name}}, nowhere, on_exit);
  if (!watcher) {
    return watcher.error();
  }
  waiter = std::move(*watcher);
  return {};
}

/// The container does not run any more (or the tool that waits for it has failed, which leaves us
/// no better off).
void ContainerBody::State::exited(const std::string&) {
  if (asked) {
    return;
  }
  const auto finished = [self = shared_from_this()](std::exception_ptr failure) {
    HEDDLE_CHECK(failure == nullptr);
    if (!self->asked && self->setup.on_exit) {
      self->setup.on_exit(*self->ended);
    }
  };
  asio::co_spawn(executor, clean_up(shared_from_this(), "the container has ended"), finished);
}

asio::awaitable<void> ContainerBody::State::clean_up(std::shared_ptr<State> self, std::string how) {
  const auto remove = [set = self->set] {
    set->kill();
    return Result<void>();
  };
  const Result<void> removed =
      co_await self->setup.blocking_pool->run("removing a container", kToolPatience * 2, remove);
  if (!removed) {
    log::error("container cannot be removed",
               {{"container", self->name}, {"error", removed.error().message}});
  }
  self->waiter.reset();
  self->logs.reset();
  self->file = RecordFile();
  self->ended = std::move(how);
}

asio::awaitable<void> ContainerBody::State::end(std::shared_ptr<State> self, Duration polite) {
  self->asked = true;
  if (!self->begun || self->ended) {
    co_return;
  }
  if (polite > Duration{}) {
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(polite).count();
    std::vector<std::string> stop = self->setup.config.stop_command;
    if (stop.empty()) {
      stop = {self->runtime, "stop", "-t", std::to_string(seconds), self->name};
    }
    const auto run = [stop, polite] { return run_program(stop, polite + kToolPatience); };
    const Result<std::string> stopped = co_await self->setup.blocking_pool->run(
        "stopping a container", polite + kToolPatience * 2, run);
    if (!stopped) {
      log::warning("container does not stop, and is removed",
                   {{"container", self->name}, {"error", stopped.error().message}});
    }
  }
  co_await clean_up(self, "the container was stopped");
}

void ContainerBody::State::abandon() {
  asked = true;
  if (begun && !ended) {
    set->kill();
  }
  waiter.reset();
  logs.reset();
  file = RecordFile();
}

}  // namespace

std::shared_ptr<ProcessSet> make_container_set(std::string runtime, std::string container) {
  return std::make_shared<ContainerSet>(std::move(runtime), std::move(container));
}

std::unique_ptr<EngineBody> make_container_body(const asio::any_io_executor& executor,
                                                BodySetup setup) {
  return std::make_unique<ContainerBody>(executor, std::move(setup));
}

}  // namespace heddle::external
