#include "twin/worker.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace heddle::twin {

namespace {

core::WorkerOptions options_of(const TwinDevice& device, WorkerEpoch epoch, std::int64_t pages) {
  core::WorkerOptions options = device.worker;
  options.epoch = epoch;
  options.pages = pages;
  return options;
}

}  // namespace

Worker::Worker(const TwinDevice& device,
               WorkerEpoch epoch,
               const std::vector<PageId>& pages,
               const Surroundings& around,
               OnReport on_report)
    : device_(device),
      options_(options_of(device, epoch, std::ssize(pages))),
      around_(around),
      on_report_(std::move(on_report)),
      core_(options_),
      kv_(around.page_count, pages, options_.prefix_cache > 0),
      link_(device.link, around.agenda, around.faults, [this](ModelId model, std::uint64_t bytes) {
        copied(model, bytes);
      }) {
  if (around_.contents != nullptr) {
    kv_.watch(*around_.contents, {.device = device_.device.id, .epoch = epoch});
  }
}

std::vector<ModelId> Worker::open_models() const {
  std::vector<ModelId> open;
  for (const auto& [id, model] : models_) {
    if (!model.closing) {
      open.push_back(id);
    }
  }
  return open;
}

void Worker::at(Instant when, std::function<void()> what) {
  around_.agenda.at(when, [self = shared_from_this(), what = std::move(what)] {
    if (self->alive_) {
      what();
    }
  });
}

void Worker::hear(const core::WorkerMessage& message) {
  if (!alive_) {
    return;
  }
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
  queue(core::WorkerEvent(message));
  check_waiting_step();
}

void Worker::queue(Input input) {
  const bool news = interrupts(input);
  inbox_.push_back({.input = std::move(input), .at = around_.agenda.now()});
  if (news) {
    step_->gives_up = true;
    check_waiting_step();
  }
  work();
}

void Worker::take(const Input& input) {
  if (const auto* event = std::get_if<core::WorkerEvent>(&input)) {
    tell(*event);
  } else if (const auto* join = std::get_if<JoinPipe>(&input)) {
    take_in(*join);
  } else if (const auto* said = std::get_if<FromStage>(&input)) {
    take_in(*said);
  } else if (const auto* ranks = std::get_if<JoinRanks>(&input)) {
    take_in(*ranks);
  } else if (const auto* ask = std::get_if<AskForShare>(&input)) {
    take_in(*ask);
  } else if (const auto* leave = std::get_if<AskToLeave>(&input)) {
    take_in(*leave);
  } else {
    take_in(std::get<PipeGone>(input));
  }
}

/// A step begins only when nothing is left to hear.
void Worker::work() {
  while (!step_ && !runs_stage_ && !meeting_) {
    const bool idle = inbox_.empty();
    if (idle && (idle_said_ || held_)) {
      return;
    }
    Input input = core::WorkerEvent(core::EngineIdle{});
    if (!idle) {
      input = std::move(inbox_.front().input);
      auto* event = std::get_if<core::WorkerEvent>(&input);
      if (auto* message = event ? std::get_if<core::WorkerMessage>(event) : nullptr) {
        core::grow_older(*message, around_.agenda.now() - inbox_.front().at);
      }
      inbox_.pop_front();
    }
    idle_said_ = idle;
    take(input);
  }
}

void Worker::tell(const core::WorkerEvent& event) {
  if (const auto* closed = std::get_if<core::ModelClosed>(&event)) {
    close(closed->model);
  } else if (const auto* ready = std::get_if<core::SequenceReady>(&event)) {
    if (has(ready->sequence)) {
      sequences_.at(ready->sequence).compiling = false;
    }
  }
  std::vector<core::WorkerCommand> commands;
  core_.step(around_.agenda.now(), event, commands);
  if (around_.contents != nullptr) {
    core_.check_invariants();
    record_.push_back({.at = around_.agenda.now(), .event = event, .commands = commands});
  }
  for (const core::WorkerCommand& command : commands) {
    std::visit([this](const auto& concrete) { perform(concrete); }, command);
  }
  if (kv_changed()) {
    answers_.emplace_back(counted());
  }
  for (const core::WorkerEvent& answer : std::exchange(answers_, {})) {
    tell(answer);
  }
  // The ledger never counts a page as free that the pool does not have; it hears of what a step
  // takes when that has ended.
  HEDDLE_CHECK(around_.contents == nullptr || step_ || core_.report().usage.free <= kv_.free());
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
  mapper_free_ = std::max(mapper_free_, around_.agenda.now()) +
                 from_seconds(static_cast<double>(pages) * device_.map_page) +
                 around_.faults.some(around_.faults.late().map);
  at(mapper_free_, std::move(what));
}

