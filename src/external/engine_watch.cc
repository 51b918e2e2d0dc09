#include <algorithm>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/clock.h"
#include "base/log.h"
#include "external/engine_host_impl.h"

namespace heddle::external {

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace {

/// Between looks whether an engine gets on.
constexpr Duration kWatchPeriod = 1s;
static_assert(kWatchPeriod < policy::EngineWatchdog::kPeriodMost);
/// Walking large memories takes long: at most a hundredth of the time goes by with it.
constexpr int kRestPerLook = 100;
/// Between looks at the KV of an elastic engine, as often as kvcached looks at its limit.
constexpr Duration kKvPeriod = 100ms;
/// What has not changed is said again after that: some of what follows from it takes time.
constexpr Duration kKvAgain = 500ms;

}  // namespace

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

// ---- KV of elastic engines ----

asio::awaitable<void> EngineHost::Impl::watch_kv(ModelId model, core::EngineLife life) {
  core::KvSeen last;
  Instant said_at{};
  for (;;) {
    co_await ending_.wait(kKvPeriod);
    Entry* entry = living(model, life);
    if (entry == nullptr || entry->kv == nullptr) {
      co_return;
    }
    if (!is_to_run(*entry)) {
      said_at = Instant{};
      continue;
    }
    const Result<KvUse> use = entry->kv->look(steady_now());
    if (!use && use.error().code == Code::kUnavailable) {
      continue;  // The engine has it locked just now.
    }
    core::KvSeen seen;
    seen.model = model;
    seen.life = life;
    seen.busy = handlers_.silent_since && handlers_.silent_since(model).has_value();
    if (use) {
      seen.used_pages = pages(use->mapped());
    } else {
      seen.error = use.error();
    }
    const bool other_error = seen.error.has_value() != last.error.has_value() ||
                             (seen.error && seen.error->message != last.error->message);
    const bool news = seen.used_pages != last.used_pages || seen.busy != last.busy || other_error;
    if (news || steady_now() - said_at >= kKvAgain) {
      said_at = steady_now();
      last = seen;
      hear(seen);
    }
  }
}

asio::awaitable<void> EngineHost::Impl::nudge(ModelId model, core::EngineLife life) {
  const Entry* entry = living(model, life);
  if (entry != nullptr && entry->kv != nullptr) {
    const std::shared_ptr<KvControl> kv = entry->kv;
    co_await kv->nudge();
  }
}

void EngineHost::Impl::execute(const core::SetKvLimit& command) {
  const Entry* entry = living(command.model, command.life);
  if (entry != nullptr && entry->kv != nullptr) {
    entry->kv->limit(static_cast<std::uint64_t>(command.pages) * setup_.page_bytes);
  }
}

void EngineHost::Impl::execute(const core::NudgeEngine& command) {
  spawn(nudge(command.model, command.life));
}

}  // namespace heddle::external
