#include "external/external_engine.h"

#include <algorithm>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "external/engine_body.h"
#include "external/health.h"
#include "external/probe.h"
#include "external/reclaim.h"
#include "external/sleep_call.h"

namespace heddle::external {

namespace asio = boost::asio;
using spec::SuspendLevel;
using namespace std::chrono_literals;

namespace {

/// How long processes may take to stand still, or to go on.
constexpr Duration kFreezePatience = 5s;
/// How long a device may take to end what was begun on it.
constexpr Duration kLockPatience = 10s;
/// For what moves or walks an engine's whole memory.
constexpr Duration kMemoryPatience = 2min;
constexpr Duration kMeasurePatience = 30s;
constexpr std::size_t kLastLines = 5;
constexpr int kLooksForDeath = 20;
constexpr Duration kLookForDeath = 10ms;

}  // namespace

class ExternalEngine::Impl : public std::enable_shared_from_this<ExternalEngine::Impl> {
 public:
  Impl(const asio::any_io_executor& executor,
       std::string model,
       config::EngineConfig config,
       bool on_accelerator,
       EngineTools tools,
       std::function<void(const std::string&)> on_died)
      : model_(std::move(model)),
        config_(std::move(config)),
        on_accelerator_(on_accelerator),
        tools_(std::move(tools)),
        address_(config_.upstream),
        probe_(address_, config_.kind, config_.served_name.empty() ? model_ : config_.served_name) {
    body_ = make_body(executor,
                      {.model = model_,
                       .config = config_,
                       .grouping = tools_.grouping,
                       .record_directory = tools_.record_directory,
                       .blocking_pool = tools_.blocking_pool,
                       .on_exit = std::move(on_died)});
  }

  /// Operations, each as a coroutine that keeps this alive.
  static asio::awaitable<Result<Holding>> start(std::shared_ptr<Impl> self);
  static asio::awaitable<Result<Holding>> suspend(std::shared_ptr<Impl> self, SuspendLevel level);
  static asio::awaitable<Result<Holding>> resume(std::shared_ptr<Impl> self);
  static asio::awaitable<std::string> stop(std::shared_ptr<Impl> self);
  static asio::awaitable<Result<std::uint64_t>> measure(std::shared_ptr<Impl> self);
  static asio::awaitable<std::optional<Activity>> look(std::shared_ptr<Impl> self);
  static asio::awaitable<bool> answers(std::shared_ptr<Impl> self, Duration patience);

  void kill() {
    if (const auto set = body_ ? body_->processes() : nullptr) {
      set->kill();
    }
  }

  /// Ends it at once.
  void abandon() {
    over_ = true;
    body_.reset();
  }

  [[nodiscard]] std::vector<pid_t> processes() const {
    const auto set = body_ ? body_->processes() : nullptr;
    return set ? set->members() : std::vector<pid_t>();
  }

 private:
  /// Since when nobody has looked whether it answers as it did, and what that may have done to it.
  enum class Since : std::uint8_t { kStart, kMemoryMoved, kMemoryStayed };

  asio::awaitable<Result<void>> start_up(PhaseTimer& timer);
  asio::awaitable<Result<void>> go_down(SuspendLevel level, PhaseTimer& timer);
  asio::awaitable<Result<void>> fall_asleep(SuspendLevel level, PhaseTimer& timer);
  asio::awaitable<Result<void>> wake(Instant deadline, PhaseTimer& timer);
  asio::awaitable<Result<void>> reclaim(PhaseTimer& timer);
  asio::awaitable<Result<void>> save(PhaseTimer& timer);
  asio::awaitable<Result<void>> come_back(PhaseTimer& timer, Instant deadline, Since since);
  asio::awaitable<Result<void>> freeze(PhaseTimer& timer);
  asio::awaitable<Result<void>> thaw(PhaseTimer& timer);
  asio::awaitable<Result<void>> restore(PhaseTimer& timer);
  asio::awaitable<Result<void>> verify(Instant deadline, Since since);
  asio::awaitable<Result<Holding>> hold(const PhaseTimer& timer, bool changed);
  asio::awaitable<Result<std::uint64_t>> weigh(bool device) const;

  [[nodiscard]] Sleeper sleeper() const {
    return {address_, config_.kind, config_.served_name.empty() ? model_ : config_.served_name};
  }
  /// Why nothing more can be done with it, if that is so.
  [[nodiscard]] std::optional<Error> over() const;
  [[nodiscard]] std::function<std::optional<Error>()> over_check() {
    return [self = shared_from_this()] { return self->over(); };
  }
  [[nodiscard]] Result<std::shared_ptr<ProcessSet>> own_processes(const char* what) const;