void Worker::resize(std::vector<PageId>& pages, std::int64_t count) {
  for (; std::ssize(pages) < count; pages.push_back(kv_.take())) {
  }
  for (; std::ssize(pages) > count; pages.pop_back()) {
    kv_.put(pages.back());
  }
}

void Worker::perform(const core::FitWorkspace& command) {
  HEDDLE_CHECK(command.pages != std::ssize(workspace_));
  resize(workspace_, command.pages);
}

void Worker::perform(const core::KeepGraphs& command) {
  HEDDLE_CHECK(command.pages <= options_.graph_pages);
  if (command.pages >= std::ssize(graphs_) || !around_.faults.graphs_stick()) {
    resize(graphs_, command.pages);
  }
  answers_.emplace_back(core::GraphsKept{.pages = std::ssize(graphs_)});
}

void Worker::perform(const core::OpenModel& command) {
  HEDDLE_CHECK(!models_.contains(command.model));
  Model& model = models_[command.model];
  model = {.open = command, .window = command.pages};
  kv_.add_model(command.model, around_.models.at(command.model).model.footprint.kv);
  if (command.part_pages > 0) {
    model.window.resize(static_cast<std::size_t>(command.part_pages));
  }
  if (command.source == core::ImageSource::kShared) {
    for (PageId& page : model.window) {
      page = kv_.take();
    }
  } else {
    model.ready = command.ready_bytes;
  }
  const bool fails = around_.faults.open_fails();
  map_later(command.pages.size(), [this, id = command.model, fails] { opened(id, fails); });
  if (command.source == core::ImageSource::kShared && !fails) {
    link_.begin(command.model, command.image_bytes, command.ready_bytes);  // While it is mapped.
  }
}

void Worker::opened(ModelId id, bool fails) {
  const auto found = models_.find(id);
  if (fails) {
    queue(core::WorkerEvent(core::OpenFailed{
        .model = id, .error = {.code = Code::kUnavailable, .message = "the mapper says no"}}));
  } else if (found != models_.end() && !found->second.closing) {
    found->second.opened = true;
    queue(core::WorkerEvent(core::ModelOpened{.model = id}));
  }
}

void Worker::copied(ModelId id, std::uint64_t bytes) {
  if (!alive_) {
    return;
  }
  Model& model = models_.at(id);
  if (around_.contents != nullptr) {
    around_.contents->copy_image(model.open.pages, model.window, model.copied, bytes);
  }
  model.copied = bytes;
  model.ready = std::max(model.ready, bytes);
  queue(core::WorkerEvent(core::CopyProgress{.model = id, .bytes = bytes}));
  check_waiting_step();
}

void Worker::perform(const core::CloseModel& command) {
  Model& model = models_.at(command.model);
  HEDDLE_CHECK(!model.closing);
  model.closing = true;
  model.to_pool = command.image == core::ImagePages::kToPool;
  link_.stop(command.model);
  leave_group(command.model);
  if (reserve_ && reserve_->model == command.model) {
    give_back_reserve();
  }
  if (piped_ && piped_->model == command.model) {
    around_.pipes.leave(piped_->pipe, *this);
    piped_.reset();
  }
  kv_.drop_model(command.model);
  map_later(model.window.size(), [this, id = command.model] {
    queue(core::WorkerEvent(core::ModelClosed{.model = id}));
  });
}

void Worker::close(ModelId id) {
  const Model closed = models_.extract(id).mapped();
  for (const PageId page : closed.to_pool ? closed.window : std::vector<PageId>{}) {
    kv_.put(page);
  }
}

void Worker::perform(const core::SetImageReady& command) {
  Model& model = models_.at(command.model);
  HEDDLE_CHECK(model.opened);
  model.ready = std::max(model.ready, command.bytes);
}

void Worker::perform(const core::SetSourceReady& command) {
  HEDDLE_CHECK(models_.contains(command.model));
  link_.allow(command.model, command.bytes);
}

void Worker::perform(const core::PrioritiseCopy& command) {
  HEDDLE_CHECK(models_.at(command.model).open.source == core::ImageSource::kShared);
  link_.prioritise(command.model);
}

