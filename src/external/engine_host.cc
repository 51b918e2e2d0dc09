#include "external/engine_host.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "external/engine_host_impl.h"
#include "external/kv_limit.h"
#include "external/record.h"

namespace heddle::external {

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace {

constexpr Duration kLeftoverPatience = 10s;
constexpr Duration kLookAgain = 2ms;

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

}  // namespace

void EngineHost::Impl::prepare() {
  if (!setup_.record_directory.empty()) {
    if (const auto ended = end_leftovers(setup_.record_directory, kLeftoverPatience); !ended) {
      log::error("an engine of an earlier run is still there", {{"error", ended.error().message}});
    }
  }
  if (const std::int64_t left = remove_left_segments(setup_.kv_directory); left > 0) {
    log::info("KV segments of an earlier run are removed", {{"segments", left}});
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
    entry.kv.reset();
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
  EngineTools tools = tools_;
  config::EngineConfig config = entry.hosted.config;
  tools.kv = KvControl::of(config, entry.hosted.name, setup_.kv_directory);
  entry.kv = tools.kv;
  entry.engine =
      std::make_unique<ExternalEngine>(executor_,
                                       entry.hosted.name,
                                       std::move(config),
                                       entry.hosted.accelerator && tools_.meter != nullptr,
                                       std::move(tools),
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
    if (entry.kv != nullptr) {
      spawn(watch_kv(model, life));
    }
  } else {
    said.error = started.error();
    if (!entry.stopping) {
      entry.engine.reset();
      entry.kv.reset();
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
  entry.kv.reset();
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
  entry.kv.reset();
  asio::post(executor_, [gone] {});
  hear(core::EngineExited{.model = model, .life = entry.life, .how = how});
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
void EngineHost::carry_out(const core::LimitKv& order) {
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
