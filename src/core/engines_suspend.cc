#include <algorithm>
#include <utility>

#include "base/check.h"
#include "core/engines_core.h"
#include "core/engines_core_impl.h"

namespace heddle::core {
namespace {

/// Pages that come free where it keeps `held`. What it holds wavers, as it shares memory with
/// other processes: one that holds more than before frees nothing.
std::int64_t freed(const EngineEntry& entry, std::int64_t held) {
  return std::max<std::int64_t>(entry.came_with - held, 0);
}

}  // namespace

void EnginesCore::Impl::on(const EvictFrom& evict) {
  const auto found = engines_.find(evict.model);
  if (found == engines_.end()) {
    act(TellManager{.event = EngineSaid{
                        .device = evict.device, .model = evict.model, .news = EngineNews::kEnded}});
    return;
  }
  EngineEntry& entry = found->second;
  entry.eviction = evict;
  entry.bases.clear();
  if (entry.waiting) {
    entry.waiting.reset();
    say_out(entry);
    return;
  }
  if (entry.borrows()) {
    entry.unwanted = true;  // Answered when the loan is.
    return;
  }
  switch (entry.state) {
    case EngineState::kStopped:
      say_out(entry);
      break;
    case EngineState::kStarting:
    case EngineState::kResuming:
      stop(entry);
      break;
    case EngineState::kRunning:
    case EngineState::kSuspended:
      entry.came_with = entry.reserved;
      suspend_further(entry, after(entry));
      break;
    case EngineState::kSuspending:
    case EngineState::kStopping:
      break;  // Answered when that has ended.
  }
}

/// The first level beyond the one it is suspended by.
std::size_t EnginesCore::Impl::after(const EngineEntry& entry) const {
  if (!entry.level) {
    return 0;
  }
  const auto& levels = entry.config.levels;
  return static_cast<std::size_t>(std::find(levels.begin(), levels.end(), *entry.level) -
                                  levels.begin()) +
         1;
}

/// Whether it is worth trying: not where it is known not to free enough, to lose the engine, to
/// lose requests that have to be kept, or to need more host memory than there is. What sleep saves
/// of an engine is known only once it was measured; a checkpoint saves all that it holds.
bool EnginesCore::Impl::suits(const EngineEntry& entry, spec::SuspendLevel level) const {
  const SuspendCost& cost = entry.cost(level);
  const bool known = cost.times > 0;
  if (entry.eviction->mode == EvictMode::kFrozen && !spec::keeps_requests(level)) {
    return false;
  }
  if (level == spec::SuspendLevel::kStop) {
    return true;
  }
  const bool frees = freed(entry, known ? cost.held_pages : 0) >= entry.eviction->free_pages;
  const bool standing = level != spec::SuspendLevel::kFreeze || entry.eviction->free_pages == 0;
  const auto devices = static_cast<std::int64_t>(1 + entry.config.further.size());
  const std::int64_t expected = level == spec::SuspendLevel::kCheckpoint ? devices * entry.held : 0;
  const std::int64_t saved = known ? cost.host_pages : expected;
  const bool room = saved == 0 || saved <= host_pages_for(entry);
  // One that sleeps has to be awake for a moment to sleep deeper, with all its memory.
  const bool awake = level != spec::SuspendLevel::kDeepSleep ||
                     entry.level != spec::SuspendLevel::kSleep ||
                     entry.reserved >= pages_wanted(entry);
  return frees && standing && room && awake &&
         entry.lost_by.at(static_cast<std::size_t>(level)) < kResumeFailuresMost;
}

/// Host memory that what is saved of it may have: what it has there now is evicted for that.
std::int64_t EnginesCore::Impl::host_pages_for(const EngineEntry& entry) const {
  const std::int64_t own =
      entry.host_lease ? ledger_.find(*entry.host_lease)->shares.at(ledger::kHostPool).reserved : 0;
  return ledger_.usage(ledger::kHostPool).free + own;
}

/// Suspends it by the cheapest level that suits, of those from `from` on.
void EnginesCore::Impl::suspend_further(EngineEntry& entry, std::size_t from) {
  const auto& levels = entry.config.levels;
  const auto next =
      std::find_if(levels.begin() + static_cast<std::ptrdiff_t>(std::min(from, levels.size())),
                   levels.end(),
                   [&](spec::SuspendLevel level) { return suits(entry, level); });
  if (next == levels.end()) {
    not_evicted(entry);
    return;
  }
  if (*next == spec::SuspendLevel::kStop) {
    stop(entry);
    return;
  }
  enter(entry, EngineState::kSuspending);
  act(SuspendEngine{.model = entry.config.model, .life = entry.life, .level = *next});
}

/// No level that keeps its requests frees enough. One that was just stopped in its tracks goes on;
/// one that has given memory up already stays as it is.
void EnginesCore::Impl::not_evicted(EngineEntry& entry) {
  entry.trouble = "no way of suspending it keeps its requests and frees " +
                  std::to_string(entry.eviction->free_pages) + " pages";
  if (entry.level && entry.reserved < pages_wanted(entry)) {
    enter(entry, EngineState::kSuspended);
    say_out(entry);
    return;
  }
  if (entry.level) {
    enter(entry, EngineState::kResuming);
    act(ResumeEngine{.model = entry.config.model, .life = entry.life});
    return;
  }
  enter(entry, EngineState::kRunning);
  say(entry, EngineNews::kServing);
  tell_kv(entry);
}

void EnginesCore::Impl::on(const EngineSuspended& suspended) {
  EngineEntry* entry = alive(suspended.model, suspended.life);
  if (entry == nullptr || entry->state != EngineState::kSuspending) {
    return;
  }
  SuspendCost& cost = entry->cost(suspended.level);
  const auto& levels = entry->config.levels;
  const auto next = static_cast<std::size_t>(
                        std::find(levels.begin(), levels.end(), suspended.level) - levels.begin()) +
                    1;
  if (suspended.error) {
    ++cost.failures;
    entry->trouble = std::string(name(suspended.level)) + ": " + suspended.error->message;
    suspend_further(*entry, next);
    return;
  }
  ++cost.times;
  cost.out = follow(cost.out, now_ - entry->since, cost.times);
  const std::int64_t held = entry->on_each(suspended.held_pages);
  cost.held_pages = held;
  cost.host_pages = suspended.host_pages;
  entry->level = suspended.level;
  set_held(*entry, held);
  if (freed(*entry, held) < entry->eviction->free_pages) {
    entry->trouble = std::string(name(suspended.level)) + " left it " + std::to_string(held) +
                     " of " + std::to_string(entry->came_with) + " pages where " +
                     std::to_string(entry->eviction->free_pages) + " were to come free";
  } else if (!keep_on_host(*entry, suspended.host_pages)) {
    entry->trouble = std::string(name(suspended.level)) + " saved " +
                     std::to_string(suspended.host_pages) + " pages to the host, where " +
                     std::to_string(host_pages_for(*entry)) + " were free";
  } else {
    settle(*entry, held);
    return;
  }
  ++cost.insufficient;
  suspend_further(*entry, next);
}

/// It stands by and holds so much of each device.
void EnginesCore::Impl::settle(EngineEntry& entry, std::int64_t held) {
  enter(entry, EngineState::kSuspended);
  entry.kv = {};  // What is left of it is part of what it holds.
  entry.kv_said.reset();
  give_back(entry, std::min(entry.reserved, held));
  say_out(entry);
}

void EnginesCore::Impl::stop(EngineEntry& entry) {
  enter(entry, EngineState::kStopping);
  act(StopEngine{.model = entry.config.model, .life = entry.life});
}

void EnginesCore::Impl::on(const EngineExited& exited) {
  EngineEntry* entry = alive(exited.model, exited.life);
  if (entry == nullptr || entry->state == EngineState::kStopped) {
    return;
  }
  const EngineState was = entry->state;
  if (was == EngineState::kStarting) {
    return;  // EngineStarted says so, and why.
  }
  const bool wanted_back = was == EngineState::kStopping && !entry->eviction;
  if (was == EngineState::kStopping && !wanted_back) {
    SuspendCost& cost = entry->cost(spec::SuspendLevel::kStop);
    ++cost.times;
    cost.out = follow(cost.out, now_ - entry->since, cost.times);
    gone(*entry);
    say_out(*entry);
    return;
  }
  if (was != EngineState::kStopping) {
    ++entry->deaths;
    entry->trouble = "it ended by itself: " + exited.how;
  }
  gone(*entry);
  say(*entry, EngineNews::kLost, {Code::kUnavailable, entry->trouble});
}

/// Nothing of it is left.
void EnginesCore::Impl::gone(EngineEntry& entry) {
  entry.held = 0;
  entry.kv = {};
  entry.kv_said.reset();
  entry.level.reset();
  if (entry.host_lease) {
    ledger_.release(*std::exchange(entry.host_lease, std::nullopt));
  }
  give_back(entry, 0);
  enter(entry, EngineState::kStopped);
}

}  // namespace heddle::core
