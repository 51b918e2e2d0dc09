#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/time.h"
#include "core/manager/manager_core.h"
#include "core/messages.h"
#include "ledger/ledger.h"
#include "spec/engine.h"

namespace heddle::core {

/// One try to have an engine run, from its start to its end; never reused.
using EngineLife = Id<struct EngineLifeTag>;

/// An external engine, as its host decides about it.
struct HostedEngine {
  ModelId model{};
  DeviceId device{};
  /// What it may hold of each of its devices while it runs; reserved before it starts or comes
  /// back.
  std::int64_t pages = 0;
  /// How it may be suspended, cheapest first; distinct, the last is kStop.
  std::vector<spec::SuspendLevel> levels{spec::SuspendLevel::kStop};
  /// Of an elastic engine: KV that it has beside `pages` as it starts, and never less of while it
  /// runs; 0: its KV is among `pages`.
  std::int64_t kv_least = 0;
  /// Devices that it is on at once beside `device`, all with workers or none; ascending, from
  /// `device` on. None of an elastic engine.
  std::vector<DeviceId> further{};
  [[nodiscard]] std::vector<DeviceId> devices() const {
    std::vector<DeviceId> all{device};
    all.insert(all.end(), further.begin(), further.end());
    return all;
  }
  friend bool operator==(const HostedEngine&, const HostedEngine&) = default;
};

/// A device of this host that only engines use: memory that is counted, with no worker.
struct EngineDevice {
  DeviceId id{};
  std::int64_t pages = 0;
};

// ---- What it hears ----

/// The engines there are now. One that is missing is ended when its requests have. Devices are the
/// same at every call.
struct ConfigureEngines {
  std::vector<HostedEngine> engines{};
  std::vector<EngineDevice> devices{};
  std::int64_t host_pages = 0;  ///< That what was saved of engines may have of host memory.
};
/// A worker's device has lent the pages asked for with Borrow; they are no longer backed.
struct LoanGranted {
  ModelId model{};
};
/// Its worker refused, or died before it answered.
struct LoanRefused {
  ModelId model{};
  Error reason{};
};
/// What Repay named is with its worker again.
struct LoanRepaid {
  ModelId model{};
};
/// StartEngine has ended: it answers and was probed, or (`error`) nothing is left of it.
struct EngineStarted {
  ModelId model{};
  EngineLife life{};
  std::int64_t held_pages = 0;  ///< Of all its devices, measured, as in the next ones.
  std::optional<Error> error{};
};
/// SuspendEngine has ended. With `error` it runs as before, or has ended (EngineExited follows).
struct EngineSuspended {
  ModelId model{};
  EngineLife life{};
  spec::SuspendLevel level = spec::SuspendLevel::kStop;
  std::int64_t held_pages = 0;  ///< That it still holds.
  std::int64_t host_pages = 0;  ///< That what was saved takes of host memory.
  std::optional<Error> error{};
};
/// ResumeEngine has ended: it gave the answer it always gives, or (`error`) it is of no use.
struct EngineResumed {
  ModelId model{};
  EngineLife life{};
  std::int64_t held_pages = 0;
  std::optional<Error> error{};
};
/// Its last process has ended, and nothing of it is left.
struct EngineExited {
  ModelId model{};
  EngineLife life{};
  std::string how{};  ///< "exit status 1", "signal 9".
};
/// What a running engine holds was measured again.
struct EngineMeasured {
  ModelId model{};
  EngineLife life{};
  std::int64_t held_pages = 0;
};

/// What a running elastic engine said of its KV, or why it could not be asked; time and again.
struct KvSeen {
  ModelId model{};
  EngineLife life{};
  std::int64_t used_pages = 0;  ///< That it has mapped.
  bool busy = false;            ///< Somebody waits for an answer of it.
  std::optional<Error> error{};
};

using EnginesEvent = std::variant<ConfigureEngines,
                                  LoadOn,
                                  EvictFrom,
                                  LimitKv,
                                  LoanGranted,
                                  LoanRefused,
                                  LoanRepaid,
                                  EngineStarted,
                                  EngineSuspended,
                                  EngineResumed,
                                  EngineExited,
                                  EngineMeasured,
                                  KvSeen>;

// ---- What it does ----

/// Start its processes, wait until it answers, probe it. EngineStarted.
struct StartEngine {
  ModelId model{};
  EngineLife life{};
};
/// EngineSuspended. Given while it runs, or while it is suspended by a cheaper level.
struct SuspendEngine {
  ModelId model{};
  EngineLife life{};
  spec::SuspendLevel level = spec::SuspendLevel::kStop;
};
/// Undo its suspension and probe it. EngineResumed.
struct ResumeEngine {
  ModelId model{};
  EngineLife life{};
};
/// End it, as a group, and leave nothing: politely, then with SIGKILL. EngineExited.
struct StopEngine {
  ModelId model{};
  EngineLife life{};
};

/// Tell a running engine how much KV it may have.
struct SetKvLimit {
  ModelId model{};
  EngineLife life{};
  std::int64_t pages = 0;
};
/// Send it a request of one token: kvcached takes notice of its limit when it allocates.
struct NudgeEngine {
  ModelId model{};
  EngineLife life{};
};

using EnginesCommand = std::variant<Borrow,
                                    Repay,
                                    StartEngine,
                                    SuspendEngine,
                                    ResumeEngine,
                                    StopEngine,
                                    SetKvLimit,
                                    NudgeEngine,
                                    TellManager>;

/// What a host decides about external engines (SwapServeLLM; docs/decisions/0004): when
/// each is started, suspended by which level, resumed and ended, and what it holds meanwhile.
/// Memory first: nothing starts or comes back before the pages are reserved, and pages count as
/// free only when they were measured to be. An engine on several devices comes when a LoadOn for
/// each of them is there, the one for HostedEngine::device first; it has as much of each, of all or
/// of none. Decides, never acts; equal events give equal commands.
/// Used by one thread.
class EnginesCore {
 public:
  EnginesCore();
  ~EnginesCore();
  EnginesCore(EnginesCore&&) noexcept;
  EnginesCore& operator=(EnginesCore&&) noexcept;

  /// Takes in one event and appends the commands it gives rise to. Times never go backwards. The
  /// first event is ConfigureEngines.
  void step(Instant now, const EnginesEvent& event, std::vector<EnginesCommand>& commands);

  /// By model. Reading wakes nothing.
  [[nodiscard]] std::vector<EngineStatus> engines() const;
  /// Pages of a device that has no worker; of the others, their workers know.
  [[nodiscard]] std::optional<ledger::PoolUsage> usage(DeviceId device) const;

  /// CHECK-fails if the state contradicts itself.
  void check_invariants() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace heddle::core
