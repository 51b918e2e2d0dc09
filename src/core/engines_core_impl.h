#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/engines_core.h"
#include "ledger/ledger.h"

namespace heddle::core {

/// Somebody who has failed to come back from a level so often is not suspended by it any more.
inline constexpr std::uint64_t kResumeFailuresMost = 2;

/// A mean that follows the last few of `times` values.
[[nodiscard]] inline Duration follow(Duration mean, Duration value, std::uint64_t times) {
  constexpr std::uint64_t kMemory = 4;
  const auto count = static_cast<std::int64_t>(std::min(times, kMemory));
  return count <= 1 ? value : mean + (value - mean) / count;
}

/// The KV of an elastic engine [pages]; all 0 of others, and of one that does not run.
struct KvHolding {
  std::int64_t least = 0;    ///< That it always has; 0: the engine is not elastic.
  std::int64_t granted = 0;  ///< Reserved for it, of EngineEntry::reserved.
  std::int64_t told = 0;     ///< What the engine was told that it may have, at most `granted`.
  std::int64_t wanted = 0;   ///< The manager's last LimitKv, or what it began with.
  std::int64_t used = 0;     ///< That it said it has mapped.
  Instant told_at{};         ///< When it was last told less.
  bool busy = false;
  bool deaf = false;                    ///< As EngineKv has it.
  std::optional<Instant> over_since{};  ///< It is idle and has had more than it was told since.
  int nudges = 0;                       ///< Since then.
  Instant nudged_at{};
};

/// An engine and where it is in its life.
struct EngineEntry {
  HostedEngine config{};
  bool removed = false;
  EngineState state = EngineState::kStopped;
  EngineLife life{};
  Instant since{};
  std::optional<spec::SuspendLevel> level{};

  /// Pages of each of its devices that are its own: in the ledger here, or lent by their workers.
  std::int64_t reserved = 0;
  std::optional<ledger::LeaseId> lease{};  ///< Of them, on a device without a worker.
  std::map<DeviceId, Basis> bases{};       ///< Of the orders that bring it in, by device.
  std::int64_t borrowing = 0;              ///< Asked of workers, one after the other; not all
                                           ///< have answered yet.
  std::size_t lenders = 0;                 ///< So many of them have lent that.
  bool unwanted = false;                   ///< Evicted while it borrowed.
  std::int64_t repaying = 0;               ///< Repayments whose pages are not with the worker yet.
  std::optional<EngineSaid> untold{};      ///< What the manager is to hear when they are.
  std::optional<ledger::LeaseId> host_lease{};  ///< Of what was saved of it.
  std::int64_t held = 0;                        ///< Of each of its devices, measured.
  std::int64_t measured = 0;                    ///< While it ran, the most; 0: never.

  KvHolding kv{};
  std::int64_t kv_asking = 0;         ///< Pages for its KV that a worker was asked for.
  std::optional<EngineKv> kv_said{};  ///< What the manager last heard of it.
  std::optional<LoadOn> waiting{};    ///< It comes when others have unmapped so much KV.
  Instant waiting_since{};

  std::optional<EvictFrom> eviction{};  ///< The last order, until it serves again.
  std::int64_t came_with = 0;           ///< Pages reserved when that began.

  std::uint64_t starts = 0;
  std::uint64_t deaths = 0;
  std::array<SuspendCost, spec::kSuspendLevels> costs{};
  std::array<std::uint64_t, spec::kSuspendLevels> lost_by{};  ///< Resumes that failed in a row.
  std::string trouble{};

