#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/any_io_executor.hpp>

#include "base/ids.h"
#include "base/result.h"
#include "base/time.h"
#include "core/manager/events.h"
#include "core/serving.h"
#include "net/host_link.h"
#include "remote/caller.h"
#include "remote/ticker.h"
#include "serving/ports.h"

namespace heddle::remote {

/// The manager, as gateways on other machines need it. It may tell a front what it wants from
/// within any call, as manager::Manager does.
class LeaderPort : public serving::ManagerPort {
 public:
  /// A gateway has come, whose requests follow by adopt(). The port is good until remove_front().
  virtual void add_front(FrontId id, serving::FrontPort& port) = 0;
  /// All that the front has not ended, where some of it may not have been heard.
  virtual void adopt(core::FrontState front) = 0;
  /// The gateway is gone, and its requests with it.
  virtual void remove_front(FrontId id) = 0;
  /// As core::Serving has them.
  virtual void load(ModelId model, std::function<void(Result<void>)> done) = 0;
  virtual void unload(ModelId model,
                      core::EvictionReason why,
                      std::function<void(Result<void>)> done) = 0;
  /// As core::Serving has them.
  [[nodiscard]] virtual std::vector<core::HostEntry> hosts() const = 0;
  virtual void leave(HostId host, bool leaving, std::function<void(Result<void>)> done) = 0;
  virtual void apply(std::string configuration,
                     bool dry_run,
                     std::function<void(Result<void>)> done) = 0;
  /// Of the model's files, as host::Offer has it; empty where no text is made of it.
  [[nodiscard]] virtual std::string digest(ModelId model) const = 0;
};

struct GatewayServiceOptions {
  std::size_t queued_most = kQueuedMost;  ///< For one gateway.
  /// For so long a gateway whose link has ended may link again before its requests are given up.
  Duration grace = std::chrono::seconds(2);
  TickerOptions status{};  ///< Of what there is to see.
};

/// A manager for gateways on other machines: each is a front of it. Nothing of a gateway is heard
/// before it has said what requests it has. What is for a gateway while it is not linked is
/// dropped, as it tells all when it links again. Loop thread only.
class GatewayService {
 public:
  /// Both are those of one manager, which outlives the service.
  GatewayService(boost::asio::any_io_executor executor,
                 LeaderPort& manager,
                 const core::ServingStatus& status,
                 const GatewayServiceOptions& options = {});
  /// Ends all links; the fronts are the manager's no more.
  ~GatewayService();
  GatewayService(const GatewayService&) = delete;
  GatewayService& operator=(const GatewayService&) = delete;

  /// Takes a gateway, within net::Listener's on_peer. `front` is that of its name for ever. A
  /// second link of it replaces the first.
  void accept(std::unique_ptr<net::HostLink> link, const net::Peer& peer, FrontId front);
  /// The cluster's configuration, which gateways are told of now and whenever they link.
  void configure(std::uint64_t revision, std::string text);
  /// While it is not known what there is, gateways are told of no models, and go by what they were
  /// told before.
  void hold_models(bool held);
  /// There is something new to see.
  void changed();

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace heddle::remote
