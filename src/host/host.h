#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/any_io_executor.hpp>

#include "agent/agent.h"
#include "agent/host_model.h"
#include "base/result.h"
#include "base/time.h"
#include "core/engines_core.h"
#include "core/manager/events.h"
#include "external/engine_host.h"
#include "host/core_log.h"
#include "host/gpu_watch.h"
#include "host/host_port.h"

namespace heddle::host {

/// A host, as configured.
struct HostSetup {
  agent::AgentSetup agent{};
  external::EngineHostSetup engines{};
  std::map<DeviceId, int> gpus{};  ///< Devices that are GPUs, by the CUDA driver's numbers.
};

/// What a host may run: models of ours, and external engines as its core and as its shell know
/// them.
struct HostModels {
  std::vector<agent::HostModel> own{};
  core::ConfigureEngines engines{};
  std::vector<external::ConfiguredEngine> configured{};
};

/// What a host says. Called on the loop; but for on_told and on_event never from within a call.
struct HostHandlers {
  /// As agent::Agent::Handlers has it.
  agent::EdgePort* edges = nullptr;
  /// Likewise.
  std::function<void(const rpc::KvAsk&, agent::KvAnswer)> ask_kv{};
  /// As agent::FetchSetup has these. May be empty.
  std::shared_ptr<agent::FetchLink> link{};
  std::function<std::shared_ptr<fetch::Peer>(const core::GroupHost&)> find_peer{};
  /// For the manager's core.
  std::function<void(core::ManagerEvent)> on_event{};
  /// Tokens of one step of a worker's life, for the owner of the records.
  std::function<void(DeviceId, WorkerEpoch, std::vector<core::TokenEvent>)> on_tokens{};
  /// A worker, or an engine, has been told to load a model; for the time that switches take.
  std::function<void(DeviceId, ModelId)> on_told{};
  /// A source has other files of a model than its outline says. May be empty.
  std::function<void(const std::string& source)> on_changed{};
  /// Asked of an engine: when it last sent something of an answer; nothing where nobody waits.
  std::function<std::optional<Instant>(ModelId)> silent_since{};
};

/// The host that this process runs on. What its agent and its engines lend each other is its own
/// affair. Loop thread only; the loop outlives it.
class Host {
 public:
  /// Ends what an earlier run left of engines, as that may hold the memory that the arena is to
  /// have; then makes the arena. Errors as Agent::create and EventLog::create.
  static Result<std::unique_ptr<Host>> create(const boost::asio::any_io_executor& executor,
                                              HostSetup setup,
                                              HostHandlers handlers);
  /// Ends engines and workers; none is left when it returns.
  ~Host() = default;
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  /// The models there are from now on. An id keeps its meaning for ever.
  void set_models(HostModels models);
  /// Starts the workers; after set_models().
  void start();
  void carry_out(const HostOrder& order);
  /// As Agent has it.
  void hear_edges(const agent::EdgeNews& news);
  void give_kv(rpc::KvAsk ask, agent::KvAnswer answer);
  /// As LocalHostPort has it. External engines go on with what was ordered.
  void forget_orders();
  [[nodiscard]] core::ModelsByDevice models() const;
  /// Passes a message on to a worker, unless that life of it has ended.
  void send(DeviceId device, WorkerEpoch epoch, core::WorkerMessage message);

  /// As HostPort has these.
  void describe(core::DeviceStatus& device) const;
  [[nodiscard]] ledger::PoolUsage host_usage() const;
  [[nodiscard]] std::vector<core::EngineStatus> engines() const;
  [[nodiscard]] std::vector<core::FetchStatus> fetches() const;
  [[nodiscard]] std::vector<std::string> troubles() const;
  [[nodiscard]] std::optional<HttpAddress> engine_address(ModelId model) const;
  /// What the device's worker last said of itself.
  [[nodiscard]] rpc::WorkerStats worker_stats(DeviceId device) const;
  /// The worker's process; -1 when there is none.
  [[nodiscard]] int worker_pid(DeviceId device) const;

 private:
  Host(HostHandlers handlers, std::map<DeviceId, int> gpus);
  Result<void> begin(const boost::asio::any_io_executor& executor, HostSetup setup);
  [[nodiscard]] external::EngineHost::Handlers engine_handlers();
  [[nodiscard]] agent::Agent::Handlers agent_handlers();

  HostHandlers handlers_;
  CoreLog agent_log_{};
  CoreLog engines_log_{};
  std::unique_ptr<agent::Agent> agent_{};
  std::unique_ptr<external::EngineHost> engines_{};
  GpuWatch gpus_;
};

}  // namespace heddle::host