  [[nodiscard]] SuspendCost& cost(spec::SuspendLevel of) {
    return costs.at(static_cast<std::size_t>(of));
  }
  [[nodiscard]] const SuspendCost& cost(spec::SuspendLevel of) const {
    return costs.at(static_cast<std::size_t>(of));
  }
  [[nodiscard]] bool borrows() const { return borrowing > 0; }
  /// Of what it holds of all its devices together, what counts of each.
  [[nodiscard]] std::int64_t on_each(std::int64_t held_pages) const {
    const auto devices = static_cast<std::int64_t>(1 + config.further.size());
    return (held_pages + devices - 1) / devices;
  }
  /// The device is one of its own.
  [[nodiscard]] bool is_on(DeviceId id) const {
    return config.device == id ||
           std::find(config.further.begin(), config.further.end(), id) != config.further.end();
  }
  /// Of one that runs.
  [[nodiscard]] bool elastic() const { return kv.least > 0; }
  /// Of `reserved`, what is not for KV that comes and goes.
  [[nodiscard]] std::int64_t fixed() const { return reserved - kv.granted; }
};

/// The state of an EnginesCore. Coming and the ledger are in engines_core.cc, going in
/// engines_suspend.cc, KV of elastic engines in engines_kv.cc.
class EnginesCore::Impl {
 public:
  void step(Instant now, const EnginesEvent& event, std::vector<EnginesCommand>& commands);
  [[nodiscard]] std::vector<EngineStatus> engines() const;
  [[nodiscard]] std::optional<ledger::PoolUsage> usage(DeviceId device) const;
  void check_invariants() const;

 private:
  void on(const ConfigureEngines& configure);
  void on(const LoadOn& load);
  void on(const EvictFrom& evict);
  void on(const LoanGranted& granted);
  void on(const LoanRefused& refused);
  void on(const LoanRepaid& repaid);
  void on(const EngineStarted& started);
  void on(const EngineSuspended& suspended);
  void on(const EngineResumed& resumed);
  void on(const EngineExited& exited);
  void on(const EngineMeasured& measured);
  void on(const LimitKv& limit);
  void on(const KvSeen& seen);

  // Coming.
  [[nodiscard]] static std::int64_t pages_wanted(const EngineEntry& entry);
  void bring_in(EngineEntry& entry);
  void borrow_next(EngineEntry& entry);
  void stop_borrowing(EngineEntry& entry);
  void serve(EngineEntry& entry, std::int64_t held);
  void note_held(EngineEntry& entry, std::int64_t held);

  // Going.
  void suspend_further(EngineEntry& entry, std::size_t from);
  [[nodiscard]] bool suits(const EngineEntry& entry, spec::SuspendLevel level) const;
  [[nodiscard]] std::size_t after(const EngineEntry& entry) const;
  void settle(EngineEntry& entry, std::int64_t held);
  void stop(EngineEntry& entry);
  void gone(EngineEntry& entry);
  void not_evicted(EngineEntry& entry);

  // KV of elastic engines.
  void begin_kv(EngineEntry& entry);
  void follow_limit(EngineEntry& entry, const Basis& basis);
  void tell_limit(EngineEntry& entry, std::int64_t pages);
  void grow_kv(EngineEntry& entry, std::int64_t pages);
  void own_excess(EngineEntry& entry);
  void take_back_kv(EngineEntry& entry);
  void nudge(EngineEntry& entry);
  void kv_loan(EngineEntry& entry, bool granted);
  void tell_kv(EngineEntry& entry);
  [[nodiscard]] std::int64_t firm_pages(const EngineEntry& entry) const;
  [[nodiscard]] bool kv_could_free(const EngineEntry& entry, std::int64_t missing) const;
  void bring_in_waiting();

  // The ledger.
  [[nodiscard]] bool counted(const EngineEntry& entry) const;
  [[nodiscard]] std::int64_t free_pages(const EngineEntry& entry) const;
  bool reserve(EngineEntry& entry, std::int64_t pages);
  void give_back(EngineEntry& entry, std::int64_t keep);
  void set_held(EngineEntry& entry, std::int64_t held);
  bool keep_on_host(EngineEntry& entry, std::int64_t pages);
  [[nodiscard]] std::int64_t host_pages_for(const EngineEntry& entry) const;
  void report(const EngineEntry& entry);
  void report(DeviceId device);

  EngineEntry* alive(ModelId model, EngineLife life);
  void enter(EngineEntry& entry, EngineState state);
  void say(EngineEntry& entry, EngineNews news, Error reason = {});
  void say_out(EngineEntry& entry);
  void forget_removed();
  template <class T>
  void act(T command) {
    commands_->push_back(std::move(command));
  }

  Instant now_{};
  std::vector<EnginesCommand>* commands_ = nullptr;
  bool configured_ = false;
  std::map<ModelId, EngineEntry> engines_{};
  std::map<DeviceId, EngineDevice> devices_{};  ///< Without workers.
  ledger::Ledger ledger_{};
  std::uint64_t lives_given_ = 0;
};

}  // namespace heddle::core
