#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "base/check.h"
#include "core/agent_core.h"
#include "core/host_memory.h"
#include "core/manager/events.h"
#include "twin/agenda.h"
#include "twin/contents.h"
#include "twin/core_record.h"
#include "twin/engines.h"
#include "twin/faults.h"
#include "twin/fetcher.h"
#include "twin/pipes.h"
#include "twin/reader.h"
#include "twin/setup.h"
#include "twin/worker.h"

namespace heddle::twin {

/// What a host has around it.
struct HostSurroundings {
  const std::map<ModelId, TwinModel>& models;  ///< Of all configurations.
  const Paths& paths;
  Agenda& agenda;
  Faults& faults;
  std::uint64_t page_bytes = 0;
  bool checked = false;  ///< As TwinSetup has it.
  Pipes& pipes;
  Fetcher::FindPeer find_peer{};  ///< By which models come from other hosts' caches.
};

/// Who hears of a host.
struct HostHandlers {
  /// Its agent is to hear this: then host.step() is called with it, in order.
  std::function<void(core::AgentEvent)> on_heard{};
  /// It says this to its manager, and remembers it.
  std::function<void(const core::ManagerEvent&)> on_said{};
  std::function<void(Life, const std::vector<core::TokenEvent>&)> on_tokens{};
};

/// One life of a host in virtual time: its agent's core, its memory, its reader and its workers.
/// One thread.
class Host {
 public:
  using Record = CoreRecord<core::AgentEvent, core::AgentCommand>;

  /// What is around it outlives it, and it outlives what it puts on the agenda.
  Host(const HostSetup& setup, const HostSurroundings& around, HostHandlers handlers);

  /// Its agent hears that; or its engines do, where it is about one of them.
  void step(const core::AgentEvent& event);
  /// A message to that life of a worker, lost where it has ended; or to an engine on its device.
  void send(DeviceId device, WorkerEpoch epoch, core::WorkerMessage message);
  /// The device's worker dies now, if one runs there.
  void kill(DeviceId device);
  /// The machine dies: nothing of it does, hears or says anything more.
  void die();
  [[nodiscard]] Fetcher& fetcher() { return fetcher_; }

  [[nodiscard]] bool alive() const { return alive_; }
  [[nodiscard]] const core::AgentCore& agent() const { return agent_; }
  [[nodiscard]] const Engines& engines() const { return engines_; }
  /// What a manager that comes now has to hear.
  [[nodiscard]] std::vector<core::ManagerEvent> known() const {
    return memory_.all(agent_.models());
  }
  [[nodiscard]] const core::HostMemory& memory() const { return memory_; }
  /// The worker that leads a group for the model is connected with the others.
  [[nodiscard]] bool is_connected(DeviceId device, WorkerEpoch epoch, ModelId model) const {
    return groups_.contains({device, epoch, model});
  }
  /// The worker that runs there; null: none does.
  [[nodiscard]] const Worker* worker(DeviceId device) const;
  /// Every life of every worker, first to last.
  [[nodiscard]] const std::vector<std::shared_ptr<Worker>>& lives() const { return lives_; }
  /// Empty unless TwinSetup::checked.
  [[nodiscard]] const Record& record() const { return record_; }
  /// Of what is on the agenda, so much is that its agent looks at what it has.
  [[nodiscard]] std::size_t timers() const { return timers_; }

 private:
  /// When the last message each way arrives.
  struct Ways {
    Instant to{};
    Instant from{};
  };

  [[nodiscard]] std::uint64_t page_count() const;
  [[nodiscard]] const TwinDevice& device_of(DeviceId id) const;
  void heard(core::AgentEvent event) const;
  [[nodiscard]] HostId id() const { return host_of(setup_.devices.front().device.id); }
  [[nodiscard]] Engines::Handlers engine_handlers();
  void say(const core::ManagerEvent& event);
  [[nodiscard]] Instant arrival_at(DeviceId device);
  void connect_pipe(const core::ConnectGroup& command);
  void connect_ranks(const core::ConnectGroup& command);
  void hear(const Worker& worker, const core::WorkerReport& report);

  void perform(const core::SpawnWorker& command);
  void perform(const core::KillWorker& command);
  void perform(const core::SendWorker& command);
  void perform(const core::ConnectGroup& command);
  void perform(const core::LeaveGroup& command);
  void perform(const core::ConnectGuests& command);
  // Devices here are parts of the host, whose memory is nobody's to share.
  void perform(const core::ShareMemory& /*command*/) { HEDDLE_CHECK(false); }
  void perform(const core::PassMemory& /*command*/) { HEDDLE_CHECK(false); }
  void perform(const core::LeaseGuests& /*command*/) {}  // Blocks elsewhere are nobody's here.
  void perform(const core::DisconnectGuests& command);
  void perform(const core::StartRead& command);
  void perform(const core::CancelRead& command);
  void perform(const core::TellManager& command);
  void perform(const core::GrantLoan& command) {
    engines_.hear(core::LoanGranted{.model = command.model});
  }
  void perform(const core::RefuseLoan& command) {
    engines_.hear(core::LoanRefused{.model = command.model, .reason = command.reason});
  }
  void perform(const core::EndLoan& command) {
    engines_.hear(core::LoanRepaid{.model = command.model});
  }
  void perform(const core::BackPages& command);
  void perform(const core::WakeAt& command);

  HostSetup setup_;
  HostSurroundings around_;
  HostHandlers handlers_;
  std::optional<Contents> contents_{};
  core::HostMemory memory_{};
  core::AgentCore agent_;
  Reader reader_;
  Fetcher fetcher_;
  Engines engines_;
  std::vector<std::shared_ptr<Worker>> lives_{};
  std::map<DeviceId, std::shared_ptr<Worker>> workers_{};  ///< Those that run.
  std::map<DeviceId, Ways> ways_{};
  std::set<std::tuple<DeviceId, WorkerEpoch, ModelId>> groups_{};  ///< Connected, by leader.
  Instant wakes_{};
  std::size_t timers_ = 0;
  bool alive_ = true;
  Record record_{};
};

}  // namespace heddle::twin
