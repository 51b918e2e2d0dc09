#include "twin/engines.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace heddle::twin {

Engines::Engines(const HostSetup& setup, Agenda& agenda, bool checked, Handlers handlers)
    : agenda_(agenda), checked_(checked), handlers_(std::move(handlers)) {
  configure_ = {.devices = setup.engine_devices, .host_pages = setup.snapshot_pages};
  for (const TwinEngine& engine : setup.engines) {
    for (const spec::SuspendLevel level : engine.hosted.levels) {
      HEDDLE_CHECK(level == spec::SuspendLevel::kStop || engine.suspensions.contains(level));
    }
    configure_.engines.push_back(engine.hosted);
    engines_[engine.hosted.model].is = engine;
  }
}

void Engines::begin() {
  const bool any = !configure_.engines.empty() || !configure_.devices.empty();
  if (any && !std::exchange(begun_, true)) {
    hear(configure_);
  }
}

void Engines::hear(const core::EnginesEvent& event) {
  std::vector<core::EnginesCommand> commands;
  core_.step(agenda_.now(), event, commands);
  if (checked_) {
    core_.check_invariants();
  }
  for (const core::EnginesCommand& command : commands) {
    std::visit([this](const auto& concrete) { perform(concrete); }, command);
  }
}

// ---- What engines are told to do ----

/// What the engine does next; what it was at before comes to nothing.
void Engines::later(ModelId model, Duration delay, std::function<void(Engine&)> what) {
  const std::uint64_t turn = ++engines_.at(model).turn;
  agenda_.after(delay, [this, model, turn, what = std::move(what)] {
    Engine& engine = engines_.at(model);
    if (engine.turn == turn) {
      what(engine);
    }
  });
}

void Engines::perform(const core::StartEngine& command) {
  later(command.model, engines_.at(command.model).is.start, [this, command](Engine& engine) {
    engine.runs = true;
    hear(core::EngineStarted{
        .model = command.model, .life = command.life, .held_pages = engine.is.held_pages});
  });
}

/// It stands still from now on.
void Engines::perform(const core::SuspendEngine& command) {
  Engine& engine = engines_.at(command.model);
  engine.runs = false;
  engine.level = command.level;
  if (spec::keeps_requests(command.level)) {
    for (auto& [id, answer] : engine.answers) {
      answer.left = std::exchange(answer.alarm, 0) == 0 ? answer.left : answer.due - agenda_.now();
    }
  } else {
    lose_requests(engine);
  }
  const TwinSuspension& way = engine.is.suspensions.at(command.level);
  later(command.model, way.out, [this, command](Engine& suspended) {
    const TwinSuspension& by = suspended.is.suspensions.at(command.level);
    hear(core::EngineSuspended{.model = command.model,
                               .life = command.life,
                               .level = command.level,
                               .held_pages = by.held_pages,
                               .host_pages = by.host_pages});
  });
}

void Engines::perform(const core::ResumeEngine& command) {
  const Engine& engine = engines_.at(command.model);
  const Duration in = engine.is.suspensions.at(engine.level).in;
  later(command.model, in, [this, command](Engine& resumed) {
    resumed.runs = true;
    for (auto& [id, answer] : resumed.answers) {
      arm(command.model, answer, answer.left);
    }
    hear(core::EngineResumed{
        .model = command.model, .life = command.life, .held_pages = resumed.is.held_pages});
  });
}

void Engines::perform(const core::StopEngine& command) {
  Engine& engine = engines_.at(command.model);
  engine.runs = false;
  lose_requests(engine);
  later(command.model, engine.is.stop, [this, command](Engine& /*ended*/) {
    hear(core::EngineExited{.model = command.model, .life = command.life, .how = "exit status 0"});
  });
}

// No engine here is elastic.
void Engines::perform(const core::SetKvLimit& /*command*/) {
  HEDDLE_CHECK(false);
}
void Engines::perform(const core::NudgeEngine& /*command*/) {
  HEDDLE_CHECK(false);
}

// ---- Requests ----

bool Engines::take(Life place, const core::WorkerMessage& message) {
  if (const auto* submit = std::get_if<core::Submit>(&message)) {
    const auto engine = engines_.find(submit->model);
    if (engine == engines_.end()) {
      return false;
    }
    forward(engine->second, place, *submit);
    return true;
  }
  const auto* cancel = std::get_if<core::CancelRequest>(&message);
  return cancel != nullptr && std::ranges::any_of(engines_, [&](auto& entry) {
           return entry.second.answers.erase(cancel->request) > 0;
         });
}

/// One that does not run lets nobody in.
void Engines::forward(Engine& engine, Life place, const core::Submit& request) {
  if (!engine.runs) {
    handlers_.on_said(core::RequestUnanswered{.request = request.request});
    return;
  }
  Answering& answer = engine.answers[request.request];
  answer = {.place = place, .request = request};
  const auto prompt = static_cast<std::int64_t>(request.prompt.size());
  arm(request.model, answer, engine.is.first_token + prompt * engine.is.prompt_token);
}

void Engines::arm(ModelId model, Answering& answer, Duration delay) {
  answer.due = agenda_.now() + delay;
  answer.alarm = ++alarms_;
  agenda_.at(answer.due, [this, model, request = answer.request.request, alarm = alarms_] {
    this->answer(model, request, alarm);
  });
}

/// The next token of each of its choices.
void Engines::answer(ModelId model, RequestId request, std::uint64_t alarm) {
  Engine& engine = engines_.at(model);
  const auto found = engine.answers.find(request);
  if (found == engine.answers.end() || found->second.alarm != alarm) {
    return;
  }
  Answering& answer = found->second;
  const auto prompt = static_cast<std::int64_t>(answer.request.prompt.size());
  std::vector<core::TokenEvent> tokens;
  bool ended = true;
  for (const core::SubmitChoice& choice : answer.request.choices) {
    const std::int64_t position = std::ssize(choice.generated) + answer.given;
    const std::int64_t left = choice.params.max_tokens - position;
    if (left > 0) {
      tokens.push_back(
          {.request = request,
           .choice = choice.params.choice,
           .position = position,
           .token = right_token(prompt, choice.params.choice, position),
           .finish = left == 1 ? spec::FinishReason::kLength : spec::FinishReason::kNone});
      ended = ended && left == 1;
    }
  }
  ++answer.given;
  const Life place = answer.place;
  if (ended) {
    engine.answers.erase(found);
  } else {
    arm(model, answer, engine.is.token);
  }
  handlers_.on_tokens(place, tokens);
}

/// As when connections break: what had no token yet is sent elsewhere, the rest fails.
void Engines::lose_requests(Engine& engine) {
  for (const auto& [id, answer] : std::exchange(engine.answers, {})) {
    if (answer.given == 0) {
      handlers_.on_said(core::RequestUnanswered{.request = id});
    } else {
      handlers_.on_said(core::WorkerSaid{
          .device = answer.place.device,
          .epoch = answer.place.epoch,
          .report = core::RequestFailed{.request = id,
                                        .error = {Code::kUnavailable, "the engine has ended"}}});
    }
  }
}

}  // namespace heddle::twin