  std::string model_;
  config::EngineConfig config_;
  bool on_accelerator_;
  EngineTools tools_;
  HttpAddress address_;
  Probe probe_;
  std::unique_ptr<EngineBody> body_{};
  bool over_ = false;  ///< It is being ended, or was.

  // What it is suspended by.
  std::optional<SuspendLevel> asleep_{};
  bool frozen_ = false;
  bool reclaimed_ = false;
  std::vector<pid_t> saved_{};
  std::uint64_t held_ = 0;  ///< Measured last.
  /// What its processes had of host memory when it ran last, while it is suspended to there.
  std::optional<std::uint64_t> ran_with_{};
  std::uint64_t host_ = 0;
};

std::optional<Error> ExternalEngine::Impl::over() const {
  if (over_ || !body_) {
    return Error{Code::kCancelled, "the engine is being ended"};
  }
  const std::optional<std::string> how = body_->ended();
  if (!how) {
    return std::nullopt;
  }
  std::string text = "the engine has ended (" + *how + ")";
  const std::vector<std::string> lines = body_->last_lines();
  const std::size_t skipped = lines.size() > kLastLines ? lines.size() - kLastLines : 0;
  for (std::size_t i = skipped; i < lines.size(); ++i) {
    text += (i == skipped ? "; its last lines: " : " | ") + lines[i];
  }
  return Error{Code::kUnavailable, text};
}

Result<std::shared_ptr<ProcessSet>> ExternalEngine::Impl::own_processes(const char* what) const {
  if (const std::optional<Error> end = over()) {
    return *end;
  }
  std::shared_ptr<ProcessSet> set = body_->processes();
  if (set == nullptr) {
    return Error{
        Code::kFailedPrecondition,
        std::string(what) + ": somebody else runs this engine; its processes are not ours"};
  }
  return set;
}

// ---- Coming ----

asio::awaitable<Result<Holding>> ExternalEngine::Impl::start(std::shared_ptr<Impl> self) {
  PhaseTimer timer;
  const Result<void> started = co_await self->start_up(timer);
  if (started && self->on_accelerator_) {
    const Result<std::uint64_t> held = co_await self->weigh(true);
    self->on_accelerator_ = held && *held > 0;  // Otherwise it is a matter of host memory.
  }
  if (started) {
    co_return co_await self->hold(timer, true);
  }
  if (self->body_ && !self->over_) {
    const Duration at_once{};
    co_await self->body_->end(at_once);
  }
  co_return started.error();
}

asio::awaitable<Result<void>> ExternalEngine::Impl::start_up(PhaseTimer& timer) {
  const Instant deadline = steady_now() + config_.start_timeout;
  const Result<void> begun = co_await body_->begin(config_.start_timeout);
  if (!begun) {
    co_return begun.error();
  }
  timer.note("begin");
  const Result<void> ready =
      co_await await_healthy(address_, config_.health_path, deadline - steady_now(), over_check());
  if (!ready) {
    co_return ready.error();
  }
  timer.note("ready");
  if (const Result<void> told = tools_.kv ? tools_.kv->begin() : Result<void>(); !told) {
    co_return told.error();
  }
  const Result<void> right = co_await verify(deadline, Since::kStart);
  timer.note("probe");
  co_return right;
}

asio::awaitable<Result<void>> ExternalEngine::Impl::verify(Instant deadline, Since since) {
  Result<void> right;
  const bool by_health =
      since != Since::kStart && probe_.expectation() == Probe::Expectation::kNothing;
  if (!config_.probe || by_health) {
    right = co_await await_healthy(
        address_, config_.health_path, deadline - steady_now(), over_check());
  } else if (since == Since::kStart) {
    right = co_await probe_.learn(deadline - steady_now());
  } else if (since == Since::kMemoryStayed) {
    right = co_await probe_.again_briefly(deadline - steady_now());
  } else {
    right = co_await probe_.again(deadline - steady_now());
  }
  if (!right && right.error().code == Code::kUnavailable) {
    // A connection breaks before its engine is known to have ended.
    asio::steady_timer timer(co_await asio::this_coro::executor);
    for (int looks = 0; looks < kLooksForDeath && !over(); ++looks) {
      timer.expires_after(kLookForDeath);
      co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
    }
  }
  if (!right) {
    const std::optional<Error> end = over();
    co_return end.value_or(right.error());
  }
  co_return right;
}

asio::awaitable<Result<Holding>> ExternalEngine::Impl::resume(std::shared_ptr<Impl> self) {
  PhaseTimer timer;
  // Weights are read as at a start.
  const Duration patience =
      self->asleep_ == SuspendLevel::kDeepSleep
          ? std::max(self->config_.start_timeout, self->config_.resume_timeout)
          : self->config_.resume_timeout;
  const Instant deadline = steady_now() + patience;
  const bool changed = self->asleep_ || self->reclaimed_ || !self->saved_.empty();
  const Since since = changed ? Since::kMemoryMoved : Since::kMemoryStayed;
  const Result<void> back = co_await self->come_back(timer, deadline, since);
  if (!back) {
    const std::optional<Error> end = self->over();
    co_return end.value_or(back.error());
  }
  self->host_ = 0;
  self->ran_with_.reset();
  self->reclaimed_ = false;
  co_return co_await self->hold(timer, changed);
}

asio::awaitable<Result<void>> ExternalEngine::Impl::come_back(PhaseTimer& timer,
                                                              Instant deadline,
                                                              Since since) {
  Result<void> done;
  if (frozen_) {
    done = co_await thaw(timer);
  }
  if (done && !saved_.empty()) {
    done = co_await restore(timer);
  }
  if (done && asleep_) {
    done = co_await wake(deadline, timer);
  }
  if (done) {
    timer.skip();
    done = co_await verify(deadline, since);
    timer.note("probe");
  }
  co_return done;
}

// ---- Going ----

asio::awaitable<Result<Holding>> ExternalEngine::Impl::suspend(std::shared_ptr<Impl> self,
                                                               SuspendLevel level) {
  PhaseTimer timer;
  const bool changes = level != SuspendLevel::kFreeze;
  const bool goes_to_host = changes && self->on_accelerator_;
  if (goes_to_host && !self->ran_with_) {
    const Result<std::uint64_t> host = co_await self->weigh(false);
    self->ran_with_ = host ? *host : 0;
    timer.skip();
  }
  const Result<void> down = co_await self->go_down(level, timer);
  if (!down) {
    const std::optional<Error> end = self->over();
    co_return end.value_or(down.error());
  }
  if (goes_to_host) {
    // What it has there more than when it ran.
    const Result<std::uint64_t> host = co_await self->weigh(false);
    self->host_ = host && *host > *self->ran_with_ ? *host - *self->ran_with_ : 0;
  }
  co_return co_await self->hold(timer, changes);
}

asio::awaitable<Result<void>> ExternalEngine::Impl::go_down(SuspendLevel level, PhaseTimer& timer) {
  const bool was_frozen = frozen_;
  Result<void> done;
  switch (level) {
    case SuspendLevel::kFreeze:
      done = co_await freeze(timer);
      break;
    case SuspendLevel::kSleep:
    case SuspendLevel::kDeepSleep:
      done = co_await fall_asleep(level, timer);
      break;
    case SuspendLevel::kReclaim:
      done = co_await reclaim(timer);
      break;
    case SuspendLevel::kCheckpoint:
      done = co_await save(timer);
      break;
    case SuspendLevel::kStop:
      HEDDLE_CHECK(false);  // That is stop().
  }
  if (!done && frozen_ != was_frozen && !over()) {
    // As it was before.
    PhaseTimer ignored;
    Result<void> undone;
    if (was_frozen) {
      undone = co_await freeze(ignored);
    } else {
      undone = co_await thaw(ignored);
    }
    if (!undone) {
      co_return undone.error();
    }
  }
  co_return done;
}

asio::awaitable<Result<void>> ExternalEngine::Impl::fall_asleep(SuspendLevel level,
                                                                PhaseTimer& timer) {
  const auto calls = sleep_calls(config_.kind, level, sleeper().model);
  if (!calls) {
    co_return calls.error();
  }
  if (frozen_) {
    const Result<void> thawed = co_await thaw(timer);
    if (!thawed) {
      co_return thawed.error();
    }
  }
  if (asleep_) {
    const Result<void> woke = co_await wake(steady_now() + config_.resume_timeout, timer);
    if (!woke) {
      co_return woke.error();
    }
  }
  const Result<void> slept = co_await put_to_sleep(sleeper(), level, config_.resume_timeout, timer);
  if (slept) {
    asleep_ = level;
  }
  co_return slept;
}

asio::awaitable<Result<void>> ExternalEngine::Impl::reclaim(PhaseTimer& timer) {
  if (!frozen_) {
    const Result<void> frozen = co_await freeze(timer);
    if (!frozen) {
      co_return frozen.error();
    }
  }
  const auto set = own_processes("reclaim");
  if (!set) {
    co_return set.error();
  }
  const auto give_back = [set = *set] { return give_back_file_pages(set->members()); };
  const Result<std::uint64_t> given =
      co_await tools_.blocking_pool->run("giving back pages", kMemoryPatience, give_back);
  timer.note("reclaim");
  if (!given) {
    co_return given.error();
  }
  reclaimed_ = true;
  co_return Result<void>();
}

asio::awaitable<Result<void>> ExternalEngine::Impl::save(PhaseTimer& timer) {
  if (tools_.checkpoint == nullptr) {
    co_return Error{Code::kFailedPrecondition, "checkpoint: not here: " + tools_.no_checkpoint};
  }
  const auto set = own_processes("checkpoint");
  if (!set) {
    co_return set.error();
  }
  if (frozen_) {
    const Result<void> thawed = co_await thaw(timer);  // The driver works in a thread of its own.
    if (!thawed) {
      co_return thawed.error();
    }
  }
  const auto work = [set = *set, checkpoint = tools_.checkpoint] {
    return save_all(*checkpoint, set->members(), kLockPatience);
  };
  Result<Saved> saved = co_await tools_.blocking_pool->run("checkpoint", kMemoryPatience, work);
  if (!saved) {
    co_return saved.error();
  }
  saved_ = std::move(saved->pids);
  timer.add(saved->phases);
  const Result<void> frozen = co_await freeze(timer);
  if (!frozen) {
    PhaseTimer ignored;
    const Result<void> restored = co_await restore(ignored);
    if (!restored) {
      co_return restored.error();
    }
  }
  co_return frozen;
}

// ---- Steps of both ----

/// Wakes it from its sleep. What is left of one that fails is not known; it is not called again.
asio::awaitable<Result<void>> ExternalEngine::Impl::wake(Instant deadline, PhaseTimer& timer) {
  const SuspendLevel level = std::exchange(asleep_, std::nullopt).value();
  return wake_up(sleeper(), level, deadline - steady_now(), timer);
}

asio::awaitable<Result<void>> ExternalEngine::Impl::freeze(PhaseTimer& timer) {
  const auto set = own_processes("freeze");
  if (!set) {
    co_return set.error();
  }
  timer.skip();
  const auto work = [set = *set] { return set->freeze(kFreezePatience); };
  const Result<void> done = co_await tools_.blocking_pool->run("freeze", kFreezePatience * 2, work);
  frozen_ = done.has_value();
  timer.note("freeze");
  co_return done;
}

asio::awaitable<Result<void>> ExternalEngine::Impl::thaw(PhaseTimer& timer) {
  const auto set = own_processes("thaw");
  if (!set) {
    co_return set.error();
  }
  timer.skip();
  const auto work = [set = *set] { return set->thaw(kFreezePatience); };
  const Result<void> done = co_await tools_.blocking_pool->run("thaw", kFreezePatience * 2, work);
  frozen_ = !done.has_value();
  timer.note("thaw");
  co_return done;
}

asio::awaitable<Result<void>> ExternalEngine::Impl::restore(PhaseTimer& timer) {
  const auto work = [pids = std::exchange(saved_, {}), checkpoint = tools_.checkpoint] {
    return restore_all(*checkpoint, pids);
  };
  const Result<std::vector<Phase>> restored =
      co_await tools_.blocking_pool->run("restore", kMemoryPatience, work);
  if (!restored) {
    co_return restored.error();
  }
  timer.add(*restored);
  co_return Result<void>();
}

// ---- Its memory ----

asio::awaitable<Result<std::uint64_t>> ExternalEngine::Impl::weigh(bool device) const {
  const std::shared_ptr<ProcessSet> set = body_ ? body_->processes() : nullptr;
  if (set == nullptr) {
    co_return std::uint64_t{0};
  }
  const auto work = [set, meter = device && on_accelerator_ ? tools_.meter : nullptr] {
    const std::vector<pid_t> pids = set->members();
    return meter ? meter->device_bytes(pids) : Result<std::uint64_t>(host_bytes(pids).total);
  };
  co_return co_await tools_.blocking_pool->run("measuring memory", kMeasurePatience, work);
}

asio::awaitable<std::optional<Activity>> ExternalEngine::Impl::look(std::shared_ptr<Impl> self) {
  const std::shared_ptr<ProcessSet> set = self->body_ ? self->body_->processes() : nullptr;
  if (set == nullptr) {
    co_return std::nullopt;
  }
  const auto work = [set] { return Result<Activity>(activity_of(set->members())); };
  const Result<Activity> all =
      co_await self->tools_.blocking_pool->run("looking at processes", kMeasurePatience, work);
  co_return all ? std::optional(*all) : std::nullopt;
}

asio::awaitable<bool> ExternalEngine::Impl::answers(std::shared_ptr<Impl> self, Duration patience) {
  const bool any = co_await gives_answer(self->address_, self->config_.health_path, patience);
  co_return any;
}

asio::awaitable<Result<std::uint64_t>> ExternalEngine::Impl::measure(std::shared_ptr<Impl> self) {
  const Result<std::uint64_t> held = co_await self->weigh(true);
  self->held_ = held ? *held : self->held_;
  co_return held;
}

/// What it holds, measured anew where that may have changed: freezing changes nothing, and walking
/// its memory takes longer. Where it cannot be measured it counts as holding what it did.
asio::awaitable<Result<Holding>> ExternalEngine::Impl::hold(const PhaseTimer& timer, bool changed) {
  if (changed) {
    const Result<std::uint64_t> held = co_await measure(shared_from_this());
    if (!held) {
      log::warning("what an engine holds cannot be measured",
                   {{"model", model_}, {"error", held.error().message}});
    }
  }
  if (const std::optional<Error> end = over()) {
    co_return *end;
  }
  Holding holding;
  holding.device_bytes = held_;
  holding.host_bytes = host_;
  holding.phases = timer.phases();
  co_return holding;
}

// ---- Its end ----

asio::awaitable<std::string> ExternalEngine::Impl::stop(std::shared_ptr<Impl> self) {
  if (!self->body_) {
    co_return "it was ended";
  }
  self->over_ = true;
  Duration polite = self->config_.stop_timeout;
  if (self->frozen_) {
    // What has no device any more cannot end in peace; the rest can, when it may run.
    if (!self->saved_.empty()) {
      polite = Duration{};
    }
    const auto work = [set = self->body_->processes()] { return set->thaw(kFreezePatience); };
    const Result<void> thawed =
        co_await self->tools_.blocking_pool->run("thaw", kFreezePatience * 2, work);
    self->frozen_ = false;
    polite = thawed ? polite : Duration{};
  }
  if (self->body_) {
    co_await self->body_->end(polite);
  }
  co_return self->body_ ? self->body_->ended().value_or("it was ended") : "it was ended";
}

ExternalEngine::ExternalEngine(const asio::any_io_executor& executor,
                               std::string model,
                               config::EngineConfig config,
                               bool on_accelerator,
                               EngineTools tools,
                               std::function<void(const std::string& how)> on_died)
    : impl_(std::make_shared<Impl>(executor,
                                   std::move(model),
                                   std::move(config),
                                   on_accelerator,
                                   std::move(tools),
                                   std::move(on_died))) {}
ExternalEngine::~ExternalEngine() {
  impl_->abandon();
}
asio::awaitable<Result<Holding>> ExternalEngine::start() {
  return Impl::start(impl_);
}
asio::awaitable<Result<Holding>> ExternalEngine::suspend(SuspendLevel level) {
  return Impl::suspend(impl_, level);
}
asio::awaitable<Result<Holding>> ExternalEngine::resume() {
  return Impl::resume(impl_);
}
asio::awaitable<std::string> ExternalEngine::stop() {
  return Impl::stop(impl_);
}
asio::awaitable<Result<std::uint64_t>> ExternalEngine::measure() {
  return Impl::measure(impl_);
}
asio::awaitable<std::optional<Activity>> ExternalEngine::look() {
  return Impl::look(impl_);
}
asio::awaitable<bool> ExternalEngine::answers(Duration patience) {
  return Impl::answers(impl_, patience);
}
void ExternalEngine::kill() {
  impl_->kill();
}
std::vector<pid_t> ExternalEngine::processes() const {
  return impl_->processes();
}

}  // namespace heddle::external
