#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/http_address.h"
#include "base/ids.h"
#include "core/agent_core.h"
#include "core/messages.h"
#include "core/serving.h"
#include "host/offer.h"
#include "ledger/ledger.h"
#include "rpc/messages.h"

namespace heddle::host {

/// What the manager has a host do.
using HostOrder = std::variant<core::LoadOn,
                               core::EvictFrom,
                               core::FormGroup,
                               core::Weave,
                               core::Unweave,
                               core::LimitKv>;

/// A host, as a manager sees it: devices with their workers, external engines, and what the
/// driver says of GPUs. Loop thread only.
class HostPort {
 public:
  virtual ~HostPort() = default;

  /// The models there are from now on, of those that the host has offered.
  virtual void set_models(const std::vector<Assignment>& models) = 0;
  virtual void carry_out(const HostOrder& order) = 0;
  /// Passes a message on to a worker, unless that life of it has ended.
  virtual void send(DeviceId device, WorkerEpoch epoch, core::WorkerMessage message) = 0;

  /// Puts what the host knows of the device into what is shown of it.
  virtual void describe(core::DeviceStatus& device) const = 0;
  /// Pages of the budget for images, by lease kind.
  [[nodiscard]] virtual ledger::PoolUsage host_usage() const = 0;
  /// The external engines, by model.
  [[nodiscard]] virtual std::vector<core::EngineStatus> engines() const = 0;
  /// What it fetches of models, or has fetched, by model.
  [[nodiscard]] virtual std::vector<core::FetchStatus> fetches() const { return {}; }
  /// What is wrong now with workers, the host and engines, for people.
  [[nodiscard]] virtual std::vector<std::string> troubles() const = 0;
  /// Where its agent can be reached; nothing where there are no other hosts.
  [[nodiscard]] virtual std::optional<core::GroupHost> address() const { return std::nullopt; }
  /// Whether other hosts may ask for what its caches have.
  [[nodiscard]] virtual bool shares_cache() const { return false; }
  /// From whose caches it can learn what models are, and fetch them, where their sources are away.
  virtual void set_holders(const std::vector<Holder>& /*holders*/) {}
  /// Where a configured engine listens when it runs.
  [[nodiscard]] virtual std::optional<HttpAddress> engine_address(ModelId model) const = 0;
};

/// A host, as those have it that speak for it to managers on other hosts.
class LocalHostPort : public HostPort {
 public:
  /// Whoever ordered is gone: drops what was ordered and not begun.
  virtual void forget_orders() = 0;
  /// The models that workers have or were told to load, by device.
  [[nodiscard]] virtual core::ModelsByDevice models() const = 0;
};

}  // namespace heddle::host
