#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/thread_pool.hpp>

#include "agent/host_model.h"
#include "base/ids.h"
#include "base/result.h"
#include "config/config.h"
#include "host/host.h"
#include "host/host_port.h"
#include "host/model_files.h"
#include "host/opened_model.h"
#include "host/outlines.h"

namespace heddle::host {

/// Who a host is among others.
struct HostIdentity {
  HostId id{};                    ///< 0: the only one.
  std::string name{};             ///< Empty: the only one.
  std::uint64_t incarnation = 0;  ///< Raised at each start of this name.
};

/// The host that this process runs on, with the devices that its configuration names and the
/// models that it finds. Loop thread only; the loop outlives it.
class ConfiguredHost final : public LocalHostPort {
 public:
  /// Makes the arena, which is why it is called before the loop runs. Nothing runs before start().
  /// Errors as host_setup() and Host::create.
  static Result<std::unique_ptr<ConfiguredHost>> create(
      const boost::asio::any_io_executor& executor,
      config::Config config,
      HostIdentity identity,
      HostHandlers handlers);
  /// Ends engines and workers; none is left when it returns.
  ~ConfiguredHost() override = default;
  ConfiguredHost(const ConfiguredHost&) = delete;
  ConfiguredHost& operator=(const ConfiguredHost&) = delete;

  /// What the host is, for its manager.
  [[nodiscard]] HostFacts facts() const;
  /// Called on the loop with all offers when sources have told more of models than was known when
  /// they were opened; not from within a call.
  void on_offers(std::function<void(std::vector<Offer>)> handler);
  /// Opens the models of `config`, whose devices and memory are this host's, and says what it can
  /// do about them. Reads files. Of those that are in no cache it asks the sources, beside the
  /// loop, and says nothing until they have answered or failed.
  [[nodiscard]] std::vector<Offer> open(const config::Config& config);
  /// The same off the loop; `done` is called there, unless the host has gone. One at a time.
  void open_later(config::Config config, std::function<void(std::vector<Offer>)> done);
  /// The directory of an adapter for one of its models, by host::find_adapter() off the loop.
  /// `done` is called there, unless the host has gone. kUnavailable where the model is not known
  /// yet.
  void find_adapter(const std::string& model,
                    std::vector<std::string> folders,
                    std::string named,
                    std::function<void(Result<std::string>)> done);
  /// Where their files are, for other threads; lives on when the host has gone.
  [[nodiscard]] std::shared_ptr<ModelFiles> files() const { return files_; }
  /// Starts the workers; after set_models().
  void start();

  /// As agent::Agent has it.
  void hear_edges(const agent::EdgeNews& news);
  void give_kv(rpc::KvAsk ask, agent::KvAnswer answer);
  /// Of what open() has found last.
  void set_models(const std::vector<Assignment>& models) override;
  void set_holders(const std::vector<Holder>& holders) override;
  void carry_out(const HostOrder& order) override;
  void forget_orders() override;
  [[nodiscard]] core::ModelsByDevice models() const override;
  void send(DeviceId device, WorkerEpoch epoch, core::WorkerMessage message) override;

  void describe(core::DeviceStatus& device) const override;
  [[nodiscard]] ledger::PoolUsage host_usage() const override;
  [[nodiscard]] std::vector<core::EngineStatus> engines() const override;
  [[nodiscard]] std::vector<core::FetchStatus> fetches() const override;
  [[nodiscard]] std::vector<std::string> troubles() const override;
  [[nodiscard]] std::optional<HttpAddress> engine_address(ModelId model) const override;
  [[nodiscard]] rpc::WorkerStats worker_stats(DeviceId device) const;
  [[nodiscard]] int worker_pid(DeviceId device) const;

  /// Of the models opened last, those that can be served, by name: where their files are.
  [[nodiscard]] std::optional<std::filesystem::path> directory_of(const std::string& model) const;

 private:
  ConfiguredHost(boost::asio::any_io_executor executor,
                 config::Config config,
                 HostIdentity identity,
                 const agent::HostGeometry& geometry,
                 std::unique_ptr<Host> host);
  [[nodiscard]] std::vector<Offer> keep(const config::Config& config,
                                        std::vector<OpenedModel> opened);
  void ask_sources();
  void tell_holders();
  void hold_models();
  void tell_files();
  void learnt(const std::string& source, const Result<fetch::Outline>& outline);
  void open_again(const std::string& source);
  void take(std::vector<OpenedModel> opened);

  boost::asio::any_io_executor executor_;
  config::Config config_;
  HostIdentity identity_;
  agent::HostGeometry geometry_;
  std::vector<OpenedModel> opened_{};
  std::uint64_t opened_times_ = 0;  ///< Raised with each configuration.
  std::function<void(std::vector<Offer>)> on_offers_{};
  std::function<std::shared_ptr<fetch::Peer>(const core::GroupHost&)> find_peer_{};
  std::vector<Holder> holders_{};
  std::shared_ptr<ModelFiles> files_ = std::make_shared<ModelFiles>();
  std::map<std::string, std::shared_ptr<void>> held_{};  ///< In the cache, by their sources.
  std::unique_ptr<Host> host_;
  std::optional<Outlines> outlines_{};  ///< Where some model has a source.
  boost::asio::thread_pool opener_{1};
  std::shared_ptr<ConfiguredHost*> alive_ = std::make_shared<ConfiguredHost*>(this);
};

/// kFailedPrecondition, naming it, for something of `now` that a running host cannot take over.
Result<void> check_reload(const config::Config& before, const config::Config& now);

}  // namespace heddle::host
