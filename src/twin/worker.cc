#include "twin/worker.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace heddle::twin {

Worker::Worker(const TwinDevice& device,
               WorkerEpoch epoch,
               std::uint64_t page_count,
               const std::vector<PageId>& pages,
               const std::map<ModelId, TwinModel>& models,
               Agenda& agenda,
               OnReport on_report)
    : device_(device),
      epoch_(epoch),
      known_(models),
      agenda_(agenda),
      on_report_(std::move(on_report)),
      core_([&] {
        core::WorkerOptions options = device.worker;
        options.epoch = epoch;
        options.pages = std::ssize(pages);
        return options;
      }()),
      kv_(page_count, pages, device.worker.prefix_cache > 0),
      link_(device.link, agenda, [this](ModelId model, std::uint64_t bytes) {
        copied(model, bytes);
      }) {}

void Worker::hear(const core::WorkerMessage& message) {
  // What the worker's link passes on past the engine, which may be waiting in a step.
  if (const auto* progress = std::get_if<core::ImageProgress>(&message)) {
    const auto found = models_.find(progress->model);
    if (found != models_.end() && found->second.open.source == core::ImageSource::kGiven) {
      found->second.ready = std::max(found->second.ready, progress->bytes);
    } else if (found != models_.end()) {
      link_.allow(progress->model, progress->bytes);
    }
  }
  const auto* evict = std::get_if<core::EvictModel>(&message);
  if (evict != nullptr && evict->mode == core::EvictMode::kNow && models_.contains(evict->model)) {
    models_.at(evict->model).abandoned = true;
  }
  queue(message);
  check_waiting_step();
}

void Worker::queue(const core::WorkerEvent& event) {
  inbox_.push_back({.event = event, .at = agenda_.now()});
  work();
}

void Worker::lead(ModelId model, Duration pace_step, Duration pace_token) {
  Model& leading = models_.at(model);
  leading.pace_step = pace_step;
  leading.pace_token = pace_token;
}

/// A step begins only when nothing is left to hear.
void Worker::work() {
  while (!step_) {
    const bool idle = inbox_.empty();
    if (idle && idle_said_) {
      return;
    }
    core::WorkerEvent event = core::EngineIdle{};
    if (!idle) {
      event = std::move(inbox_.front().event);
      if (auto* message = std::get_if<core::WorkerMessage>(&event)) {
        core::grow_older(*message, agenda_.now() - inbox_.front().at);
      }
      inbox_.pop_front();
    }
    idle_said_ = idle;
    tell(event);
  }
}

void Worker::tell(const core::WorkerEvent& event) {
  if (const auto* closed = std::get_if<core::ModelClosed>(&event)) {
    close(closed->model);
  }
  std::vector<core::WorkerCommand> commands;
  core_.step(agenda_.now(), event, commands);
  for (const core::WorkerCommand& command : commands) {
    std::visit([this](const auto& concrete) { perform(concrete); }, command);
  }
  if (kv_.changed()) {
    answers_.emplace_back(kv_.counted());
  }
  for (const core::WorkerEvent& answer : std::exchange(answers_, {})) {
    tell(answer);
  }
}

// ---- Pages and images ----

void Worker::perform(const core::AdoptPages& command) {
  for (const PageId page : command.pages) {
    kv_.put(page);
  }
}

void Worker::perform(const core::SurrenderPages& command) {
  core::PagesReturned returned{.model = command.model};
  for (std::int64_t i = 0; i < command.count; ++i) {
    returned.pages.push_back(kv_.take());
  }
  on_report_(*this, returned);
}

/// The mapper does one thing after the other.
void Worker::map_later(std::size_t pages, std::function<void()> what) {
  mapper_free_ = std::max(mapper_free_, agenda_.now()) +
                 from_seconds(static_cast<double>(pages) * device_.map_page);
  agenda_.at(mapper_free_, [self = shared_from_this(), what = std::move(what)] { what(); });
}

void Worker::resize(std::vector<PageId>& pages, std::int64_t count) {
  for (; std::ssize(pages) < count; pages.push_back(kv_.take())) {
  }
  for (; std::ssize(pages) > count; pages.pop_back()) {
    kv_.put(pages.back());
  }
}

void Worker::perform(const core::FitWorkspace& command) {
  resize(workspace_, command.pages);
}

