#pragma once

#include <chrono>
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
#include "net/address.h"
#include "net/connector.h"
#include "net/host_link.h"
#include "remote/messages.h"
#include "serving/ports.h"

namespace heddle::remote {

/// What a gateway hears of its manager beside what is for its front. Called on the loop, never from
/// within a call.
struct RemoteManagerHandlers {
  /// The cluster's configuration, in YAML. May be empty.
  std::function<void(std::uint64_t revision, const std::string& text)> on_configuration{};
  /// The models there are from now on; the front has them already. May be empty.
  std::function<void(const Served&)> on_served{};
  /// There is something new to see. May be empty.
  std::function<void()> on_status{};
  /// What keys have used of their quotas at another gateway. May be empty.
  std::function<void(const std::vector<core::QuotaUse>&)> on_quotas_used{};
  /// The link has ended, or a try to have one; the next follows. May be empty.
  std::function<void(const Error&)> on_down{};
};

/// The manager on another machine, as a gateway has it. While it is not linked nothing that it is
/// told goes anywhere, as it is told all requests when it is linked again; meanwhile they wait.
/// What there is to see is what it said last. Loop thread only.
class RemoteManager final : public serving::ManagerPort, public core::ServingStatus {
 public:
  /// A handler may destroy it; none is called after that.
  /// @param patience  So long after the last one was lost what is asked waits for the next manager.
  RemoteManager(boost::asio::any_io_executor executor,
                FrontId id,
                net::Self self,
                RemoteManagerHandlers handlers,
                const net::ConnectorOptions& options = {},
                Duration patience = std::chrono::seconds(10));
  /// Ends the link. What is asked and not answered yet never is.
  ~RemoteManager() override;
  RemoteManager(const RemoteManager&) = delete;
  RemoteManager& operator=(const RemoteManager&) = delete;

  /// The front of this gateway, which outlives the links, and which requests it has not ended.
  void set_front(serving::FrontPort& front,
                 std::function<std::vector<core::Unfinished>()> unfinished);
  /// Links with the manager of this name from now on, in place of another: at once, or after a
  /// pause where links have failed lately, so that it may be called whenever one has. After
  /// set_front().
  void connect(const net::Address& address, const std::string& name);

  void tell(const serving::RequestNews& news) override;
  /// 0 for a model that it has not told of.
  [[nodiscard]] std::int64_t tokens_max(ModelId model) const override;
  /// As core::Serving has them. What a manager did not answer before it was lost is asked of the
  /// next one; kUnavailable where none leads in time.
  void load(ModelId model, std::function<void(Result<void>)> done);
  void unload(ModelId model, core::EvictionReason why, std::function<void(Result<void>)> done);

  /// Tells the other gateways, by way of the manager, what keys have used here. Only while
  /// shares_quotas(): else it is for later.
  void tell_quotas_used(std::vector<core::QuotaUse> uses);
  [[nodiscard]] bool shares_quotas() const;

  [[nodiscard]] std::vector<core::HostEntry> hosts() const;
  void leave(HostId host, bool leaving, std::function<void(Result<void>)> done);
  void apply(std::string configuration, bool dry_run, std::function<void(Result<void>)> done);

  [[nodiscard]] std::vector<core::ModelStatus> models() const override;
  [[nodiscard]] std::vector<core::DeviceStatus> devices() const override;
  [[nodiscard]] ledger::PoolUsage host_usage() const override;
  [[nodiscard]] std::vector<core::EngineStatus> engines() const override;
  [[nodiscard]] std::vector<core::NotedDecision> decisions() const override;
  /// A manager that leads.
  [[nodiscard]] bool is_linked() const;
  /// While none is linked, that comes first: for how long, and why.
  [[nodiscard]] std::vector<std::string> troubles() const override;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace heddle::remote
