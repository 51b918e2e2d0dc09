#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/any_io_executor.hpp>

#include "base/ids.h"
#include "base/result.h"
#include "base/time.h"
#include "core/messages.h"
#include "net/address.h"
#include "net/connector.h"
#include "net/host_link.h"
#include "remote/messages.h"
#include "serving/front.h"
#include "serving/place.h"
#include "serving/ports.h"

namespace heddle::remote {

/// Where a host is.
struct HostAddress {
  HostId id{};
  std::string name{};
  net::Address address{};
  friend bool operator==(const HostAddress&, const HostAddress&) = default;
};

struct RemoteHostsOptions {
  net::ConnectorOptions connector{};
  /// Who is sent to a host that is not linked is lost after that, and not at once: the manager may
  /// send it there again for as long as it has a link itself.
  Duration rest = std::chrono::milliseconds(250);
  Duration fetch_patience = std::chrono::seconds(30);  ///< TextFetcher's.
};

/// The hosts on other machines, as a gateway has them. What it submitted over a link to a host is
/// lost when the link ends. Loop thread only.
class RemoteHosts final : public serving::HostsPort {
 public:
  /// @param manager    Hears of requests that workers have given up. Outlives it.
  /// @param on_linked  A host can be sent requests, and asked for text, from now on. May be empty.
  RemoteHosts(boost::asio::any_io_executor executor,
              net::Self self,
              serving::ManagerPort& manager,
              std::function<void(HostId)> on_linked = {},
              const RemoteHostsOptions& options = {});
  /// Ends all links; the front hears of nothing more.
  ~RemoteHosts() override;
  RemoteHosts(const RemoteHosts&) = delete;
  RemoteHosts& operator=(const RemoteHosts&) = delete;

  /// Whose requests they run; it outlives the links.
  void set_front(serving::Front& front);
  /// The hosts there are from now on. Links to those that are as they were go on, and so does the
  /// link to one that is no longer there, until it ends. After set_front().
  void set_hosts(const std::vector<HostAddress>& hosts);

  /// A place that a request cannot be sent to is lost, of which the front hears from the loop.
  void send(const serving::Place& place, core::WorkerMessage message) override;
  /// By way of the host that has the device.
  [[nodiscard]] Result<core::EngineRoute> engine_route(ModelId model,
                                                       DeviceId device) const override;

  /// As TextFetcher::fetch, from the hosts that are linked.
  void fetch_text(FetchText wanted,
                  std::filesystem::path folder,
                  std::function<void(Result<void>)> done);
  /// Which hosts are not linked and why, for people, a sentence each.
  [[nodiscard]] std::vector<std::string> troubles() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace heddle::remote
