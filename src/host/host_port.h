#pragma once

#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "agent/host_model.h"
#include "base/http_address.h"
#include "base/ids.h"
#include "base/time.h"
#include "core/engines_core.h"
#include "core/manager/events.h"
#include "core/messages.h"
#include "core/serving.h"
#include "external/engine_host.h"
#include "ledger/ledger.h"
#include "rpc/messages.h"

namespace heddle::host {

/// What the manager has a host do.
using HostOrder =
    std::variant<core::LoadOn, core::EvictFrom, core::FormGroup, core::Weave, core::Unweave>;

/// What a host may run: models of ours, and external engines as its core and as its shell know
/// them.
struct HostModels {
  std::vector<agent::HostModel> own{};
  core::ConfigureEngines engines{};
  std::vector<external::ConfiguredEngine> configured{};
};

/// What a host says. Called on the loop; but for on_told and on_event never from within a call.
struct HostHandlers {
  /// For the manager's core.
  std::function<void(core::ManagerEvent)> on_event{};
  /// Tokens of one step of a worker's life, for the owner of the records.
  std::function<void(DeviceId, WorkerEpoch, std::vector<core::TokenEvent>)> on_tokens{};
  /// A worker, or an engine, has been told to load a model; for the time that switches take.
  std::function<void(DeviceId, ModelId)> on_told{};
  /// Asked of an engine: when it last sent something of an answer; nothing where nobody waits.
  std::function<std::optional<Instant>(ModelId)> silent_since{};
};

/// A host, as a manager sees it: devices with their workers, external engines, and what the
/// driver says of GPUs. Loop thread only.
class HostPort {
 public:
  virtual ~HostPort() = default;

  /// The models there are from now on. An id keeps its meaning for ever.
  virtual void set_models(HostModels models) = 0;
  /// Starts the workers; after set_models().
  virtual void start() = 0;
  virtual void carry_out(const HostOrder& order) = 0;
  /// Passes a message on to a worker, unless that life of it has ended.
  virtual void send(DeviceId device, WorkerEpoch epoch, core::WorkerMessage message) = 0;

  /// Puts what the host knows of the device into what is shown of it.
  virtual void describe(core::DeviceStatus& device) const = 0;
  /// Pages of the budget for images, by lease kind.
  [[nodiscard]] virtual ledger::PoolUsage host_usage() const = 0;
  /// The external engines, by model.
  [[nodiscard]] virtual std::vector<core::EngineStatus> engines() const = 0;
  /// What is wrong now with workers, the host and engines, for people.
  [[nodiscard]] virtual std::vector<std::string> troubles() const = 0;
  /// Where a configured engine listens when it runs.
  [[nodiscard]] virtual std::optional<HttpAddress> engine_address(ModelId model) const = 0;
  /// What the device's worker last said of itself.
  [[nodiscard]] virtual rpc::WorkerStats worker_stats(DeviceId device) const = 0;
  /// The worker's process; -1 when there is none.
  [[nodiscard]] virtual int worker_pid(DeviceId device) const = 0;
};

}  // namespace heddle::host
