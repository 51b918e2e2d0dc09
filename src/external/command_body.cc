#include "external/command_body.h"

#include <atomic>
#include <thread>
#include <utility>

#include <boost/asio/co_spawn.hpp>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "external/child_process.h"
#include "external/event.h"
#include "external/output.h"
#include "external/patience.h"
#include "external/proc.h"
#include "external/record.h"
#include "external/run_program.h"

#include <signal.h>
#include <unistd.h>

namespace heddle::external {

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace {

/// How long SIGKILL may take before we say that it does.
constexpr Duration kKillPatience = 10s;
constexpr Duration kLastWords = 200ms;
constexpr std::string_view kPidMacro = "${PID}";

/// Never the same twice on one machine.
std::string new_mark(const std::string& model) {
  static std::atomic<std::uint64_t> count{0};
  return "heddle-" + safe_label(model) + "-" + std::to_string(::getpid()) + "-" +
         std::to_string(++count);
}

/// Ends all of a set; false where some of it is still there after `patience`.
Result<void> kill_all(ProcessSet& set, Duration patience) {
  const auto gone = [&set] {
    set.kill();
    return set.members().empty();
  };
  if (!wait_until(gone, patience)) {
    return Error{Code::kDeadlineExceeded, "SIGKILL has not ended all of its processes"};
  }
  return {};
}

class CommandBody final : public EngineBody {
 public:
  CommandBody(const asio::any_io_executor& executor, BodySetup setup)
      : state_(std::make_shared<State>(executor, std::move(setup))) {}
  ~CommandBody() override { state_->abandon(); }
  CommandBody(const CommandBody&) = delete;
  CommandBody& operator=(const CommandBody&) = delete;

  asio::awaitable<Result<void>> begin(Duration) override { co_return state_->begin(); }
  asio::awaitable<void> end(Duration polite) override { return State::end(state_, polite); }
  [[nodiscard]] std::shared_ptr<ProcessSet> processes() const override { return state_->own.set; }
  [[nodiscard]] std::optional<std::string> ended() const override { return state_->ended; }
  [[nodiscard]] std::vector<std::string> last_lines() const override {
    if (state_->ended) {
      state_->output.wait(kLastWords);  // Nobody can write any more: it is a matter of reading.
    }
    return state_->output.last_lines();
  }

 private:
  struct State : std::enable_shared_from_this<State> {
    State(const asio::any_io_executor& loop, BodySetup how)
        : executor(loop), setup(std::move(how)), output(setup.model), changed(loop) {}

    Result<void> begin();
    Result<void> try_to_begin();
    Result<void> record(const std::string& mark);
    void leader_exited(const std::string& how);
    static asio::awaitable<void> clean_up(std::shared_ptr<State> self, std::string how);
    static asio::awaitable<void> end(std::shared_ptr<State> self, Duration polite);
    static asio::awaitable<void> ask_to_end(std::shared_ptr<State> self, Duration polite);
    void abandon();

    asio::any_io_executor executor;
    BodySetup setup;
    OwnSet own{};
    Output output;
    std::unique_ptr<ChildProcess> leader{};
    RecordFile file{};
    Event changed;  ///< `ended` was set.
    std::optional<std::string> ended{};
    bool asked = false;  ///< end() was called.
    bool abandoned = false;
  };

  std::shared_ptr<State> state_;
};

/// Written before there is a process, so that none is ever without.
Result<void> CommandBody::State::record(const std::string& mark) {
  if (setup.record_directory.empty()) {
    return {};
  }
  Record what{.model = setup.model,
              .owner = name_process(::getpid()),
              .mark = mark,
              .cgroup = own.directory};
  if (leader) {
    what.leader = name_process(leader->pid());
    return file.rewrite(what);
  }
  Result<RecordFile> written = RecordFile::write(setup.record_directory, what);
  if (!written) {
    return written.error();
  }
  file = std::move(*written);
  return {};
}

Result<void> CommandBody::State::begin() {
  Result<void> begun = try_to_begin();
  if (!begun) {
    leader.reset();
    own = OwnSet();
    file = RecordFile();
    ended = "it was not started";
  }
  return begun;
}

Result<void> CommandBody::State::try_to_begin() {
  const std::string mark = new_mark(setup.model);
  Result<OwnSet> made = make_process_set(setup.grouping, mark, mark);
  if (!made) {
    return made.error();
  }
  own = std::move(*made);
  if (const Result<void> written = record(mark); !written) {
    return written;
  }
  Result<Descriptor> into = output.open();
  if (!into) {
    return into.error();
  }
  Command command{.argv = setup.config.command,
                  .env = setup.config.env,
                  .directory = setup.config.directory,
                  .join_file = own.join_file};
  command.env.emplace_back(kMarkVariable, mark);
  const auto on_exit = [weak = weak_from_this()](const std::string& how) {
    if (const std::shared_ptr<State> self = weak.lock()) {
      self->leader_exited(how);
    }
  };
  auto child = ChildProcess::spawn(executor, command, *into, on_exit);
  if (!child) {
    return child.error();
  }
  leader = std::move(*child);
  log::info("engine started",
            {{"model", setup.model}, {"pid", leader->pid()}, {"program", command.argv[0]}});
  return record(mark);
}

void CommandBody::State::leader_exited(const std::string& how) {
  const auto finished = [self = shared_from_this()](std::exception_ptr failure) {
    HEDDLE_CHECK(failure == nullptr);
    if (!self->asked && !self->abandoned && self->setup.on_exit) {
      self->setup.on_exit(*self->ended);
    }
  };
  asio::co_spawn(executor, clean_up(shared_from_this(), how), finished);
}

/// The first process has ended; what it started goes too.
asio::awaitable<void> CommandBody::State::clean_up(std::shared_ptr<State> self, std::string how) {
  for (bool gone = false; !gone && !self->abandoned;) {
    const auto kill = [set = self->own.set] { return kill_all(*set, kKillPatience); };
    const Result<void> killed =
        co_await self->setup.blocking_pool->run("ending an engine", kKillPatience * 2, kill);
    gone = killed.has_value();
    if (!gone) {
      log::error("engine does not end",
                 {{"model", self->setup.model}, {"error", killed.error().message}});
    }
  }
  self->leader.reset();
  self->file = RecordFile();
  self->ended = std::move(how);
  self->changed.notify();
}

asio::awaitable<void> CommandBody::State::ask_to_end(std::shared_ptr<State> self, Duration polite) {
  std::vector<std::string> stop = self->setup.config.stop_command;
  if (stop.empty()) {
    self->leader->signal(SIGTERM);
    co_return;
  }
  for (std::string& word : stop) {
    const std::size_t at = word.find(kPidMacro);
    if (at != std::string::npos) {
      word.replace(at, kPidMacro.size(), std::to_string(self->leader->pid()));
    }
  }
  const auto run = [stop, polite] { return run_program(stop, polite); };
  const Result<std::string> done =
      co_await self->setup.blocking_pool->run("stop_command", polite, run);
  if (!done) {
    log::warning("stop_command failed; the engine is killed",
                 {{"model", self->setup.model}, {"error", done.error().message}});
    if (self->leader) {
      self->leader->signal(SIGKILL);
    }
  }
}

asio::awaitable<void> CommandBody::State::end(std::shared_ptr<State> self, Duration polite) {
  self->asked = true;
  if (self->own.set == nullptr) {
    co_return;  // It never began.
  }
  const Instant deadline = steady_now() + polite;
  if (self->leader && polite > Duration{}) {
    co_await ask_to_end(self, polite);
    while (!self->ended && steady_now() < deadline) {
      co_await self->changed.wait(deadline - steady_now());
    }
    if (!self->ended) {
      log::warning("engine does not end when it is asked to, and is killed",
                   {{"model", self->setup.model}});
    }
  }
  if (!self->ended) {
    self->own.set->kill();
    if (self->leader) {
      self->leader->signal(SIGKILL);
    }
  }
  while (!self->ended && !self->abandoned) {
    co_await self->changed.wait(kKillPatience);
  }
}

void CommandBody::State::abandon() {
  abandoned = true;
  if (own.set != nullptr && !ended) {
    if (const Result<void> killed = kill_all(*own.set, kKillPatience); !killed) {
      log::error("engine does not end",
                 {{"model", setup.model}, {"error", killed.error().message}});
    }
    leader.reset();
    file = RecordFile();
  }
  changed.notify();
}

}  // namespace

std::unique_ptr<EngineBody> make_command_body(const asio::any_io_executor& executor,
                                              BodySetup setup) {
  return std::make_unique<CommandBody>(executor, std::move(setup));
}

}  // namespace heddle::external
