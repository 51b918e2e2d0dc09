#include "external/engine_host.h"

#include <algorithm>
#include <exception>
#include <map>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "core/hearing.h"
#include "external/event.h"
#include "external/record.h"
#include "policy/engine_watchdog.h"

namespace heddle::external {

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t kBlockingThreads = 4;
constexpr Duration kLeftoverPatience = 10s;
constexpr Duration kLookAgain = 2ms;
/// Between looks whether an engine gets on.
constexpr Duration kWatchPeriod = 1s;
static_assert(kWatchPeriod < policy::EngineWatchdog::kPeriodMost);
/// Walking large memories takes long: at most a hundredth of the time goes by with it.
constexpr int kRestPerLook = 100;

std::int64_t milliseconds(Duration duration) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
}

/// "freeze 0.4 ms, probe 12.0 ms"
std::string in_words(const std::vector<Phase>& phases) {
  std::string text;
  for (const Phase& phase : phases) {
    constexpr int kMicrosPerTenth = 100;
    const auto tenths =
        std::chrono::duration_cast<std::chrono::microseconds>(phase.took).count() / kMicrosPerTenth;
    text += (text.empty() ? "" : ", ") + phase.name + " " + std::to_string(tenths / 10) + "." +
            std::to_string(tenths % 10) + " ms";
  }
  return text;
}

std::int64_t pages_of(std::uint64_t bytes, std::size_t page_bytes) {
  return static_cast<std::int64_t>((bytes + page_bytes - 1) / page_bytes);
}

}  // namespace

class EngineHost::Impl : public std::enable_shared_from_this<EngineHost::Impl> {
 public:
  Impl(const asio::any_io_executor& executor, EngineHostSetup setup, Handlers handlers)
      : executor_(executor),
        setup_(std::move(setup)),
        handlers_(std::move(handlers)),
        blocking_pool_(std::make_shared<BlockingPool>(kBlockingThreads)),
        sampling_(executor),
        ending_(executor) {}

  void prepare();
  void set_engines(core::ConfigureEngines configure, std::vector<ConfiguredEngine> engines);
  void hear(core::EnginesEvent event);
  void close();

  [[nodiscard]] bool hosts(ModelId model) const { return engines_.contains(model); }
  [[nodiscard]] const core::EnginesCore& core() const { return core_; }
  [[nodiscard]] std::vector<core::EngineStatus> engines() const {
    std::vector<core::EngineStatus> all = core_.engines();
    for (core::EngineStatus& status : all) {
      status.hung = engines_.at(status.model).hung;
    }
    return all;
  }
  [[nodiscard]] std::vector<std::string> troubles() const {
    std::vector<std::string> all;
    for (const auto& [model, entry] : engines_) {
      if (!entry.trouble.empty()) {
        all.push_back("the engine of " + entry.hosted.name + " may hang: " + entry.trouble);
      }
    }
    return all;
  }
  [[nodiscard]] std::optional<HttpAddress> address(ModelId model) const {
    const auto found = engines_.find(model);
    return found == engines_.end() ? std::nullopt
                                   : std::optional(found->second.hosted.config.upstream);
  }
  [[nodiscard]] std::optional<Passage> last_passage(ModelId model) const {
    const auto found = engines_.find(model);
    return found == engines_.end() ? std::nullopt : found->second.passage;
  }
  [[nodiscard]] std::vector<pid_t> processes(ModelId model) const {
    const auto found = engines_.find(model);
    return found == engines_.end() || !found->second.engine ? std::vector<pid_t>()
                                                            : found->second.engine->processes();
  }

 private:
  struct Entry {
    ConfiguredEngine hosted{};
    core::EngineLife life{};
    std::unique_ptr<ExternalEngine> engine{};
    bool busy = false;                  ///< An operation other than stop() is under way.
    bool stopping = false;              ///< stop() is.
    std::optional<std::string> died{};  ///< By itself, and not said yet.
    std::optional<Passage> passage{};
    std::string trouble{};   ///< Why it may hang; empty: it does not.
    std::uint64_t hung = 0;  ///< Times that it was ended for that.
  };

