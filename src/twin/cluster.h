#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "core/serving.h"
#include "twin/agenda.h"
#include "twin/faults.h"
#include "twin/gateway_node.h"
#include "twin/host_node.h"
#include "twin/leader_node.h"
#include "twin/pipes.h"
#include "twin/setup.h"
#include "twin/wire.h"

namespace heddle::twin {

/// Several hosts in virtual time, with a manager and gateways on machines of their own: the cores
/// as they decide live, between links that take their time, break and are had again. What goes
/// wrong is planned. Equal setups, plans and calls give equal answers. One thread.
class Cluster final : public core::ServingStatus {
 public:
  /// Hosts are numbered from 1, as gateways are. Virtual time stands still until somebody lets it
  /// go by.
  explicit Cluster(const TwinSetup& setup, const FaultPlan& faults = {});

  /// Lets time go by until then, without requests.
  void rest(Instant until);
  /// As play(), once all workers are ready and the first gateway knows all models; that one is
  /// asked.
  std::vector<Answer> run(const std::vector<Ask>& asks,
                          Duration interval,
                          const std::function<void(Duration)>& moment);

  /// What the manager tells that leads now; nothing while none does.
  [[nodiscard]] std::vector<core::ModelStatus> models() const override;
  [[nodiscard]] std::vector<core::DeviceStatus> devices() const override;
  [[nodiscard]] ledger::PoolUsage host_usage() const override;
  [[nodiscard]] std::vector<core::EngineStatus> engines() const override { return {}; }
  [[nodiscard]] std::vector<core::NotedDecision> decisions() const override { return {}; }
  [[nodiscard]] std::vector<std::string> troubles() const override { return {}; }

  // ---- For whoever plays the clients and the operator himself ----

  /// Lets the next thing happen, and what follows from it at once. False when there is none.
  bool advance();
  /// Nothing is to happen but that cores look at what they have: all are there, and linked.
  [[nodiscard]] bool quiet() const;
  [[nodiscard]] Agenda& agenda() { return agenda_; }
  [[nodiscard]] Instant now() const { return agenda_.now(); }

  [[nodiscard]] GatewayNode& gateway(FrontId id) { return *gateways_.at(id); }
  /// A request for the first gateway arrives now, whatever its time is.
  void ask(const Ask& ask) { gateways_.begin()->second->ask(ask); }
  /// Of the first gateway.
  [[nodiscard]] const std::vector<Request>& requests() const {
    return gateways_.begin()->second->gateway().requests();
  }
  /// From now on there are these models; `manager` has the devices of all hosts.
  void configure(const core::Configure& manager, const std::vector<TwinModel>& models);

  [[nodiscard]] const std::map<FrontId, std::unique_ptr<GatewayNode>>& gateways() const {
    return gateways_;
  }
  /// Every life of every host, first to last; each is of the host that its number says.
  [[nodiscard]] const std::vector<std::pair<HostId, std::unique_ptr<HostNode>>>& hosts() const {
    return host_lives_;
  }
  /// Every life of every manager, first to last.
  [[nodiscard]] const std::vector<std::unique_ptr<LeaderNode>>& leaders() const { return leaders_; }
  [[nodiscard]] bool all_ended() const;

  // ---- For whoever has something go wrong himself. Of no effect on what is dead. ----

  /// The worker of the device dies.
  void kill(DeviceId device);
  /// The host dies with all its workers, and comes again after a while.
  void kill(HostId id);
  /// The manager dies, or is only taken for dead: another leads after a while.
  void kill_leader();
  /// The way over which one host links with another for pipelines is cut for a while.
  void cut(HostId from, HostId to);

 private:
  [[nodiscard]] bool all_up() const;
  void start();
  void give_up_idle();
  void some_time(int times, Duration within, const std::function<void()>& what);
  void plan(const FaultPlan& faults);
  void add_leader();
  void add_host(HostId id);
  [[nodiscard]] HostNode* host(HostId id) const;
  [[nodiscard]] LeaderNode* leader() const;

  void link_manager_host(LeaderNode& leader, HostId id);
  void link_gateway_host(FrontId front, HostId id);
  void link_gateway_manager(FrontId front);
  [[nodiscard]] Path& path_of(const LeaderNode& leader, HostId host);
  [[nodiscard]] Path& path_of(const LeaderNode& leader, FrontId front);
  [[nodiscard]] Path& path_of(FrontId front, HostId host);

  void end_leader(LeaderNode& old, bool silent);
  void kill_host();
  void cut(bool one_way);
  void reset();
  [[nodiscard]] Path& any_path();
  [[nodiscard]] Side any_side();
  void settle();

  TwinSetup setup_;
  bool started_ = false;
  std::map<ModelId, TwinModel> models_{};  ///< Of all configurations.
  Agenda agenda_{};
  Faults faults_;
  FaultPlan plan_;
  ClusterModels configured_{};
  std::map<std::pair<std::uint64_t, HostId>, Path> manager_hosts_{};      ///< By term.
  std::map<std::pair<std::uint64_t, FrontId>, Path> manager_gateways_{};  ///< Likewise.
  std::map<std::pair<FrontId, HostId>, Path> gateway_hosts_{};
  Pipes pipes_;
  std::map<FrontId, std::unique_ptr<GatewayNode>> gateways_{};
  std::vector<std::unique_ptr<LeaderNode>> leaders_{};
  std::vector<std::pair<HostId, std::unique_ptr<HostNode>>> host_lives_{};
  std::deque<std::pair<HostNode*, core::AgentEvent>> pending_{};
  std::vector<std::function<void()>> soon_{};  ///< What is to follow from what happens now.
};

}  // namespace heddle::twin
