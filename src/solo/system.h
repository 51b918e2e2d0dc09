#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/any_io_executor.hpp>

#include "base/metrics.h"
#include "base/result.h"
#include "base/time.h"
#include "config/config.h"
#include "core/serving.h"
#include "host/model_files.h"
#include "rpc/messages.h"

namespace heddle::solo {

/// The system behind a gateway in one process, without a network between its parts: the manager,
/// the host that this process runs on, and the front that owns the requests. Loop thread only;
/// nothing of it blocks the loop.
class System final : public core::Serving {
 public:
  /// Opens the models and makes the arena (which is why it is called before the loop runs), and
  /// starts the workers. A model that cannot be opened is listed with its failure, and requests
  /// for it fail with that; an Error means that nothing can be served: devices whose page sizes
  /// differ, or more memory than the host has.
  /// How long switches take goes to `metrics`, which outlives it.
  static Result<std::unique_ptr<System>> create(const boost::asio::any_io_executor& executor,
                                                const config::Config& config,
                                                Metrics& metrics);
  /// Ends the workers. Sinks of unfinished requests hear nothing more.
  ~System() override;
  System(const System&) = delete;
  System& operator=(const System&) = delete;

  /// Called when more is known of models than before, from their sources: their ids may be others.
  void on_models(std::function<void()> handler);
  /// Where the files of models are, for other threads.
  [[nodiscard]] std::shared_ptr<host::ModelFiles> files() const;

  /// Takes over the models of another configuration: those that are gone end their running
  /// requests and fail their waiting ones, those that are the same go on. Devices and host memory
  /// are what they were at the start: a change of them fails with kFailedPrecondition, and nothing
  /// is taken over. `done` is called once, on the loop.
  void reconfigure(const config::Config& config, std::function<void(Result<void>)> done);

  /// The directory of an adapter that an operator has named, as host::find_adapter() finds it for
  /// this model. `done` is called once, on the loop.
  void find_adapter(const std::string& model,
                    std::vector<std::string> folders,
                    std::string named,
                    std::function<void(Result<std::string>)> done);

  /// Takes no more requests. `done` is called once all have ended, to which they are made at
  /// `deadline`, and then the external engines.
  void drain(Instant deadline, std::function<void()> done);

  void start(std::shared_ptr<core::RequestRecord> record,
             std::shared_ptr<core::RequestSink> sink) override;
  void finish_choice(RequestId request, std::uint32_t choice, spec::FinishReason reason) override;
  void cancel(RequestId request) override;
  void start_external(std::shared_ptr<core::ExternalRequest> request,
                      std::shared_ptr<core::ExternalSink> sink) override;
  void finish_external(RequestId request) override;
  void retry_external(RequestId request, bool cut) override;
  void load(ModelId model, std::function<void(Result<void>)> done) override;
  void unload(ModelId model,
              core::EvictionReason why,
              std::function<void(Result<void>)> done) override;

  /// This machine. It cannot leave, as there is no other.
  [[nodiscard]] std::vector<core::HostEntry> hosts() const override;
  void leave(HostId host, bool leaving, std::function<void(Result<void>)> done) override;
  /// Nothing is applied to a server that is alone: its file is changed, and SIGHUP sent.
  void apply(std::string configuration,
             bool dry_run,
             std::function<void(Result<void>)> done) override;

  [[nodiscard]] std::vector<core::ModelStatus> models() const override;
  [[nodiscard]] std::vector<core::DeviceStatus> devices() const override;
  [[nodiscard]] ledger::PoolUsage host_usage() const override;
  [[nodiscard]] std::vector<core::EngineStatus> engines() const override;
  [[nodiscard]] std::vector<core::NotedDecision> decisions() const override;
  [[nodiscard]] std::vector<std::string> troubles() const override;

  /// What a device's worker counts of its life.
  [[nodiscard]] rpc::WorkerStats worker_stats(DeviceId device) const;
  /// The process of a device's worker; -1 when there is none.
  [[nodiscard]] int worker_pid(DeviceId device) const;

 private:
  class Impl;
  explicit System(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace heddle::solo