void Worker::perform(const core::KeepGraphs& command) {
  resize(graphs_, command.pages);
  answers_.emplace_back(core::GraphsKept{.pages = command.pages});
}

void Worker::perform(const core::OpenModel& command) {
  Model& model = models_[command.model];
  model = {.open = command, .window = command.pages, .source = command.ready_bytes};
  kv_.add_model(command.model, known_.at(command.model).model.footprint.kv);
  if (command.source == core::ImageSource::kShared) {
    for (PageId& page : model.window) {
      page = kv_.take();
    }
  } else {
    model.ready = command.ready_bytes;
  }
  map_later(command.pages.size(), [this, id = command.model] {
    const auto found = models_.find(id);
    if (found == models_.end() || found->second.closing) {
      return;
    }
    Model& here = found->second;
    here.opened = true;
    queue(core::ModelOpened{.model = id});
  });
  if (command.source == core::ImageSource::kShared) {
    link_.begin(command.model, command.image_bytes, command.ready_bytes);  // While it is mapped.
  }
}

void Worker::copied(ModelId id, std::uint64_t bytes) {
  Model& model = models_.at(id);
  model.ready = std::max(model.ready, bytes);
  queue(core::CopyProgress{.model = id, .bytes = bytes});
  check_waiting_step();
}

void Worker::perform(const core::CloseModel& command) {
  Model& model = models_.at(command.model);
  model.closing = true;
  model.to_pool = command.image == core::ImagePages::kToPool;
  link_.stop(command.model);
  kv_.drop_model(command.model);
  map_later(model.window.size(),
            [this, id = command.model] { queue(core::ModelClosed{.model = id}); });
}

void Worker::close(ModelId id) {
  const Model closed = models_.extract(id).mapped();
  for (const PageId page : closed.to_pool ? closed.window : std::vector<PageId>{}) {
    kv_.put(page);
  }
}

void Worker::perform(const core::SetImageReady& command) {
  Model& model = models_.at(command.model);
  model.ready = std::max(model.ready, command.bytes);
}

void Worker::perform(const core::SetSourceReady& command) {
  models_.at(command.model).source = command.bytes;
  link_.allow(command.model, command.bytes);
}

void Worker::perform(const core::PrioritiseCopy& command) {
  link_.prioritise(command.model);
}

// ---- Sequences ----

void Worker::perform(const core::AddSequence& command) {
  sequences_[command.sequence] = {.model = command.model,
                                  .known = std::ssize(command.tokens),
                                  .generated = std::ssize(command.tokens) - command.prompt_tokens,
                                  .most = command.params.max_tokens};
  if (command.params.grammar.constrains()) {
    answers_.emplace_back(core::SequenceReady{.sequence = command.sequence});  // It takes no time.
  }
}

void Worker::perform(const core::TakePrefixes& command) {
  core::PrefixesTaken taken;
  for (const SequenceId id : command.sequences) {
    taken.sequences.push_back({.sequence = id, .computed = 0});
  }
  idle_said_ = false;
  answers_.emplace_back(taken);
}

void Worker::perform(const core::TrimCached& command) {
  kv_.trim(command.keep);
}

void Worker::perform(const core::PreemptSequence& command) {
  Sequence& sequence = sequences_.at(command.sequence);
  sequence.computed = 0;
  kv_.remove(sequence.model, command.sequence);
}

void Worker::perform(const core::RemoveSequence& command) {
  const auto found = sequences_.find(command.sequence);
  kv_.remove(found->second.model, command.sequence);
  sequences_.erase(found);
}

void Worker::perform(const core::Report& command) {
  on_report_(*this, command.report);
}

// ---- Steps ----

/// Whether it ends in a token: all that is known of the sequence is computed then.
bool Worker::samples(const policy::StepSlice& slice) const {
  const Sequence& sequence = sequences_.at(slice.sequence);
  return sequence.computed + slice.tokens == sequence.known;
}

/// Only for tokens the head has to be there.
bool Worker::has_weights(const policy::ModelBatch& batch) const {
  const Model& model = models_.at(batch.model);
  const bool head = std::any_of(batch.slices.begin(),
                                batch.slices.end(),
                                [this](const policy::StepSlice& slice) { return samples(slice); });
  return model.ready >= (head ? model.open.image_bytes : known_.at(batch.model).body_bytes);
}