// ---- Sequences ----

void Worker::perform(const core::AddSequence& command) {
  HEDDLE_CHECK(models_.at(command.model).opened);
  Sequence& sequence = sequences_[command.sequence];
  sequence = {.model = command.model,
              .prompt = command.prompt_tokens,
              .choice = command.params.choice,
              .known = std::ssize(command.tokens),
              .generated = std::ssize(command.tokens) - command.prompt_tokens,
              .most = command.params.max_tokens,
              .life = ++lives_};
  HEDDLE_CHECK(sequence.generated < sequence.most);
  const TwinModel& known = around_.models.at(command.model);
  const bool moves = known.source != ModelId{};
  if (around_.contents != nullptr || moves) {
    sequence.marks =
        PrefixMarks(moves ? known.source : command.model, command.cache_salt, command.tokens);
  }
  if (!command.params.grammar.constrains()) {
    return;
  }
  const Duration compiles = around_.faults.some(around_.faults.late().grammar);
  if (compiles == Duration{}) {
    answers_.emplace_back(core::SequenceReady{.sequence = command.sequence});
    return;
  }
  sequence.compiling = true;
  at(around_.agenda.now() + compiles, [this, id = command.sequence] {
    if (has(id)) {
      queue(core::WorkerEvent(core::SequenceReady{.sequence = id}));
    }
  });
}

void Worker::perform(const core::TakePrefixes& command) {
  HEDDLE_CHECK(options_.prefix_cache > 0);
  core::PrefixesTaken taken;
  for (const SequenceId id : command.sequences) {
    Sequence& sequence = sequences_.at(id);
    HEDDLE_CHECK(sequence.computed == 0 && !sequence.compiling);
    sequence.computed =
        kv_of(sequence.model).find_prefix(sequence.model, id, sequence.known - 1, sequence.marks);
    prefix_tokens_ += sequence.computed;
    taken.sequences.push_back({.sequence = id, .computed = sequence.computed});
  }
  idle_said_ = false;
  answers_.emplace_back(taken);
}

/// Nobody has any: workers here do not ask each other.
void Worker::perform(const core::FetchKv& command) {
  idle_said_ = false;
  answers_.emplace_back(core::KvFetched{.sequence = command.sequence,
                                        .computed = sequences_.at(command.sequence).computed,
                                        .done = true,
                                        .counted = counted()});
}

void Worker::perform(const core::TrimCached& command) {
  kv_.trim(command.keep);
}

void Worker::perform(const core::PreemptSequence& command) {
  Sequence& sequence = sequences_.at(command.sequence);
  sequence.computed = 0;
  forget_in_pipe(command.sequence, sequence);
  kv_of(sequence.model).remove(sequence.model, command.sequence);
  idle_said_ = false;
}

void Worker::perform(const core::TakeGuestPages& command) {
  kv_.lend(command.model, command.pages);
}

void Worker::perform(const core::ReturnGuestPages& command) {
  on_report_(*this,
             core::GuestsReturned{.model = command.model,
                                  .pages = kv_.give_back(command.model, command.count)});
}

void Worker::perform(const core::MoveOut& command) {
  const Sequence& sequence = sequences_.at(command.sequence);
  const std::int64_t tokens =
      kv_.move_out(sequence.model, command.sequence, command.tokens, sequence.marks);
  idle_said_ = false;
  static_cast<void>(kv_.changed());  // This tells.
  answers_.emplace_back(
      core::GuestsMoved{.sequence = command.sequence, .tokens = tokens, .counted = kv_.counted()});
}

void Worker::perform(const core::MoveHome& command) {
  const Sequence& sequence = sequences_.at(command.sequence);
  const std::int64_t tokens = kv_.move_home(sequence.model, command.sequence, sequence.marks);
  idle_said_ = false;
  static_cast<void>(kv_.changed());  // This tells.
  answers_.emplace_back(
      core::GuestsMoved{.sequence = command.sequence, .tokens = tokens, .counted = kv_.counted()});
}

void Worker::perform(const core::RemoveSequence& command) {
  const auto found = sequences_.find(command.sequence);
  forget_in_pipe(command.sequence, found->second);
  kv_of(found->second.model).remove(found->second.model, command.sequence);
  sequences_.erase(found);
}

void Worker::perform(const core::Report& command) {
  on_report_(*this, command.report);
}

}  // namespace heddle::twin