  void execute(const core::Borrow& command) {
    tell([command](const Handlers& handlers) { handlers.on_borrow(command); });
  }
  void execute(const core::Repay& command) {
    tell([command](const Handlers& handlers) { handlers.on_repay(command); });
  }
  void execute(const core::TellManager& command) {
    tell([event = command.event](const Handlers& handlers) { handlers.on_event(event); });
  }
  void execute(const core::StartEngine& command);
  void execute(const core::SuspendEngine& command);
  void execute(const core::ResumeEngine& command);
  void execute(const core::StopEngine& command);

  asio::awaitable<void> start(ModelId model, core::EngineLife life);
  asio::awaitable<void> suspend(ModelId model, core::EngineLife life, spec::SuspendLevel level);
  asio::awaitable<void> resume(ModelId model, core::EngineLife life);
  asio::awaitable<void> stop(ModelId model, core::EngineLife life);
  asio::awaitable<void> sample();
  asio::awaitable<void> watch(ModelId model, core::EngineLife life);
  /// The entry while this life of it lasts.
  [[nodiscard]] Entry* living(ModelId model, core::EngineLife life);
  [[nodiscard]] bool is_to_run(const Entry& entry) const;
  static void judge(Entry& entry, const policy::Verdict& verdict);

  /// Runs it on the loop; it keeps this alive.
  void spawn(asio::awaitable<void> work) {
    asio::co_spawn(executor_, std::move(work), [self = shared_from_this()](std::exception_ptr e) {
      HEDDLE_CHECK(e == nullptr);
    });
  }
  /// In the order in which it was told, and never from within a call of whoever listens.
  template <class What>
  void tell(What what) {
    asio::post(executor_, [self = shared_from_this(), what = std::move(what)] {
      if (!self->closed_) {
        what(self->handlers_);
      }
    });
  }
  void note(Entry& entry, std::string what, Instant began, const Result<Holding>& holding);
  void died(ModelId model, core::EngineLife life, const std::string& how);
  void say_died(ModelId model);
  void forget_gone();
  [[nodiscard]] std::int64_t pages(std::uint64_t bytes) const {
    return pages_of(bytes, setup_.page_bytes);
  }

  asio::any_io_executor executor_;
  EngineHostSetup setup_;
  Handlers handlers_;
  EngineTools tools_{};
  std::shared_ptr<BlockingPool> blocking_pool_;
  core::EnginesCore core_{};
  std::map<ModelId, Entry> engines_{};  ///< Removed ones too, until nothing of them is left.
  core::Hearing<core::EnginesCore, core::EnginesEvent, core::EnginesCommand> hearing_{};
  bool closed_ = false;
  asio::steady_timer sampling_;
  Event ending_;
};

void EngineHost::Impl::prepare() {
  if (!setup_.record_directory.empty()) {
    if (const auto ended = end_leftovers(setup_.record_directory, kLeftoverPatience); !ended) {
      log::error("an engine of an earlier run is still there", {{"error", ended.error().message}});
    }
  }
  tools_.blocking_pool = blocking_pool_;
  tools_.grouping = setup_.grouping.value_or(best_grouping());
  tools_.record_directory = setup_.record_directory;
  std::string meter = "host memory only";
  if (Result<std::unique_ptr<DeviceMeter>> opened = open_nvml()) {
    tools_.meter = std::move(*opened);
    meter = "NVML";
  }
  if (Result<std::unique_ptr<DeviceCheckpoint>> opened = open_cuda_checkpoint()) {
    tools_.checkpoint = std::move(*opened);
  } else {
    tools_.no_checkpoint = opened.error().message;
  }
  log::info(
      "engines can be handled",
      {{"freeze", name(tools_.grouping)},
       {"measure", meter},
       {"checkpoint", tools_.checkpoint ? std::string("CUDA") : "no: " + tools_.no_checkpoint}});
  spawn(sample());
}

void EngineHost::Impl::set_engines(core::ConfigureEngines configure,
                                   std::vector<ConfiguredEngine> engines) {
  for (ConfiguredEngine& engine : engines) {
    const ModelId model = engine.model;
    engines_[model].hosted = std::move(engine);
  }
  hear(std::move(configure));
}

