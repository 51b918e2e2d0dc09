#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "base/ids.h"
#include "core/manager/manager_core.h"
#include "twin/agenda.h"
#include "twin/cluster_messages.h"
#include "twin/core_record.h"
#include "twin/setup.h"
#include "twin/wire.h"

namespace heddle::twin {

/// What a cluster is to have, as whoever leads reads it.
struct ClusterModels {
  std::uint64_t revision = 0;
  core::Configure manager{};  ///< With the devices of all hosts.
  core::AgentModels agent{};
};

/// One life of a manager that leads: the real ManagerCore, and its ends of the links with hosts and
/// gateways, as node::Leader, manager::Manager and remote::GatewayService have them. One thread.
class LeaderNode {
 public:
  using Record = CoreRecord<core::ManagerEvent, core::ManagerCommand>;
  struct Setup {
    std::uint64_t term = 0;
    std::size_t hosts = 0;     ///< Numbered from 1.
    std::size_t gateways = 0;  ///< Likewise.
    bool checked = false;      ///< As TwinSetup has it.
  };
  struct Hooks {
    /// The link with the host has ended: another is to be had.
    std::function<void(HostId)> on_gone{};
    /// No host is linked any more.
    std::function<void()> on_alone{};
    /// The core has heard an event, and what it wanted was done. May be empty.
    std::function<void()> on_heard{};
  };

  /// `times` and `agenda` outlive it, and it outlives what it puts on the agenda.
  LeaderNode(const Setup& setup,
             const ClusterModels& models,
             const ClusterTimes& times,
             Agenda& agenda,
             Hooks hooks);

  /// It has linked with the host, which it asks to follow.
  void meet(HostId host, const std::shared_ptr<Wire>& wire);
  /// A gateway has linked with it.
  void accept(FrontId front, const std::shared_ptr<Wire>& wire);
  /// The model has been idle for so long that it is given up.
  void give_up(ModelId model);
  /// From now on the cluster has these models.
  void configure(const ClusterModels& models);
  /// It does and hears nothing more.
  void die() { alive_ = false; }

  [[nodiscard]] bool alive() const { return alive_; }
  [[nodiscard]] std::uint64_t term() const { return setup_.term; }
  [[nodiscard]] const core::ManagerCore& core() const { return core_; }
  /// Events that its core has heard.
  [[nodiscard]] std::uint64_t heard() const { return heard_; }
  [[nodiscard]] const Record& record() const { return record_; }
  /// Of what is on the agenda, so much is that its core looks at what it has.
  [[nodiscard]] std::size_t timers() const { return timers_; }

 private:
  /// A host, and how far it has told of itself.
  struct Host {
    std::shared_ptr<Wire> wire{};
    bool met = false;  ///< Once, and its devices are known since.
    bool here = false;
    bool offered = false;
    bool known = false;
    std::vector<core::ManagerEvent> early{};  ///< What it has, before its offers are known.
    std::set<ModelId> offers{};               ///< The last.
  };
  struct Front {
    std::shared_ptr<Wire> wire{};  ///< None while it is not linked.
    std::uint64_t link = 0;        ///< Another number whenever a link comes or ends.
    bool told = false;             ///< Over this link it has said what requests it has.
  };
  /// Who asked for a load or an unload.
  struct Asked {
    FrontId front{};
    std::uint64_t link = 0;
    core::TicketId ticket{};
  };

  void hear(const core::ManagerEvent& event);
  void step(const core::ManagerEvent& event);

  void hear_host(HostId id, const Message& message);
  void take_offers(Host& host, const core::AgentModels& models);
  void lose(HostId id);
  void take_over();
  [[nodiscard]] core::Configure configured() const;
  void tell_host(HostId id, Message message);

  void hear_front(FrontId id, const Message& message);
  void ask(FrontId id, core::ManagerEvent admin);
  void lose_front(FrontId id);
  void tell_front(FrontId id, const Message& message);
  void tell_served();

  void unsettle(Duration at_most);
  void settle_if_known();
  void settle();

  template <class Order>
  void order(DeviceId device, const Order& order) {
    tell_host(host_of(device), core::AgentEvent(order));
  }
  void perform(const core::LoadOn& command) { order(command.device, command); }
  void perform(const core::EvictFrom& command) { order(command.device, command); }
  void perform(const core::FormGroup& command);
  void perform(const core::Weave& command) { order(command.host, command); }
  void perform(const core::Unweave& command) { order(command.host, command); }
  void perform(const core::LimitKv& /*command*/) {}  // A cluster here has no engines.
  void perform(const core::TellWorker& command) { tell_host(host_of(command.device), command); }
  template <class Command>
  void pass(const Command& command) {
    tell_front(front_of(command.request), command);
  }
  void perform(const core::Dispatch& command) { pass(command); }
  void perform(const core::Hold& command) { pass(command); }
  void perform(const core::FailRequest& command) { pass(command); }
  void perform(const core::AdminDone& command);
  void perform(const core::Decision& /*command*/) {}
  void perform(const core::LoadMeasured& /*command*/) {}
  void perform(const core::PlanMeasured& /*command*/) {}
  void perform(const core::Drained& /*command*/) {}
  void perform(const core::WakeAt& command);

  Setup setup_;
  ClusterModels models_;
  const ClusterTimes& times_;
  Agenda& agenda_;
  Hooks hooks_;
  core::ManagerCore core_{};
  std::deque<core::ManagerEvent> inbox_{};
  bool hears_ = false;
  std::map<HostId, Host> hosts_{};
  std::map<FrontId, Front> fronts_{};
  std::uint64_t links_given_ = 0;
  std::set<FrontId> told_{};  ///< Gateways that have said what runs.
  Served served_{};           ///< As gateways were told last.
  bool settled_ = false;
  bool started_ = false;         ///< It has decided something.
  std::uint64_t unsettled_ = 0;  ///< Times that it was not settled any more.
  std::map<core::TicketId, Asked> asked_{};
  std::uint64_t tickets_ = 0;
  Instant wakes_{};
  std::size_t timers_ = 0;
  bool alive_ = true;
  std::uint64_t heard_ = 0;
  Record record_{};
};

}  // namespace heddle::twin
