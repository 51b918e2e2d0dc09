#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/any_io_executor.hpp>

#include "base/ids.h"
#include "base/time.h"
#include "config/engine_config.h"
#include "core/engines_core.h"
#include "external/external_engine.h"
#include "external/kv_limit.h"
#include "external/phase_timer.h"

namespace heddle::external {

/// An engine that EnginesCore knows by its id, as it is configured.
struct ConfiguredEngine {
  ModelId model{};
  std::string name{};  ///< The model's id, in the words of its users.
  /// Its device may be an accelerator: what it holds of that is asked of the driver, where there is
  /// one and knows of it. Otherwise, and on every other device, it holds host memory.
  bool accelerator = false;
  config::EngineConfig config{};
};

struct EngineHostSetup {
  std::size_t page_bytes = 0;
  std::string record_directory{};                      ///< Nobody else's; empty: no records.
  std::optional<Grouping> grouping{};                  ///< Without it, the best there is.
  Duration sample_interval = std::chrono::seconds(5);  ///< Between looks at what engines hold.
  std::string kv_directory = kSharedMemory;            ///< Where elastic engines have segments.
};

/// The last time that an engine was brought in or out, step by step.
struct Passage {
  std::string what{};  ///< "start", "suspend by sleep", "resume".
  std::vector<Phase> phases{};
  Duration took{};
};

/// One host's external engines, live: core::EnginesCore decides, this does it and reports
/// back. Loop thread only; the loop outlives it, and handlers (but for on_step) are never called
/// from within a call to it.
class EngineHost {
 public:
  struct Handlers {
    /// For the manager's core.
    std::function<void(core::ManagerEvent)> on_event{};
    /// To be answered by grant() or refuse(). A host whose engines all have devices without workers
    /// needs neither.
    std::function<void(const core::Borrow&)> on_borrow{};
    std::function<void(const core::Repay&)> on_repay{};
    /// When the engine last sent something of an answer; nothing where nobody waits for one. May be
    /// empty: then only engines that were stopped are found to hang.
    std::function<std::optional<Instant>(ModelId)> silent_since{};
    /// The core has taken this step; for the event log. May be empty.
    std::function<void(
        Instant, const core::EnginesEvent&, const std::vector<core::EnginesCommand>&)>
        on_step{};
  };

  /// Ends what an earlier run left behind, and finds out what the machine lets us do; may take
  /// seconds.
  EngineHost(const boost::asio::any_io_executor& executor,
             EngineHostSetup setup,
             Handlers handlers);
  /// Ends the engines at once; none is left when it returns.
  ~EngineHost();
  EngineHost(const EngineHost&) = delete;
  EngineHost& operator=(const EngineHost&) = delete;

  /// The engines there are from now on; called before anything else. An id keeps its meaning for
  /// ever, its configuration holds from its next start on. One that is missing is ended when the
  /// manager has it taken out.
  /// @param configure  The same engines, as the core is to know them.
  void set_engines(core::ConfigureEngines configure, std::vector<ConfiguredEngine> engines);
  void carry_out(const core::LoadOn& order);
  void carry_out(const core::EvictFrom& order);
  void carry_out(const core::LimitKv& order);
  /// The answers to on_borrow.
  void grant(ModelId model);
  void refuse(ModelId model, Error reason);
  /// The pages of an on_repay are with their device again.
  void repaid(ModelId model);

  [[nodiscard]] bool hosts(ModelId model) const;
  /// By model.
  [[nodiscard]] std::vector<core::EngineStatus> engines() const;
  /// What is wrong now with engines that are to run, for people.
  [[nodiscard]] std::vector<std::string> troubles() const;
  [[nodiscard]] std::optional<ledger::PoolUsage> usage(DeviceId device) const;
  /// Where a configured engine listens when it runs.
  [[nodiscard]] std::optional<HttpAddress> address(ModelId model) const;
  /// Nothing where it never came in or went out.
  [[nodiscard]] std::optional<Passage> last_passage(ModelId model) const;
  /// Of the life that runs; for tests and for people.
  [[nodiscard]] std::vector<pid_t> processes(ModelId model) const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace heddle::external
