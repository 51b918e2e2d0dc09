#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "core/agent_core.h"
#include "core/manager/manager_core.h"
#include "core/serving.h"
#include "twin/agenda.h"
#include "twin/core_record.h"
#include "twin/faults.h"
#include "twin/gateway.h"
#include "twin/host.h"
#include "twin/setup.h"
#include "twin/worker.h"

namespace heddle::twin {

/// A host that has its manager and its gateway in the same process, in virtual time: the cores of
/// manager, agent and workers as they decide live, between ways, readers, mappers and engines that
/// only take their time. What it needs of these is measured; what goes wrong is planned. Equal
/// setups, plans and requests give equal answers. Cluster has several hosts. One thread.
class Twin final : public core::ServingStatus {
 public:
  using ManagerRecord = CoreRecord<core::ManagerEvent, core::ManagerCommand>;
  using AgentRecord = Host::Record;

  /// Of one host. Virtual time stands still until somebody lets it go by.
  explicit Twin(const TwinSetup& setup, const FaultPlan& faults = {});
  ~Twin() override;

  /// Lets time go by until then, without requests.
  void rest(Instant until);

  /// As play(), once all workers are ready.
  std::vector<Answer> run(const std::vector<Ask>& asks,
                          Duration interval,
                          const std::function<void(Duration)>& moment);

  // ---- For whoever plays the clients and the operator himself ----

  /// Lets the next thing happen, and what follows from it at once. False when there is none.
  bool advance();
  /// Nothing is to happen but that cores look at what they have.
  [[nodiscard]] bool quiet() const { return agenda_.size() == timers_ + host_.timers(); }
  [[nodiscard]] Agenda& agenda() { return agenda_; }
  [[nodiscard]] Instant now() const { return agenda_.now(); }
  /// A request arrives now, whatever its time is.
  RequestId ask(const Ask& ask);
  void cancel(RequestId id);
  /// As when a stop string appears: no more of this choice is needed.
  void finish_choice(RequestId id, std::uint32_t choice);
  /// The device's worker dies now, if one runs there.
  void kill(DeviceId device) { host_.kill(device); }
  void tell(const core::ManagerEvent& event) { pending_.emplace_back(event); }
  /// From now on there are these models, and requests for no others arrive.
  void configure(const core::Configure& manager, const std::vector<TwinModel>& models);

  [[nodiscard]] const std::vector<Request>& requests() const { return gateway_.requests(); }
  [[nodiscard]] bool all_ended() const { return gateway_.ended() == requests().size(); }
  [[nodiscard]] std::int64_t admin_answers() const { return admin_answers_; }
  /// Every life of every worker, first to last.
  [[nodiscard]] const std::vector<std::shared_ptr<Worker>>& lives() const { return host_.lives(); }
  /// Empty unless TwinSetup::checked.
  [[nodiscard]] const ManagerRecord& manager_record() const { return manager_record_; }
  [[nodiscard]] const AgentRecord& agent_record() const { return host_.record(); }

  [[nodiscard]] std::vector<core::ModelStatus> models() const override;
  [[nodiscard]] std::vector<core::DeviceStatus> devices() const override;
  [[nodiscard]] ledger::PoolUsage host_usage() const override;
  [[nodiscard]] std::vector<core::EngineStatus> engines() const override {
    return host_.engines().status();
  }
  [[nodiscard]] std::vector<core::NotedDecision> decisions() const override { return decisions_; }
  [[nodiscard]] std::vector<std::string> troubles() const override { return {}; }

 private:
  [[nodiscard]] HostSurroundings around();
  [[nodiscard]] HostHandlers handlers();
  [[nodiscard]] bool all_up() const;
  void start();
  void plan_deaths(const FaultPlan& plan);
  void plan_cuts(const FaultPlan& plan);
  void kill_manager();
  void cut_manager();
  void cut_gateway();
  void catch_up();
  [[nodiscard]] bool accepts(const core::WorkerSaid& said);
  template <class Order>
  void order(const Order& command) {
    if (!cut_) {
      pending_.emplace_back(core::AgentEvent(command));
    }
  }
  void settle();
  void step(const core::ManagerEvent& event);
  void said(const core::ManagerEvent& event);
  void give_up_idle();
  void arrive(RequestId id);

  void perform(const core::LoadOn& command) { order(command); }
  void perform(const core::EvictFrom& command) { order(command); }
  void perform(const core::FormGroup& command) { order(command); }
  void perform(const core::Weave& command) { order(command); }
  void perform(const core::Unweave& command) { order(command); }
  void perform(const core::LimitKv& /*command*/) {}  // No engine is elastic.
  void perform(const core::Dispatch& command);
  void perform(const core::Hold& command) { gateway_.hold(command.request); }
  void give_up(RequestId id);
  [[nodiscard]] bool ended_unheard(RequestId id);
  void perform(const core::TellWorker& command);
  void perform(const core::FailRequest& command);
  void perform(const core::AdminDone& /*command*/) { ++admin_answers_; }
  void perform(const core::Decision& command);
  void perform(const core::LoadMeasured& command);
  void perform(const core::PlanMeasured& command);
  void perform(const core::Drained& /*command*/) {}
  void perform(const core::WakeAt& command);

  TwinSetup setup_;
  std::map<ModelId, TwinModel> models_{};  ///< Of all configurations.
  std::map<ModelId, std::string> names_{};
  std::map<ModelId, Duration> ttls_{};
  std::set<ModelId> sharded_{};
  Agenda agenda_{};
  Faults faults_;
  Pipes pipes_;
  core::ManagerCore manager_{};
  core::Configure configured_{};  ///< As a new manager is told.
  bool managed_ = true;           ///< There is a manager.
  bool cut_ = false;              ///< Manager and host do not hear each other.
  Gateway gateway_;
  Host host_;
  std::deque<std::variant<core::ManagerEvent, core::AgentEvent>> pending_{};
  bool started_ = false;
  std::int64_t admin_answers_ = 0;
  Instant manager_wakes_{};
  std::size_t timers_ = 0;  ///< Of what is on the agenda, the manager's.
  std::vector<core::NotedDecision> decisions_{};
  ManagerRecord manager_record_{};
};

}  // namespace heddle::twin
