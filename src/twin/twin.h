#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/agent_core.h"
#include "core/manager/manager_core.h"
#include "core/serving.h"
#include "twin/agenda.h"
#include "twin/setup.h"
#include "twin/worker.h"

namespace heddle::twin {

/// A whole host in virtual time: the cores of manager, agent and workers as they decide live,
/// between ways, readers, mappers and engines that only take their time. What it needs of these is
/// measured; nothing goes wrong. Equal setups and requests give equal answers. One thread.
class Twin final : public core::ServingStatus {
 public:
  /// Starts the workers; virtual time goes on until they are ready.
  explicit Twin(const TwinSetup& setup);
  ~Twin() override;

  /// Lets time go by until then, without requests.
  void rest(Instant until);

  /// Sends all of `asks` (by time, counted from now on) and lets time go by until the last answer
  /// has come; they are answered in the order of `asks`, in times counted likewise. Every
  /// `interval` of virtual time `moment` is called with how much has gone by.
  std::vector<Answer> run(const std::vector<Ask>& asks,
                          Duration interval,
                          const std::function<void(Duration)>& moment);

  [[nodiscard]] std::vector<core::ModelStatus> models() const override;
  [[nodiscard]] std::vector<core::DeviceStatus> devices() const override;
  [[nodiscard]] ledger::PoolUsage host_usage() const override;
  [[nodiscard]] std::vector<core::EngineStatus> engines() const override { return {}; }
  [[nodiscard]] std::vector<core::NotedDecision> decisions() const override { return decisions_; }
  [[nodiscard]] std::vector<std::string> troubles() const override { return {}; }

 private:
  struct Request {
    Ask ask{};
    Instant arrived{};
    Answer answer{};
    bool ended = false;
    std::int64_t most = 0;  ///< Tokens of its answer, where its device's memory ends.
  };
  /// When the last message each way arrives.
  struct Ways {
    Instant to{};
    Instant from{};
  };

  [[nodiscard]] std::uint64_t page_count() const;
  [[nodiscard]] const TwinDevice& device_of(DeviceId id) const;
  void settle();
  void give_up_idle();
  void arrive(RequestId id);
  void take(const core::TokenEvent& token);
  void end(Request& request);
  void send(DeviceId device, WorkerEpoch epoch, core::WorkerMessage message);
  void hear(const Worker& worker, const core::WorkerReport& report);
  void read_on(std::uint64_t done);

  void perform(const core::LoadOn& command) { pending_.emplace_back(core::AgentEvent(command)); }
  void perform(const core::EvictFrom& command) { pending_.emplace_back(core::AgentEvent(command)); }
  void perform(const core::FormGroup& command) { pending_.emplace_back(core::AgentEvent(command)); }
  void perform(const core::Dispatch& command);
  void perform(const core::Hold& /*command*/) {}
  void perform(const core::TellWorker& command);
  void perform(const core::FailRequest& command);
  void perform(const core::AdminDone& /*command*/) {}
  void perform(const core::Decision& command);
  void perform(const core::LoadMeasured& /*command*/) {}
  void perform(const core::Drained& /*command*/) {}
  void wake(core::WakeAt command, bool manager);

  void perform(const core::SpawnWorker& command);
  void perform(const core::KillWorker& command);
  void perform(const core::SendWorker& command);
  void perform(const core::ConnectGroup& command);
  void perform(const core::StartRead& command);
  void perform(const core::CancelRead& command);
  void perform(const core::TellManager& command) { pending_.emplace_back(command.event); }
  void perform(const core::GrantLoan& command);
  void perform(const core::RefuseLoan& command);
  void perform(const core::EndLoan& command);
  void perform(const core::BackPages& command);

  TwinSetup setup_;
  std::map<ModelId, TwinModel> models_{};
  std::map<ModelId, std::string> names_{};
  Agenda agenda_{};
  core::ManagerCore manager_{};
  core::AgentCore agent_;
  std::deque<std::variant<core::ManagerEvent, core::AgentEvent>> pending_{};
  std::map<DeviceId, std::shared_ptr<Worker>> workers_{};
  std::map<DeviceId, Ways> ways_{};
  std::optional<core::StartRead> reading_{};
  bool read_stops_ = false;
  std::vector<Request> requests_{};  ///< By id, of this run.
  std::size_t unanswered_ = 0;
  Instant start_{};
  Instant manager_wakes_{};
  Instant agent_wakes_{};
  std::vector<core::NotedDecision> decisions_{};
};

}  // namespace heddle::twin
