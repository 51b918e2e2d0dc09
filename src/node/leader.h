#pragma once

#include <cstdint>
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
#include "manager/load_records.h"
#include "net/host_link.h"
#include "node/roster.h"
#include "node/self.h"

namespace heddle::node {

/// The configuration of a cluster, as hosts and gateways get it, and as its manager reads it.
struct ClusterText {
  std::uint64_t revision = 0;
  std::string text{};
  config::Config config{};
};

/// What a leader has its process do.
struct LeaderHooks {
  /// As core::Serving::apply.
  std::function<void(std::string text, bool dry_run, std::function<void(Result<void>)> done)>
      apply{};
  /// No host is linked, and one follows no term before this one; said from the loop.
  std::function<void(std::uint64_t term)> later_term{};
  /// The last host that was linked is linked no more; said from the loop.
  std::function<void()> alone{};
};

/// The manager of a cluster while it leads: links with all hosts, takes gateways, and decides once
/// both have said what they have. Loop thread only.
class Leader {
 public:
  /// @param roster  Who hosts and gateways are; outlives it.
  /// @param loads   What forecasts rest on; outlives it.
  /// @param term    In which it leads: hosts refuse one that is lower than another they have heard.
  /// Errors as manager::Manager::create.
  static Result<std::unique_ptr<Leader>> create(const boost::asio::any_io_executor& executor,
                                                ClusterText cluster,
                                                const Roster& roster,
                                                const NodeSelf& self,
                                                std::uint64_t term,
                                                Metrics& metrics,
                                                manager::LoadRecords& loads,
                                                LeaderHooks hooks);
  /// Ends all links; what runs on hosts goes on.
  ~Leader();
  Leader(const Leader&) = delete;
  Leader& operator=(const Leader&) = delete;

  /// A gateway has linked.
  void accept(std::unique_ptr<net::HostLink> link, const net::Peer& peer);
  /// As core::Serving has them.
  [[nodiscard]] std::vector<core::HostEntry> hosts() const;
  /// Hosts or gateways are others than before.
  void update_roster();
  /// kFailedPrecondition for what a running manager cannot take over.
  Result<void> reconfigure(ClusterText cluster);

 private:
  class Impl;
  explicit Leader(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace heddle::node
