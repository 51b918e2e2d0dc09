#include "core/engines_core.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "core/engines_core_impl.h"

namespace heddle::core {
namespace {

/// Devices without a worker have one life.
constexpr WorkerEpoch kOnlyEpoch{1};

}  // namespace

void EnginesCore::Impl::step(Instant now,
                             const EnginesEvent& event,
                             std::vector<EnginesCommand>& commands) {
  HEDDLE_CHECK(now >= now_);
  now_ = now;
  commands_ = &commands;
  std::visit([this](const auto& concrete) { on(concrete); }, event);
  bring_in_waiting();
  forget_removed();
  commands_ = nullptr;
}

void EnginesCore::Impl::on(const ConfigureEngines& configure) {
  if (!configured_) {
    configured_ = true;
    ledger_.add_pool(ledger::kHostPool, configure.host_pages);
    for (const EngineDevice& device : configure.devices) {
      devices_[device.id] = device;
      ledger_.add_pool(ledger::device_pool(device.id), device.pages);
      act(TellManager{.event = WorkerUp{.device = device.id, .epoch = kOnlyEpoch}});
      report(device.id);
    }
  }
  HEDDLE_CHECK(devices_.size() == configure.devices.size());
  for (auto& [model, entry] : engines_) {
    entry.removed = true;
  }
  for (const HostedEngine& engine : configure.engines) {
    HEDDLE_CHECK(!engine.levels.empty() && engine.levels.back() == spec::SuspendLevel::kStop);
    EngineEntry& entry = engines_[engine.model];
    entry.config = engine;
    entry.removed = false;
  }
}

/// One that is not configured any more is forgotten when nothing of it is left; the manager sees to
/// that.
void EnginesCore::Impl::forget_removed() {
  std::erase_if(engines_, [](const auto& entry) {
    return entry.second.removed && entry.second.state == EngineState::kStopped &&
           !entry.second.borrows() && entry.second.kv_asking == 0 && entry.second.repaying == 0 &&
           !entry.second.waiting;
  });
}

// ---- Coming ----

std::int64_t EnginesCore::Impl::pages_wanted(const EngineEntry& entry) {
  const std::int64_t fixed =
      entry.config.pages > 0 ? entry.config.pages : std::max<std::int64_t>(entry.measured, 1);
  return fixed + entry.config.kv_least;
}

void EnginesCore::Impl::on(const LoadOn& load) {
  const auto found = engines_.find(load.model);
  if (found == engines_.end()) {
    act(TellManager{.event =
                        EngineSaid{.device = load.device,
                                   .model = load.model,
                                   .news = EngineNews::kFailed,
                                   .reason = {Code::kNotFound, "the engine is not configured"}}});
    return;
  }
  EngineEntry& entry = found->second;
  if (load.device == entry.config.device) {
    entry.bases.clear();
  }
  entry.bases[load.device] = load.basis;
  if (entry.bases.size() <= entry.config.further.size()) {
    return;  // The orders for its other devices follow.
  }
  if (entry.state == EngineState::kRunning) {
    say(entry, EngineNews::kServing);
    return;
  }
  const bool at_rest =
      entry.state == EngineState::kStopped || entry.state == EngineState::kSuspended;
  if (!at_rest || entry.borrows() || entry.kv_asking > 0) {
    say(entry,
        EngineNews::kRefused,
        {Code::kFailedPrecondition, "the engine is " + std::string(name(entry.state))});
    return;
  }
  entry.waiting.reset();
  const std::int64_t missing = pages_wanted(entry) - entry.reserved;
  if (missing > 0 && !counted(entry)) {
    entry.borrowing = missing;
    entry.lenders = 0;
    entry.unwanted = false;
    borrow_next(entry);
    return;
  }
  if (missing > 0 && !reserve(entry, missing)) {
    if (kv_could_free(entry, missing)) {
      entry.waiting = load;
      entry.waiting_since = now_;
      return;
    }
    say(entry,
        EngineNews::kRefused,
        {Code::kResourceExhausted,
         std::to_string(missing) + " pages are wanted and " + std::to_string(free_pages(entry)) +
             " are free"});
    return;
  }
  bring_in(entry);
}

/// Asks the worker of its next device, in the order of their ids, for what all are to lend.
void EnginesCore::Impl::borrow_next(EngineEntry& entry) {
  const DeviceId device = entry.config.devices().at(entry.lenders);
  act(Borrow{.device = device,
             .model = entry.config.model,
             .basis = entry.bases.at(device),
             .pages = entry.borrowing});
}

/// Those that have lent already have their pages back: it has those of all its devices or none.
void EnginesCore::Impl::stop_borrowing(EngineEntry& entry) {
  const std::int64_t pages = std::exchange(entry.borrowing, 0);
  const std::vector<DeviceId> devices = entry.config.devices();
  for (std::size_t i = 0; i < entry.lenders; ++i) {
    ++entry.repaying;
    act(Repay{.device = devices[i], .model = entry.config.model, .pages = pages});
  }
  entry.lenders = 0;
}

void EnginesCore::Impl::on(const LoanGranted& granted) {
  const auto found = engines_.find(granted.model);
  HEDDLE_CHECK(found != engines_.end());
  EngineEntry& entry = found->second;
  if (entry.kv_asking > 0) {
    kv_loan(entry, true);
    return;
  }
  HEDDLE_CHECK(entry.borrows());
  ++entry.lenders;
  if (entry.unwanted) {
    stop_borrowing(entry);
    say_out(entry);
  } else if (entry.lenders < entry.config.devices().size()) {
    borrow_next(entry);
  } else {
    entry.reserved += std::exchange(entry.borrowing, 0);
    bring_in(entry);
  }
}

void EnginesCore::Impl::on(const LoanRefused& refused) {
  const auto found = engines_.find(refused.model);
  HEDDLE_CHECK(found != engines_.end());
  EngineEntry& entry = found->second;
  if (entry.kv_asking > 0) {
    kv_loan(entry, false);
    return;
  }
  HEDDLE_CHECK(entry.borrows());
  stop_borrowing(entry);
  if (entry.unwanted) {
    say_out(entry);
  } else {
    say(entry, EngineNews::kRefused, refused.reason);
  }
}

/// What the manager hears of an engine is true of its device: others may be loaded at once.
void EnginesCore::Impl::on(const LoanRepaid& repaid) {
  const auto found = engines_.find(repaid.model);
  HEDDLE_CHECK(found != engines_.end() && found->second.repaying > 0);
  EngineEntry& entry = found->second;
  if (--entry.repaying == 0 && entry.untold) {
    act(TellManager{.event = *std::exchange(entry.untold, std::nullopt)});
  }
  tell_kv(entry);
}

/// Its memory is reserved: start it, or bring it back.
void EnginesCore::Impl::bring_in(EngineEntry& entry) {
  entry.eviction.reset();
  if (entry.state == EngineState::kSuspended) {
    enter(entry, EngineState::kResuming);
    act(ResumeEngine{.model = entry.config.model, .life = entry.life});
    return;
  }
  entry.life = EngineLife(++lives_given_);
  ++entry.starts;
  entry.level.reset();
  enter(entry, EngineState::kStarting);
  act(StartEngine{.model = entry.config.model, .life = entry.life});
}

EngineEntry* EnginesCore::Impl::alive(ModelId model, EngineLife life) {
  const auto found = engines_.find(model);
  return found != engines_.end() && found->second.life == life ? &found->second : nullptr;
}

void EnginesCore::Impl::on(const EngineStarted& started) {
  EngineEntry* entry = alive(started.model, started.life);
  if (entry == nullptr || entry->state != EngineState::kStarting) {
    return;  // It was told to stop meanwhile; that is answered by its exit.
  }
  if (started.error) {
    entry->trouble = started.error->message;
    entry->held = 0;
    give_back(*entry, 0);
    enter(*entry, EngineState::kStopped);
    say(*entry, EngineNews::kFailed, *started.error);
    return;
  }
  SuspendCost& cost = entry->cost(spec::SuspendLevel::kStop);
  cost.in = follow(cost.in, now_ - entry->since, entry->starts);
  serve(*entry, entry->on_each(started.held_pages));
}

void EnginesCore::Impl::on(const EngineResumed& resumed) {
  EngineEntry* entry = alive(resumed.model, resumed.life);
  if (entry == nullptr || entry->state != EngineState::kResuming) {
    return;
  }
  const spec::SuspendLevel level = entry->level.value();
  SuspendCost& cost = entry->cost(level);
  std::uint64_t& lost = entry->lost_by.at(static_cast<std::size_t>(level));
  if (resumed.error) {
    ++cost.failures;
    ++lost;
    entry->trouble = "after " + std::string(name(level)) + ": " + resumed.error->message;
    stop(*entry);
    return;
  }
  lost = 0;
  cost.in = follow(cost.in, now_ - entry->since, cost.times);
  if (entry->host_lease) {
    ledger_.release(*std::exchange(entry->host_lease, std::nullopt));
  }
  serve(*entry, entry->on_each(resumed.held_pages));
}

void EnginesCore::Impl::serve(EngineEntry& entry, std::int64_t held) {
  entry.eviction.reset();
  entry.level.reset();
  enter(entry, EngineState::kRunning);
  begin_kv(entry);
  if (entry.elastic()) {
    set_held(entry, held);  // How much of that is KV is not known yet.
  } else {
    note_held(entry, held);
  }
  say(entry, EngineNews::kServing);
  tell_kv(entry);
}

void EnginesCore::Impl::on(const EngineMeasured& measured) {
  EngineEntry* entry = alive(measured.model, measured.life);
  if (entry != nullptr && entry->state == EngineState::kRunning) {
    note_held(*entry, entry->on_each(measured.held_pages));
  }
}

/// What it holds while it runs may be more than was reserved: then as much as there is becomes its
/// own, so that nobody else counts on it. What an elastic engine has mapped for KV is counted as it
/// says, and the rest is fixed.
void EnginesCore::Impl::note_held(EngineEntry& entry, std::int64_t held) {
  const std::int64_t rest = std::max<std::int64_t>(held - entry.kv.used, 0);
  entry.measured = std::max(entry.measured, rest);
  const std::int64_t over = rest - entry.fixed();
  if (over > 0) {
    std::int64_t had = 0;
    if (counted(entry)) {
      had = std::min(over, free_pages(entry));
      HEDDLE_CHECK(had <= 0 || reserve(entry, had));
    }
    if (had < over) {
      entry.trouble = "holds " + std::to_string(rest) + " pages" +
                      (entry.elastic() ? " beside its KV" : "") + " and may have " +
                      std::to_string(entry.fixed()) + "; give it more `memory`";
    }
  }
  set_held(entry, held);
}

// ---- The ledger ----

/// Whether its devices are such without a worker, whose pages are counted here.
bool EnginesCore::Impl::counted(const EngineEntry& entry) const {
  return devices_.contains(entry.config.device);
}

/// That are free on each of its devices, which are counted here.
std::int64_t EnginesCore::Impl::free_pages(const EngineEntry& entry) const {
  std::int64_t free = ledger_.usage(ledger::device_pool(entry.config.device)).free;
  for (const DeviceId device : entry.config.further) {
    free = std::min(free, ledger_.usage(ledger::device_pool(device)).free);
  }
  return free;
}

/// So many more of each of its devices become its own, or none of any.
bool EnginesCore::Impl::reserve(EngineEntry& entry, std::int64_t pages) {
  if (free_pages(entry) < pages) {
    return false;
  }
  std::vector<ledger::Demand> demands;
  for (const DeviceId device : entry.config.devices()) {
    const ledger::PoolId pool = ledger::device_pool(device);
    demands.push_back({.pool = pool, .pages = pages});
    HEDDLE_CHECK(!entry.lease || ledger_.grow(*entry.lease, pool, pages));
  }
  if (!entry.lease) {
    const auto lease =
        ledger_.reserve(ledger::LeaseKind::kExternal, {.model = entry.config.model}, demands);
    HEDDLE_CHECK(lease.has_value());
    entry.lease = *lease;
  }
  entry.reserved += pages;
  report(entry);
  return true;
}

/// All but `keep` of its pages are others' again.
void EnginesCore::Impl::give_back(EngineEntry& entry, std::int64_t keep) {
  const std::int64_t pages = entry.reserved - keep;
  if (pages <= 0) {
    return;
  }
  entry.reserved = keep;
  const std::vector<DeviceId> devices = entry.config.devices();
  if (!counted(entry)) {
    for (const DeviceId device : devices) {
      ++entry.repaying;
      act(Repay{.device = device, .model = entry.config.model, .pages = pages});
    }
    return;
  }
  if (keep == 0) {
    ledger_.release(*std::exchange(entry.lease, std::nullopt));
  } else {
    set_held(entry, std::min(entry.held, keep));
    for (const DeviceId device : devices) {
      ledger_.shrink(*entry.lease, ledger::device_pool(device), pages);
    }
  }
  report(entry);
}

void EnginesCore::Impl::set_held(EngineEntry& entry, std::int64_t held) {
  entry.held = held;
  if (!entry.lease) {
    return;
  }
  std::int64_t change = 0;
  for (const DeviceId device : entry.config.devices()) {
    const ledger::PoolId pool = ledger::device_pool(device);
    const ledger::Share share = ledger_.find(*entry.lease)->shares.at(pool);
    change = std::min(held, share.reserved) - share.held;
    if (change > 0) {
      ledger_.commit(*entry.lease, pool, change);
    } else if (change < 0) {
      ledger_.uncommit(*entry.lease, pool, -change);
    }
  }
  if (change != 0) {
    report(entry);
  }
}

/// Charges host memory with what was saved of it; false where there is not so much.
bool EnginesCore::Impl::keep_on_host(EngineEntry& entry, std::int64_t pages) {
  if (entry.host_lease) {
    ledger_.release(*std::exchange(entry.host_lease, std::nullopt));
  }
  if (pages == 0) {
    return true;
  }
  const std::array<ledger::Demand, 1> demand{{{.pool = ledger::kHostPool, .pages = pages}}};
  const auto lease =
      ledger_.reserve(ledger::LeaseKind::kExternal, {.model = entry.config.model}, demand);
  if (!lease) {
    return false;
  }
  ledger_.commit(*lease, ledger::kHostPool, pages);
  entry.host_lease = *lease;
  return true;
}

void EnginesCore::Impl::report(const EngineEntry& entry) {
  for (const DeviceId device : entry.config.devices()) {
    report(device);
  }
}

void EnginesCore::Impl::report(DeviceId device) {
  act(TellManager{.event = WorkerSaid{.device = device,
                                      .epoch = kOnlyEpoch,
                                      .report = DeviceReport{
                                          .usage = ledger_.usage(ledger::device_pool(device))}}});
}

// ---- What is seen ----

void EnginesCore::Impl::enter(EngineEntry& entry, EngineState state) {
  entry.state = state;
  entry.since = now_;
}

/// What becomes of an engine, with what the next suspension and the way back are likely to take.
void EnginesCore::Impl::say(EngineEntry& entry, EngineNews news, Error reason) {
  spec::SuspendLevel likely = entry.config.levels.back();
  for (const spec::SuspendLevel level : entry.config.levels) {
    if (entry.cost(level).times > entry.cost(level).insufficient) {
      likely = level;
      break;
    }
  }
  EngineSaid said{.device = entry.config.device,
                  .model = entry.config.model,
                  .news = news,
                  .held_pages = firm_pages(entry),
                  .swap_out = entry.cost(likely).out,
                  .swap_in = entry.cost(likely).in,
                  .reason = std::move(reason)};
  if (entry.repaying > 0) {
    entry.untold = std::move(said);
    return;
  }
  act(TellManager{.event = std::move(said)});
}

/// It is out, as was asked.
void EnginesCore::Impl::say_out(EngineEntry& entry) {
  say(entry, entry.state == EngineState::kStopped ? EngineNews::kEnded : EngineNews::kSuspended);
}

std::vector<EngineStatus> EnginesCore::Impl::engines() const {
  std::vector<EngineStatus> all;
  for (const auto& [model, entry] : engines_) {
    std::int64_t host = 0;
    if (entry.host_lease) {
      host = ledger_.find(*entry.host_lease)->shares.at(ledger::kHostPool).reserved;
    }
    all.push_back({.model = model,
                   .device = entry.config.device,
                   .state = entry.state,
                   .level = entry.level,
                   .since = entry.since,
                   .reserved_pages = entry.reserved,
                   .held_pages = entry.held,
                   .host_pages = host,
                   .starts = entry.starts,
                   .deaths = entry.deaths,
                   .costs = entry.costs,
                   .trouble = entry.trouble,
                   .kv_limit_pages = entry.kv.granted,
                   .kv_used_pages = entry.kv.used,
                   .further = entry.config.further});
  }
  return all;
}

std::optional<ledger::PoolUsage> EnginesCore::Impl::usage(DeviceId device) const {
  return devices_.contains(device) ? std::optional(ledger_.usage(ledger::device_pool(device)))
                                   : std::nullopt;
}

void EnginesCore::Impl::check_invariants() const {
  ledger_.check_invariants();
  for (const auto& [model, entry] : engines_) {
    HEDDLE_CHECK(entry.lease.has_value() == (counted(entry) && entry.reserved > 0));
    for (const DeviceId device : entry.config.devices()) {
      HEDDLE_CHECK(!entry.lease ||
                   ledger_.find(*entry.lease)->shares.at(ledger::device_pool(device)).reserved ==
                       entry.reserved);
      HEDDLE_CHECK(counted(entry) == devices_.contains(device));
    }
    const bool stopped = entry.state == EngineState::kStopped;
    HEDDLE_CHECK(!stopped || (entry.reserved == 0 && !entry.host_lease && !entry.level));
    HEDDLE_CHECK(entry.state != EngineState::kSuspended || entry.level);
    // Nothing starts, runs or comes back without its memory.
    const bool active = entry.state == EngineState::kStarting ||
                        entry.state == EngineState::kResuming ||
                        entry.state == EngineState::kRunning;
    HEDDLE_CHECK(!active || entry.reserved >= std::max<std::int64_t>(entry.config.pages, 1));
    const KvHolding& kv = entry.kv;
    HEDDLE_CHECK(kv.granted <= entry.reserved && kv.told <= kv.granted);
    HEDDLE_CHECK(entry.state != EngineState::kRunning || kv.granted >= kv.least);
    HEDDLE_CHECK(!entry.waiting || stopped || entry.state == EngineState::kSuspended);
  }
}

EnginesCore::EnginesCore() : impl_(std::make_unique<Impl>()) {}
EnginesCore::~EnginesCore() = default;
EnginesCore::EnginesCore(EnginesCore&&) noexcept = default;
EnginesCore& EnginesCore::operator=(EnginesCore&&) noexcept = default;

void EnginesCore::step(Instant now,
                       const EnginesEvent& event,
                       std::vector<EnginesCommand>& commands) {
  impl_->step(now, event, commands);
}
std::vector<EngineStatus> EnginesCore::engines() const {
  return impl_->engines();
}
std::optional<ledger::PoolUsage> EnginesCore::usage(DeviceId device) const {
  return impl_->usage(device);
}
void EnginesCore::check_invariants() const {
  impl_->check_invariants();
}

}  // namespace heddle::core
