#include <utility>

#include "base/check.h"
#include "engine/kept_kv.h"
#include "worker/device_executor.h"

/// What DeviceExecutor does with sequences and their KV between steps.
namespace heddle::worker {

void DeviceExecutor::execute(core::AddSequence& command, std::vector<core::WorkerEvent>& events) {
  const core::SequenceId id = command.sequence;
  if (command.adapter.empty()) {
    compile(command, nullptr, events);
    return;
  }
  auto adapter = adapter_files_->ask(id, command.model, command.adapter);
  if (!adapter) {
    refuse_sequence(id, adapter.error(), events);
  } else if (*adapter == nullptr) {
    compiling_.emplace(id, Waiting{.command = std::move(command)});
  } else {
    compile(command, std::move(*adapter), events);
  }
}

/// Adds a sequence whose adapter, if it has one, is open: at once, or when its grammar is compiled.
void DeviceExecutor::compile(core::AddSequence& command,
                             AdapterFiles::Handle adapter,
                             std::vector<core::WorkerEvent>& events) {
  const core::SequenceId id = command.sequence;
  if (!command.params.grammar.constrains()) {
    add(command, std::move(adapter), nullptr, events);
  } else if (auto grammar = grammars_->ask(id, command.model, command.params.grammar)) {
    add(command, std::move(adapter), std::move(grammar), events);
  } else {
    compiling_.emplace(id, Waiting{.command = std::move(command), .adapter = std::move(adapter)});
  }
}

void DeviceExecutor::refuse_sequence(core::SequenceId id,
                                     const Error& error,
                                     std::vector<core::WorkerEvent>& events) {
  note_refused(id);
  events.push_back(core::SequenceRefused{.sequence = id, .error = error});
}

void DeviceExecutor::add(core::AddSequence& command,
                         AdapterFiles::Handle adapter,
                         Grammars::Matcher grammar,
                         std::vector<core::WorkerEvent>& events) {
  const core::SequenceId id = command.sequence;
  const bool waited = grammar != nullptr || adapter != nullptr;
  const Result<void> added = engine_->add_sequence({.id = id,
                                                    .model = command.model,
                                                    .tokens = std::move(command.tokens),
                                                    .prompt_tokens = command.prompt_tokens,
                                                    .params = std::move(command.params),
                                                    .grammar = std::move(grammar),
                                                    .cache_salt = std::move(command.cache_salt),
                                                    .adapter = std::move(adapter)});
  if (!added) {
    note_refused(id);
    events.push_back(core::SequenceRefused{.sequence = id, .error = added.error()});
  } else if (waited) {
    events.push_back(core::SequenceReady{.sequence = id});
  }
}

void DeviceExecutor::finish_add(core::SequenceId sequence, std::vector<core::WorkerEvent>& events) {
  const auto found = compiling_.find(sequence);
  if (found == compiling_.end()) {
    return;  // It was removed meanwhile, or somebody waited for it.
  }
  if (!found->second.command.adapter.empty() && found->second.adapter == nullptr) {
    auto adapter = adapter_files_->take(sequence);
    if (!adapter) {
      return;
    }
    core::AddSequence command = std::move(compiling_.extract(found).mapped().command);
    if (*adapter) {
      compile(command, std::move(**adapter), events);
    } else {
      refuse_sequence(sequence, adapter->error(), events);
    }
    return;
  }
  Waiting waiting = std::move(compiling_.extract(found).mapped());
  auto grammar = grammars_->take(sequence);
  if (grammar) {
    add(waiting.command, std::move(waiting.adapter), std::move(*grammar), events);
    return;
  }
  refuse_sequence(sequence, grammar.error(), events);
}

/// Rank 0 runs a sequence once its own grammar is compiled. Another rank has been at it as long.
void DeviceExecutor::await_grammars(const core::WorkerCommand& command,
                                    std::vector<core::WorkerEvent>& events) {
  if (const auto* take = std::get_if<core::TakePrefixes>(&command)) {
    for (const core::SequenceId id : take->sequences) {
      finish_add(id, events);
    }
  } else if (const auto* run = std::get_if<core::RunStep>(&command)) {
    for (const policy::ModelBatch& batch : run->plan.batches) {
      for (const policy::StepSlice& slice : batch.slices) {
        finish_add(slice.sequence, events);
      }
    }
  }
}

void DeviceExecutor::execute(const core::TakePrefixes& command,
                             std::vector<core::WorkerEvent>& events) {
  core::PrefixesTaken taken;
  for (std::size_t i = 0; i < command.sequences.size(); ++i) {
    const core::SequenceId id = command.sequences[i];
    const Duration computing = i < command.computing.size() ? command.computing[i] : Duration{};
    if (!refused_.contains(id)) {
      taken.sequences.push_back({.sequence = id, .computed = engine_->take_prefix(id, computing)});
    }
  }
  kv_changed_ = true;
  events.push_back(std::move(taken));
}

void DeviceExecutor::execute(const core::DropKept& command,
                             std::vector<core::WorkerEvent>& /*events*/) {
  engine::KeptKv(*engine_).forget(command.model);
}

void DeviceExecutor::execute(const core::TrimCached& command,
                             std::vector<core::WorkerEvent>& /*events*/) {
  engine_->trim_cached(command.keep, command.reason);
  kv_changed_ = true;
}

core::KvCounted DeviceExecutor::counted() const {
  core::KvCounted counted{.cached_pages = engine_->cached_pages()};
  for (const auto& [model, opened] : opened_) {
    if (opened.registered) {
      counted.kv.push_back({.model = model,
                            .pages = engine_->kv_pages(model),
                            .guest_pages = guests_->used_pages(model)});
    }
  }
  return counted;
}

void DeviceExecutor::count_kv(std::vector<core::WorkerEvent>& events) {
  if (std::exchange(kv_changed_, false)) {
    events.push_back(counted());
  }
}

void DeviceExecutor::execute(const core::PreemptSequence& command,
                             std::vector<core::WorkerEvent>& /*events*/) {
  kv_asks_.erase(command.sequence);
  engine_->preempt(command.sequence);
  kv_changed_ = true;
}

std::optional<Error> DeviceExecutor::refuse(const core::LendGuests& lend) {
  std::optional<Error> failure = guests_->unable(lend.model, lend.pages);
  if (failure) {
    guests_->unmap(lend.model, lend.pages);
  }
  return failure;
}

void DeviceExecutor::execute(const core::TakeGuestPages& command,
                             std::vector<core::WorkerEvent>& /*events*/) {
  guests_->take(command.model, command.pages);
}

void DeviceExecutor::execute(const core::ReturnGuestPages& command,
                             std::vector<core::WorkerEvent>& /*events*/) {
  handlers_.on_report(guests_->give_back(command.model, command.count));
}

void DeviceExecutor::execute(const core::MoveOut& command, std::vector<core::WorkerEvent>& events) {
  const std::int64_t away = guests_->move_out(command.sequence, command.tokens);
  kv_changed_ = false;  // This tells.
  events.push_back(
      core::GuestsMoved{.sequence = command.sequence, .tokens = away, .counted = counted()});
}

void DeviceExecutor::execute(const core::MoveHome& command,
                             std::vector<core::WorkerEvent>& events) {
  const std::int64_t away = guests_->move_home(command.sequence);
  kv_changed_ = false;  // This tells.
  events.push_back(
      core::GuestsMoved{.sequence = command.sequence, .tokens = away, .counted = counted()});
}

std::vector<core::SliceDone> DeviceExecutor::slices_of(engine::StepOutcome& outcome) {
  std::vector<core::SliceDone> slices;
  for (engine::SliceResult& slice : outcome.results) {
    slices.push_back({.sequence = slice.sequence,
                      .computed = slice.computed,
                      .token = slice.token,
                      .position = slice.position,
                      .finish = slice.finish,
                      .details = std::move(slice.details)});
  }
  return slices;
}

/// What the engine cannot go on with goes; before its KV is counted.
void DeviceExecutor::forget_failed(const engine::StepOutcome& outcome) {
  for (const engine::SequenceFailure& failure : outcome.failed) {
    engine_->remove_sequence(failure.sequence);
    note_refused(failure.sequence);
  }
}

void DeviceExecutor::tell_failed(engine::StepOutcome& outcome,
                                 std::vector<core::WorkerEvent>& events) {
  for (engine::SequenceFailure& failure : outcome.failed) {
    events.push_back(
        core::SequenceRefused{.sequence = failure.sequence, .error = std::move(failure.error)});
  }
}

void DeviceExecutor::execute(const core::RemoveSequence& command,
                             std::vector<core::WorkerEvent>& /*events*/) {
  remove(command.sequence);
}

void DeviceExecutor::note_refused(core::SequenceId id) {
  refused_.insert(id);
  for (auto& [shard, rank] : ranks_) {
    rank.lockstep->forget(id);
    rank.followed.erase(id);
  }
}

void DeviceExecutor::remove(core::SequenceId id) {
  kv_asks_.erase(id);
  if (compiling_.erase(id) > 0) {
    grammars_->forget(id);
    adapter_files_->forget(id);
  } else if (refused_.erase(id) == 0) {
    engine_->remove_sequence(id);
    kv_changed_ = true;
  }
}

/// What the engine has of sequences of another rank's core, for this shard.
void DeviceExecutor::forget_followed(ModelId shard) {
  const auto rank = ranks_.find(shard);
  if (rank == ranks_.end()) {
    return;
  }
  for (const core::SequenceId id : std::exchange(rank->second.followed, {})) {
    remove(id);
  }
}

}  // namespace heddle::worker
