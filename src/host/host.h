#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/any_io_executor.hpp>

#include "agent/agent.h"
#include "base/result.h"
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

/// The host that this process runs on. What its agent and its engines lend each other is its own
/// affair. Loop thread only; the loop outlives it.
class Host final : public HostPort {
 public:
  /// Ends what an earlier run left of engines, as that may hold the memory that the arena is to
  /// have; then makes the arena. Errors as Agent::create and EventLog::create.
  static Result<std::unique_ptr<Host>> create(const boost::asio::any_io_executor& executor,
                                              HostSetup setup,
                                              HostHandlers handlers);
  /// Ends engines and workers; none is left when it returns.
  ~Host() override = default;
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  void set_models(HostModels models) override;
  void start() override;
  void carry_out(const HostOrder& order) override;
  void send(DeviceId device, WorkerEpoch epoch, core::WorkerMessage message) override;

  void describe(core::DeviceStatus& device) const override;
  [[nodiscard]] ledger::PoolUsage host_usage() const override;
  [[nodiscard]] std::vector<core::EngineStatus> engines() const override;
  [[nodiscard]] std::vector<std::string> troubles() const override;
  [[nodiscard]] std::optional<HttpAddress> engine_address(ModelId model) const override;
  [[nodiscard]] rpc::WorkerStats worker_stats(DeviceId device) const override;
  [[nodiscard]] int worker_pid(DeviceId device) const override;

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