/// Lets the core hear `event`, and all that follows from it.
void EngineHost::Impl::hear(core::EnginesEvent event) {
  const bool heard = hearing_.hear(
      core_,
      std::move(event),
      steady_now,
      [this](Instant at, const auto& what, const auto& commands) {
        if (handlers_.on_step) {
          handlers_.on_step(at, what, commands);
        }
      },
      [this](const auto& command) { execute(command); });
  if (heard) {
    forget_gone();
  }
}

/// Engines that are not configured any more, as soon as the core has forgotten them.
void EngineHost::Impl::forget_gone() {
  const std::vector<core::EngineStatus> known = core_.engines();
  std::erase_if(engines_, [&](const auto& entry) {
    const bool there = std::any_of(known.begin(), known.end(), [&](const auto& status) {
      return status.model == entry.first;
    });
    return !there && !entry.second.engine;
  });
}

void EngineHost::Impl::close() {
  closed_ = true;
  sampling_.cancel();
  ending_.notify();
  for (auto& [model, entry] : engines_) {
    entry.engine.reset();
  }
  blocking_pool_->finish();
}

void EngineHost::Impl::note(Entry& entry,
                            std::string what,
                            Instant began,
                            const Result<Holding>& holding) {
  const Duration took = steady_now() - began;
  if (!holding && entry.stopping) {
    return;  // It had to be given up.
  }
  if (!holding) {
    log::warning("engine: " + what + " failed",
                 {{"model", entry.hosted.name},
                  {"ms", milliseconds(took)},
                  {"error", holding.error().message}});
    return;
  }
  log::info("engine: " + what,
            {{"model", entry.hosted.name},
             {"ms", milliseconds(took)},
             {"holds_mib", holding->device_bytes >> 20U},
             {"phases", in_words(holding->phases)}});
  entry.passage = Passage{.what = std::move(what), .phases = holding->phases, .took = took};
}

// ---- Commands ----

void EngineHost::Impl::execute(const core::StartEngine& command) {
  spawn(start(command.model, command.life));
}
void EngineHost::Impl::execute(const core::SuspendEngine& command) {
  spawn(suspend(command.model, command.life, command.level));
}
void EngineHost::Impl::execute(const core::ResumeEngine& command) {
  spawn(resume(command.model, command.life));
}
void EngineHost::Impl::execute(const core::StopEngine& command) {
  spawn(stop(command.model, command.life));
}

asio::awaitable<void> EngineHost::Impl::start(ModelId model, core::EngineLife life) {
  Entry& entry = engines_.at(model);  // Not forgotten before its life has ended.
  HEDDLE_CHECK(!entry.engine);
  const auto on_died = [this, model, life](const std::string& how) { died(model, life, how); };
  entry.life = life;
  entry.died.reset();
  entry.trouble.clear();
  entry.busy = true;
  entry.engine =
      std::make_unique<ExternalEngine>(executor_,
                                       entry.hosted.name,
                                       entry.hosted.config,
                                       entry.hosted.accelerator && tools_.meter != nullptr,
                                       tools_,
                                       on_died);
  const Instant began = steady_now();
  const Result<Holding> started = co_await entry.engine->start();
  if (closed_) {
    co_return;
  }
  entry.busy = false;
  note(entry, "start", began, started);
  core::EngineStarted said;
  said.model = model;
  said.life = life;
  if (started) {
    said.held_pages = pages(started->device_bytes);
    spawn(watch(model, life));
  } else {
    said.error = started.error();
    if (!entry.stopping) {
      entry.engine.reset();
      entry.died.reset();
    }
  }
  hear(said);
  say_died(model);
}

asio::awaitable<void> EngineHost::Impl::suspend(ModelId model,
                                                core::EngineLife life,
                                                spec::SuspendLevel level) {
  Entry& entry = engines_.at(model);
  core::EngineSuspended said;
  said.model = model;
  said.life = life;
  said.level = level;
  entry.busy = true;
  const Instant began = steady_now();
  Result<Holding> down = Error{Code::kUnavailable, "the engine has ended"};
  if (entry.engine) {
    down = co_await entry.engine->suspend(level);
  }
  if (closed_) {
    co_return;
  }
  entry.busy = false;
  note(entry, "suspend by " + std::string(spec::name(level)), began, down);
  if (down) {
    said.held_pages = pages(down->device_bytes);
    said.host_pages = pages(down->host_bytes);
  } else {
    said.error = down.error();
  }
  hear(said);
  say_died(model);
}

