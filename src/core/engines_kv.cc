#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "core/engines_core.h"
#include "core/engines_core_impl.h"

namespace heddle::core {
namespace {

using namespace std::chrono_literals;

/// Within that kvcached has noticed a new limit: it looks each 100 ms, and what began to allocate
/// before has ended. From then on it applies the limit before it takes another page.
constexpr Duration kNoticed = 300ms;
/// An idle engine that has more than it was told is nudged so often, after such times; then it
/// counts as one that does not unmap.
constexpr Duration kNudgeAfter = 1s;
constexpr int kNudgesMost = 3;
/// How long an engine that is to come waits for others to unmap KV.
constexpr Duration kAwaitKv = 20s;

}  // namespace

/// It begins to run, with what was reserved for it beyond what it needs without KV.
void EnginesCore::Impl::begin_kv(EngineEntry& entry) {
  entry.kv = {};
  entry.kv_said.reset();
  entry.kv.least = entry.config.kv_least;
  if (entry.elastic()) {
    const std::int64_t fixed = pages_wanted(entry) - entry.kv.least;
    entry.kv.granted = entry.kv.wanted = std::max(entry.kv.least, entry.reserved - fixed);
    tell_limit(entry, entry.kv.granted);
  }
}

void EnginesCore::Impl::tell_limit(EngineEntry& entry, std::int64_t pages) {
  KvHolding& kv = entry.kv;
  if (pages < kv.told) {
    kv.told_at = now_;
  }
  kv.told = pages;
  act(SetKvLimit{.model = entry.config.model, .life = entry.life, .pages = pages});
}

void EnginesCore::Impl::on(const LimitKv& limit) {
  const auto found = engines_.find(limit.model);
  if (found == engines_.end() || found->second.state != EngineState::kRunning ||
      !found->second.elastic()) {
    return;  // It has gone meanwhile; the manager hears of that.
  }
  EngineEntry& entry = found->second;
  entry.kv.wanted = std::max(limit.pages, entry.kv.least);
  follow_limit(entry, limit.basis);
  tell_kv(entry);
}

/// Brings what it was told nearer to what is wanted.
void EnginesCore::Impl::follow_limit(EngineEntry& entry, const Basis& basis) {
  KvHolding& kv = entry.kv;
  if (kv.deaf) {
    return;
  }
  if (kv.wanted > kv.granted) {
    const std::int64_t missing = kv.wanted - kv.granted;
    if (counted(entry)) {
      const auto awaited = [&](const auto& other) {
        return other.second.waiting && other.second.is_on(entry.config.device);
      };
      const bool others_first = std::any_of(engines_.begin(), engines_.end(), awaited);
      const std::int64_t free = ledger_.usage(ledger::device_pool(entry.config.device)).free;
      grow_kv(entry, others_first ? 0 : std::min(missing, free));
    } else if (entry.kv_asking == 0 && entry.repaying == 0 && basis.epoch != WorkerEpoch{}) {
      entry.kv_asking = missing;
      act(Borrow{.device = entry.config.device,
                 .model = entry.config.model,
                 .basis = basis,
                 .pages = missing});
    }
  }
  const std::int64_t may = std::min(kv.wanted, kv.granted);
  if (may != kv.told) {
    tell_limit(entry, may);
  }
}

/// Pages that are free become its own, of a device that is counted here.
void EnginesCore::Impl::grow_kv(EngineEntry& entry, std::int64_t pages) {
  if (pages > 0) {
    HEDDLE_CHECK(reserve(entry, pages));
    entry.kv.granted += pages;
  }
}

void EnginesCore::Impl::kv_loan(EngineEntry& entry, bool granted) {
  const std::int64_t pages = std::exchange(entry.kv_asking, 0);
  if (entry.state != EngineState::kRunning) {
    const bool at_rest =
        entry.state == EngineState::kStopped || entry.state == EngineState::kSuspended;
    entry.reserved += granted ? pages : 0;
    if (granted && at_rest) {
      give_back(entry, entry.reserved - pages);
    } else if (granted) {
      entry.kv.granted += pages;  // Goes with the rest when it is out.
    }
    return;
  }
  if (granted) {
    entry.reserved += pages;
    entry.kv.granted += pages;
    follow_limit(entry, {});
  } else {
    entry.kv.wanted = entry.kv.granted;
  }
  tell_kv(entry);
}

void EnginesCore::Impl::on(const KvSeen& seen) {
  EngineEntry* entry = alive(seen.model, seen.life);
  if (entry == nullptr || entry->state != EngineState::kRunning || !entry->elastic()) {
    return;
  }
  KvHolding& kv = entry->kv;
  kv.busy = seen.busy;
  if (seen.error) {
    kv.deaf = true;
    entry->trouble = seen.error->message + "; its KV keeps the limit that it has";
    tell_kv(*entry);
    return;
  }
  kv.used = seen.used_pages;
  own_excess(*entry);
  if (kv.deaf && kv.used <= kv.told) {
    kv.deaf = false;
    entry->trouble.clear();
    tell_limit(*entry, kv.told);  // It may have missed that.
  }
  take_back_kv(*entry);
  nudge(*entry);
  if (counted(*entry)) {
    follow_limit(*entry, {});
  }
  tell_kv(*entry);
}

/// What it has mapped beyond what is its own is not others', as far as there is so much.
void EnginesCore::Impl::own_excess(EngineEntry& entry) {
  KvHolding& kv = entry.kv;
  const std::int64_t over = kv.used - kv.granted;
  if (over <= 0) {
    return;
  }
  if (counted(entry)) {
    grow_kv(entry, std::min(over, ledger_.usage(ledger::device_pool(entry.config.device)).free));
  }
  entry.trouble = "its KV has " + std::to_string(kv.used) + " pages where it was allowed " +
                  std::to_string(kv.told);
}

/// Pages are free once it has had the time to notice its limit and says that it has no more.
void EnginesCore::Impl::take_back_kv(EngineEntry& entry) {
  KvHolding& kv = entry.kv;
  if (kv.told >= kv.granted || kv.used > kv.told || now_ - kv.told_at < kNoticed) {
    return;
  }
  const std::int64_t pages = std::exchange(kv.granted, kv.told) - kv.told;
  give_back(entry, entry.reserved - pages);
}

/// kvcached unmaps when it allocates; an idle engine does not.
void EnginesCore::Impl::nudge(EngineEntry& entry) {
  KvHolding& kv = entry.kv;
  if (kv.used <= kv.told || kv.busy || kv.deaf) {
    kv.over_since.reset();
    kv.nudges = 0;
    return;
  }
  kv.over_since = kv.over_since.value_or(now_);
  const Instant last = kv.nudges == 0 ? *kv.over_since : kv.nudged_at;
  if (now_ - last < kNudgeAfter) {
    return;
  }
  if (kv.nudges == kNudgesMost) {
    kv.deaf = true;
    entry.trouble = "it does not unmap: its KV has " + std::to_string(kv.used) +
                    " pages and was told " + std::to_string(kv.told);
    return;
  }
  ++kv.nudges;
  kv.nudged_at = now_;
  act(NudgeEngine{.model = entry.config.model, .life = entry.life});
}

/// On a device whose pages are counted here a load waits until KV is unmapped for it, so that no
/// more than what every engine keeps is in its way. A worker lends what is free.
std::int64_t EnginesCore::Impl::firm_pages(const EngineEntry& entry) const {
  if (entry.state != EngineState::kRunning) {
    return entry.reserved;
  }
  const KvHolding& kv = entry.kv;
  if (!entry.elastic()) {
    return std::max(entry.held, entry.reserved);
  }
  const bool yields = counted(entry) && !kv.deaf;
  return entry.fixed() + (yields ? kv.least : std::max(kv.granted, kv.used));
}

void EnginesCore::Impl::tell_kv(EngineEntry& entry) {
  if (!entry.elastic() || entry.state != EngineState::kRunning || entry.repaying > 0) {
    return;
  }
  const KvHolding& kv = entry.kv;
  const EngineKv said{.device = entry.config.device,
                      .model = entry.config.model,
                      .firm_pages = firm_pages(entry),
                      .fixed_pages = entry.fixed(),
                      .least_pages = kv.least,
                      .limit_pages = kv.granted,
                      .wanted_pages = kv.wanted,
                      .used_pages = kv.used,
                      .deaf = kv.deaf};
  if (entry.kv_said != said) {
    entry.kv_said = said;
    act(TellManager{.event = said});
  }
}

/// Whether on each of its devices other engines have so much KV that they can be told to give up.
bool EnginesCore::Impl::kv_could_free(const EngineEntry& entry, std::int64_t missing) const {
  const std::vector<DeviceId> devices = entry.config.devices();
  return std::all_of(devices.begin(), devices.end(), [&](DeviceId device) {
    std::int64_t free = ledger_.usage(ledger::device_pool(device)).free;
    for (const auto& [model, other] : engines_) {
      if (other.config.device == device && !other.kv.deaf) {
        free += std::max<std::int64_t>(other.kv.granted - other.kv.least, 0);
      }
    }
    return free >= missing;
  });
}

/// Those that came while others had their memory for KV, in the order of their ids.
void EnginesCore::Impl::bring_in_waiting() {
  for (auto& [model, entry] : engines_) {
    if (!entry.waiting) {
      continue;
    }
    const std::int64_t missing = pages_wanted(entry) - entry.reserved;
    if (missing <= 0 || reserve(entry, missing)) {
      entry.waiting.reset();
      bring_in(entry);
    } else if (now_ - entry.waiting_since >= kAwaitKv || !kv_could_free(entry, missing)) {
      entry.waiting.reset();
      say(entry,
          EngineNews::kRefused,
          {Code::kResourceExhausted,
           std::to_string(missing) + " pages are wanted, and other engines did not unmap so much "
                                     "of their KV"});
    }
  }
}

}  // namespace heddle::core
