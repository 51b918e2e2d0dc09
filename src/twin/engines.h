#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "core/agent_core.h"
#include "core/engines_core.h"
#include "core/manager/events.h"
#include "twin/agenda.h"
#include "twin/contents.h"
#include "twin/setup.h"

namespace heddle::twin {

/// A host's external engines in virtual time: the real core::EnginesCore, and engines that take
/// their time to start, to be suspended, to come back, to end and to answer, as they are described.
/// Requests that an engine answers stand still while it is suspended by a level that keeps them;
/// by any other, and by its end, they are lost. One thread.
class Engines {
 public:
  struct Handlers {
    /// Its agent is to hear this (Borrow, Repay): not within this call.
    std::function<void(core::AgentEvent)> on_loan{};
    /// Its manager is to.
    std::function<void(const core::ManagerEvent&)> on_said{};
    std::function<void(Life, const std::vector<core::TokenEvent>&)> on_tokens{};
  };

  /// @param agenda   Outlives it, and it outlives what it puts there.
  /// @param checked  As TwinSetup has it.
  Engines(const HostSetup& setup, Agenda& agenda, bool checked, Handlers handlers);

  /// It begins: engines and their devices are told of. Of no effect where there are neither, or
  /// when it has begun.
  void begin();
  [[nodiscard]] bool hosts(ModelId model) const { return engines_.contains(model); }
  void hear(const core::EnginesEvent& event);
  /// A message to whatever runs the model of a request on the device. False, and of no effect,
  /// where no engine has to do with it.
  bool take(Life place, const core::WorkerMessage& message);

  /// By model.
  [[nodiscard]] std::vector<core::EngineStatus> status() const { return core_.engines(); }

 private:
  /// A request that an engine answers.
  struct Answering {
    Life place{};
    core::Submit request{};
    std::int64_t given = 0;   ///< Tokens of each choice, here.
    Instant due{};            ///< The next.
    Duration left{};          ///< Until then, while the engine stands still.
    std::uint64_t alarm = 0;  ///< Which alarm of the agenda is for it.
  };
  struct Engine {
    TwinEngine is{};
    bool runs = false;
    spec::SuspendLevel level = spec::SuspendLevel::kStop;  ///< The deepest it was suspended by.
    std::uint64_t turn = 0;  ///< Of what is under way; whatever was before it is not.
    std::map<RequestId, Answering> answers{};
  };

  void perform(const core::Borrow& command) { handlers_.on_loan(command); }
  void perform(const core::Repay& command) { handlers_.on_loan(command); }
  void perform(const core::TellManager& command) { handlers_.on_said(command.event); }
  void perform(const core::StartEngine& command);
  void perform(const core::SuspendEngine& command);
  void perform(const core::ResumeEngine& command);
  void perform(const core::StopEngine& command);
  void perform(const core::SetKvLimit& command);
  void perform(const core::NudgeEngine& command);

  void later(ModelId model, Duration delay, std::function<void(Engine&)> what);
  void forward(Engine& engine, Life place, const core::Submit& request);
  void arm(ModelId model, Answering& answer, Duration delay);
  void answer(ModelId model, RequestId request, std::uint64_t alarm);
  void lose_requests(Engine& engine);

  Agenda& agenda_;
  bool checked_;
  Handlers handlers_;
  core::ConfigureEngines configure_{};
  core::EnginesCore core_{};
  std::map<ModelId, Engine> engines_{};
  bool begun_ = false;
  std::uint64_t alarms_ = 0;
};

}  // namespace heddle::twin