asio::awaitable<void> EngineHost::Impl::resume(ModelId model, core::EngineLife life) {
  Entry& entry = engines_.at(model);
  core::EngineResumed said;
  said.model = model;
  said.life = life;
  entry.busy = true;
  const Instant began = steady_now();
  Result<Holding> back = Error{Code::kUnavailable, "the engine has ended"};
  if (entry.engine) {
    back = co_await entry.engine->resume();
  }
  if (closed_) {
    co_return;
  }
  entry.busy = false;
  note(entry, "resume", began, back);
  if (back) {
    said.held_pages = pages(back->device_bytes);
  } else {
    said.error = back.error();
  }
  hear(said);
  say_died(model);
}

asio::awaitable<void> EngineHost::Impl::stop(ModelId model, core::EngineLife life) {
  Entry& entry = engines_.at(model);
  std::string how = entry.died.value_or("it had ended");
  entry.stopping = true;
  const Instant began = steady_now();
  if (entry.engine) {
    how = co_await entry.engine->stop();
  }
  // What was under way ends with an error now that the engine has: before its next life.
  asio::steady_timer timer(executor_);
  while (!closed_ && entry.busy) {
    timer.expires_after(kLookAgain);
    co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
  }
  if (closed_) {
    co_return;
  }
  log::info(
      "engine is ended",
      {{"model", entry.hosted.name}, {"how", how}, {"ms", milliseconds(steady_now() - began)}});
  entry.stopping = false;
  entry.died.reset();
  entry.trouble.clear();
  entry.engine.reset();
  hear(core::EngineExited{.model = model, .life = life, .how = how});
}

/// By itself.
void EngineHost::Impl::died(ModelId model, core::EngineLife life, const std::string& how) {
  Entry& entry = engines_.at(model);
  if (closed_ || entry.life != life) {
    return;
  }
  log::warning("engine has ended by itself", {{"model", entry.hosted.name}, {"how", how}});
  const std::string trouble = std::exchange(entry.trouble, {});
  entry.died = trouble.empty() ? how : how + ", as it hung: " + trouble;
  say_died(model);
}

/// As soon as what was under way has ended.
void EngineHost::Impl::say_died(ModelId model) {
  const auto found = engines_.find(model);
  if (found == engines_.end() || found->second.busy || found->second.stopping ||
      !found->second.died) {
    return;
  }
  Entry& entry = found->second;
  const std::string how = *std::exchange(entry.died, std::nullopt);
  // Not now: the engine's own code may be on the stack below.
  std::shared_ptr<ExternalEngine> gone = std::move(entry.engine);
  asio::post(executor_, [gone] {});
  hear(core::EngineExited{.model = model, .life = entry.life, .how = how});
}

// ---- Sampling ----

/// Looks now and then at what running engines hold.
asio::awaitable<void> EngineHost::Impl::sample() {
  for (Duration took{}; !closed_;) {
    sampling_.expires_after(std::max(setup_.sample_interval, took * kRestPerLook));
    co_await sampling_.async_wait(asio::as_tuple(asio::use_awaitable));
    const Instant began = steady_now();
    for (const core::EngineStatus& status : core_.engines()) {
      const auto found = engines_.find(status.model);
      if (closed_ || found == engines_.end() || found->second.busy || found->second.stopping ||
          !found->second.engine || status.state != core::EngineState::kRunning) {
        continue;
      }
      const core::EngineLife life = found->second.life;
      const Result<std::uint64_t> held = co_await found->second.engine->measure();
      if (!closed_ && held) {
        hear(core::EngineMeasured{.model = status.model, .life = life, .held_pages = pages(*held)});
      }
    }
    took = steady_now() - began;
  }
}

// ---- Watching ----

EngineHost::Impl::Entry* EngineHost::Impl::living(ModelId model, core::EngineLife life) {
  const auto found = engines_.find(model);
  const bool lives = !closed_ && found != engines_.end() && found->second.life == life &&
                     found->second.engine != nullptr;
  return lives ? &found->second : nullptr;
}

