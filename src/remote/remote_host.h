#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/any_io_executor.hpp>

#include "base/ids.h"
#include "base/result.h"
#include "core/manager/events.h"
#include "host/host_port.h"
#include "host/offer.h"
#include "net/address.h"
#include "net/connector.h"
#include "net/host_link.h"
#include "remote/messages.h"

namespace heddle::remote {

/// Where a host is, and who leads it.
struct RemoteHostSetup {
  HostId id{};
  std::string name{};
  net::Address address{};
  std::uint64_t term = 0;  ///< Of the manager that this is for.
};

/// What a host says to its manager. Called on the loop, never from within a call.
struct RemoteHostHandlers {
  /// The host is linked and follows. What it knows of its devices comes next, by on_event.
  std::function<void(host::HostFacts)> on_here{};
  /// It has said all that it knew; what follows is news.
  std::function<void()> on_known{};
  /// What it can do about the models of that configuration.
  std::function<void(std::uint64_t revision, std::vector<host::Offer>)> on_offers{};
  std::function<void(core::ManagerEvent)> on_event{};
  std::function<void(DeviceId, ModelId)> on_told{};
  /// It does not follow: it has followed another, and follows no term before this one.
  std::function<void(std::uint64_t term)> on_later_term{};
  /// The answer to ask_loads().
  std::function<void(const Loads&)> on_loads{};
  /// It is linked no more: why. Once for each on_here.
  std::function<void(const Error&)> on_gone{};
};

/// A host on another machine, as its manager has it. While it is not linked it hears nothing of
/// what it is told, and is linked anew as soon as that goes. Loop thread only.
class RemoteHost final : public host::HostPort {
 public:
  /// A handler may destroy the host; none is called after that.
  RemoteHost(const boost::asio::any_io_executor& executor,
             RemoteHostSetup setup,
             net::Self self,
             RemoteHostHandlers handlers,
             const net::ConnectorOptions& options = {});
  ~RemoteHost() override;
  RemoteHost(const RemoteHost&) = delete;
  RemoteHost& operator=(const RemoteHost&) = delete;

  /// The cluster's models, which the host is told of now and whenever it is linked.
  void configure(std::uint64_t revision, std::string text);

  void set_models(const std::vector<host::Assignment>& models) override;
  void carry_out(const host::HostOrder& order) override;
  void send(DeviceId device, WorkerEpoch epoch, core::WorkerMessage message) override;

  /// The host is to go, or no longer. Of no effect while it is not linked.
  void leave(bool leaving);
  /// Whether it is linked and knows Loads and TellLoads; else the next two do nothing.
  [[nodiscard]] bool remembers_loads() const;
  /// Has it say what it remembers of past loads; once at a time.
  void ask_loads(const TellLoads& what);
  /// Has it remember past loads.
  void tell_loads(const Loads& what);
  /// What listings show of it.
  [[nodiscard]] core::HostEntry entry() const;

  /// What there is to see is as the host said it last, about a second ago.
  void describe(core::DeviceStatus& device) const override;
  [[nodiscard]] ledger::PoolUsage host_usage() const override;
  [[nodiscard]] std::vector<core::EngineStatus> engines() const override;
  [[nodiscard]] std::vector<core::FetchStatus> fetches() const override;
  /// With why it is not linked, while it is not.
  [[nodiscard]] std::vector<std::string> troubles() const override;
  [[nodiscard]] std::optional<core::GroupHost> address() const override;
  [[nodiscard]] bool shares_cache() const override;
  void set_holders(const std::vector<host::Holder>& holders) override;
  /// Always nullopt: from other machines engines cannot be reached.
  [[nodiscard]] std::optional<HttpAddress> engine_address(ModelId model) const override;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace heddle::remote