/// What the engine computes, were all weights there.
Duration Worker::compute_time(const policy::StepPlan& plan) const {
  double seconds = 0;
  for (const policy::ModelBatch& batch : plan.batches) {
    const StepTimes& times = known_.at(batch.model).step;
    seconds += times.fixed;
    for (const policy::StepSlice& slice : batch.slices) {
      const Sequence& sequence = sequences_.at(slice.sequence);
      const auto tokens = static_cast<double>(slice.tokens);
      const auto past = static_cast<double>(sequence.computed);
      seconds += tokens * times.token;
      seconds += samples(slice) ? times.row : 0;
      seconds += slice.tokens == 1 ? past * times.context
                                   : (tokens * past + tokens * tokens / 2) * times.pair;
    }
  }
  return from_seconds(seconds);
}

Duration Worker::paced_time(const policy::StepPlan& plan) const {
  Duration paced = device_.pace_step;
  for (const policy::ModelBatch& batch : plan.batches) {
    paced = std::max(paced, models_.at(batch.model).pace_step);
  }
  for (const policy::ModelBatch& batch : plan.batches) {
    const Duration token = std::max(device_.pace_token, models_.at(batch.model).pace_token);
    for (const policy::StepSlice& slice : batch.slices) {
      paced += token * slice.tokens;
    }
  }
  return paced;
}

void Worker::perform(const core::RunStep& command) {
  HEDDLE_CHECK(!step_);
  Step& step = step_.emplace(Step{.plan = command.plan,
                                  .began = agenda_.now(),
                                  .compute = compute_time(command.plan),
                                  .waits = true});
  for (const policy::ModelBatch& batch : command.plan.batches) {
    for (const policy::StepSlice& slice : batch.slices) {
      const Sequence& sequence = sequences_.at(slice.sequence);
      if (!kv_.grow(batch.model, slice.sequence, sequence.computed + slice.tokens)) {
        step.starved.insert(slice.sequence);
      }
    }
  }
  static_cast<void>(kv_.changed());  // StepDone will tell.
  check_waiting_step();
}

/// A step goes on layer by layer as the weights come; once the last have come, the last layer is
/// left to do.
void Worker::check_waiting_step() {
  if (!step_ || !step_->waits) {
    return;
  }
  std::int64_t layers = 1;
  for (const policy::ModelBatch& batch : step_->plan.batches) {
    const Model& model = models_.at(batch.model);
    if (!model.abandoned && !has_weights(batch)) {
      return;
    }
    layers = std::max(layers, known_.at(batch.model).layers);
  }
  step_->waits = false;
  const Instant computed =
      std::max(step_->began + step_->compute, agenda_.now() + step_->compute / layers);
  const Instant ends = std::max(computed, step_->began + paced_time(step_->plan));
  agenda_.at(ends + device_.step_overhead, [self = shared_from_this()] { self->end_step(); });
}

void Worker::run_slice(const policy::StepSlice& slice, core::StepDone& done) {
  Sequence& sequence = sequences_.at(slice.sequence);
  sequence.computed += slice.tokens;
  kv_.compute(sequence.model, slice.sequence, sequence.computed);
  core::SliceDone result{.sequence = slice.sequence, .computed = sequence.computed};
  if (sequence.computed == sequence.known) {
    result.position = sequence.generated;
    result.token = TokenId{1};
    ++sequence.known;
    ++sequence.generated;
    if (sequence.generated == sequence.most) {
      result.finish = spec::FinishReason::kLength;
    }
  }
  done.slices.push_back(result);
}

void Worker::end_step() {
  ++steps_;
  const Step step = *std::exchange(step_, std::nullopt);
  core::StepDone done{.took = agenda_.now() - step.began};
  for (const policy::ModelBatch& batch : step.plan.batches) {
    const bool ready = has_weights(batch);
    for (const policy::StepSlice& slice : batch.slices) {
      if (step.starved.contains(slice.sequence)) {
        done.starved.push_back(slice.sequence);
      } else if (!ready) {
        done.unready.push_back(slice.sequence);
      } else {
        run_slice(slice, done);
      }
    }
  }
  static_cast<void>(kv_.changed());  // This tells.
  done.counted = kv_.counted();
  tell(done);
  idle_said_ = false;
  work();
}

}  // namespace heddle::twin