bool EngineHost::Impl::is_to_run(const Entry& entry) const {
  const std::vector<core::EngineStatus> all = core_.engines();
  const auto found = std::ranges::find(all, entry.hosted.model, &core::EngineStatus::model);
  return found != all.end() && found->state == core::EngineState::kRunning && !entry.busy &&
         !entry.stopping;
}

void EngineHost::Impl::judge(Entry& entry, const policy::Verdict& verdict) {
  if (verdict.health == policy::Health::kFine) {
    if (!std::exchange(entry.trouble, {}).empty()) {
      log::info("engine goes on", {{"model", entry.hosted.name}});
    }
    return;
  }
  if (entry.trouble.empty()) {
    log::warning("engine may hang", {{"model", entry.hosted.name}, {"why", verdict.why}});
  }
  entry.trouble = verdict.why;
  if (verdict.health == policy::Health::kHung) {
    log::warning("engine hangs and is ended", {{"model", entry.hosted.name}, {"why", verdict.why}});
    ++entry.hung;
    entry.engine->kill();
  }
}

/// Looks again and again whether this life of an engine still does what it is there for.
asio::awaitable<void> EngineHost::Impl::watch(ModelId model, core::EngineLife life) {
  policy::EngineWatchdog dog(steady_now());
  for (;;) {
    co_await ending_.wait(kWatchPeriod);
    Entry* entry = living(model, life);
    if (entry == nullptr) {
      co_return;
    }
    const bool was_to_run = is_to_run(*entry);
    const std::optional<Activity> activity = co_await entry->engine->look();
    entry = living(model, life);
    if (entry == nullptr) {
      co_return;
    }
    if (!activity || !was_to_run || !is_to_run(*entry)) {
      dog.excuse(steady_now());
      entry->trouble.clear();
      continue;
    }
    policy::EngineSigns signs;
    signs.stopped = activity->stopped;
    signs.ran = activity->ran;
    signs.silent_since = handlers_.silent_since ? handlers_.silent_since(model) : std::nullopt;
    const policy::Verdict verdict = dog.look(steady_now(), signs);
    judge(*entry, verdict);
    if (verdict.health == policy::Health::kHung) {
      co_return;  // Its end is heard of.
    }
    if (dog.wants_probe()) {
      const bool answered = co_await entry->engine->answers(policy::EngineWatchdog::kProbePatience);
      dog.probed(answered);
    }
  }
}

EngineHost::EngineHost(const asio::any_io_executor& executor,
                       EngineHostSetup setup,
                       Handlers handlers)
    : impl_(std::make_shared<Impl>(executor, std::move(setup), std::move(handlers))) {
  impl_->prepare();
}
EngineHost::~EngineHost() {
  impl_->close();
}
void EngineHost::set_engines(core::ConfigureEngines configure,
                             std::vector<ConfiguredEngine> engines) {
  impl_->set_engines(std::move(configure), std::move(engines));
}
void EngineHost::carry_out(const core::LoadOn& order) {
  impl_->hear(order);
}
void EngineHost::carry_out(const core::EvictFrom& order) {
  impl_->hear(order);
}
void EngineHost::grant(ModelId model) {
  impl_->hear(core::LoanGranted{.model = model});
}
void EngineHost::repaid(ModelId model) {
  impl_->hear(core::LoanRepaid{.model = model});
}
void EngineHost::refuse(ModelId model, Error reason) {
  impl_->hear(core::LoanRefused{.model = model, .reason = std::move(reason)});
}
bool EngineHost::hosts(ModelId model) const {
  return impl_->hosts(model);
}
std::vector<core::EngineStatus> EngineHost::engines() const {
  return impl_->engines();
}
std::vector<std::string> EngineHost::troubles() const {
  return impl_->troubles();
}
std::optional<ledger::PoolUsage> EngineHost::usage(DeviceId device) const {
  return impl_->core().usage(device);
}
std::optional<HttpAddress> EngineHost::address(ModelId model) const {
  return impl_->address(model);
}
std::optional<Passage> EngineHost::last_passage(ModelId model) const {
  return impl_->last_passage(model);
}
std::vector<pid_t> EngineHost::processes(ModelId model) const {
  return impl_->processes(model);
}

}  // namespace heddle::external
