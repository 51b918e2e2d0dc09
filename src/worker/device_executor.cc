#include "worker/device_executor.h"

#include <cstdint>
#include <random>
#include <span>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "engine/adapters.h"
#include "engine/kept_kv.h"
#include "ops/context.h"
#include "store/image_layout.h"

namespace heddle::worker {

namespace {

/// The leases of a model, as the pool names owners; CUDA graphs are no model's. The ledger that
/// counts them is the core's.
enum class Lease : std::uint8_t { kWeights = 1, kGraphs = 2, kKv = 3 };

/// Of a device's pages, what CUDA graphs may have: one in so many.
constexpr std::int64_t kGraphsShare = 32;
/// A step waits for weights no longer than this before it begins anew.
constexpr Duration kWaitsMost = std::chrono::minutes(1);

memory::OwnerId owner(ModelId model, Lease lease) {
  return memory::OwnerId(model.value() * 4 + static_cast<std::uint64_t>(lease));
}

bool is_weights(memory::OwnerId owner) {
  return owner.value() % 4 == static_cast<std::uint64_t>(Lease::kWeights);
}

}  // namespace

DeviceExecutor::DeviceExecutor(device::Device& device, const Options& options, Handlers handlers)
    : device_(device),
      load_bandwidth_(options.load_bandwidth),
      pacing_(options.pace, options.guests),
      handlers_(std::move(handlers)),
      pool_(device, options.pages) {}

Result<std::unique_ptr<DeviceExecutor>> DeviceExecutor::create(device::Device& device,
                                                               const Options& options,
                                                               Handlers handlers) {
  std::unique_ptr<DeviceExecutor> self(new DeviceExecutor(device, options, std::move(handlers)));
  std::random_device chance;
  const auto draw = [&chance] { return (std::uint64_t{chance()} << 32U) | chance(); };
  auto engine = engine::Engine::create(device,
                                       self->pool_,
                                       {.max_batch_tokens = options.max_batch_tokens,
                                        .prefix_cache = options.prefix_cache,
                                        .kv_pages = options.kv_pages,
                                        .prefix_secret = {draw(), draw()},
                                        .run_ahead = options.pace == rpc::Pace{}});
  if (!engine) {
    return engine.error();
  }
  self->engine_ = std::move(*engine);
  self->guests_ = std::make_unique<HotGuests>(*self->engine_, device);
  const auto kernels = ops::kernels_name(device.properties().kind);
  log::info("kernels chosen", {{"kernels", kernels ? *kernels : "none"}});
  self->engine_->set_graph_bytes(0);  // Until the core has pages for them.
  const auto on_opened = [raw = self.get()](ModelId model, Result<void> opened) {
    if (opened) {
      raw->handlers_.on_event(core::ModelOpened{.model = model});
    } else {
      raw->handlers_.on_event(core::OpenFailed{.model = model, .error = opened.error()});
    }
  };
  const auto on_copied = [raw = self.get()](ModelId model, std::uint64_t copied) {
    const std::uint64_t bytes = raw->in_place(model, copied);
    raw->handlers_.on_event(core::CopyProgress{.model = model, .bytes = bytes});
    raw->engine_->set_image_ready(model, bytes);
    const std::lock_guard lock(raw->open_mutex_);
    raw->note_ready(model, bytes);
  };
  const auto on_closed = [raw = self.get()](ModelId model) {
    raw->handlers_.on_event(core::ModelClosed{.model = model});
  };
  self->mapper_ = std::make_unique<Mapper>(device,
                                           options.load_bandwidth,
                                           Mapper::Handlers{.on_opened = on_opened,
                                                            .on_copied = on_copied,
                                                            .on_closed = on_closed,
                                                            .on_lost = self->handlers_.on_lost});
  if (!device.properties().asynchronous) {  // On a GPU to unmap takes long, and nobody looks.
    self->pool_.on_taken([raw = self.get()](memory::OwnerId owner, std::span<const PageId> pages) {
      if (!is_weights(owner)) {  // Of those the mapper drops what it is about to write.
        raw->mapper_->drop_kept(pages);
      }
    });
  }
  self->adapter_files_ = std::make_unique<AdapterFiles>(self->handlers_.on_compiled);
  self->grammars_ = std::make_unique<Grammars>(self->handlers_.on_compiled);
  if (const Result<void> started = self->grammars_->start(); !started) {
    return started.error();
  }
  return self;
}

DeviceExecutor::~DeviceExecutor() = default;

void DeviceExecutor::describe(const rpc::ModelDescription& model) {
  Described& described = described_[model.model];
  grammars_->describe(model.model, model.directory, model.spec.vocab);
  described.spec = model.spec;
  described.layout = store::plan_image(model.spec, model.dtype);
  adapter_files_->describe(model.model, model.spec, model.dtype, model.adapters);
}

Result<void> DeviceExecutor::carry_out(core::WorkerCommand command,
                                       std::vector<core::WorkerEvent>& events) {
  for (const auto& [shard, rank] : ranks_) {
    if (const auto told = rank.lockstep->leads() ? rank.lockstep->pass_on(command) : Result<void>();
        !told) {
      return told;
    }
  }
  std::visit([this, &events](auto& concrete) { execute(concrete, events); }, command);
  if (lost_.has_value()) {
    return *lost_;
  }
  return {};
}

void DeviceExecutor::meet(Peer peer) {
  const Result<void> met = with_threads("a way over another GPU", [&]() -> Result<void> {
    if (peer.assists) {
      if (peer_assist_ == nullptr) {
        peer_assist_ = std::make_unique<PeerAssist>(device_, [this] { return mapper_->is_idle(); });
      }
      peer_assist_->serve(std::move(peer.socket));
      return {};
    }
    std::erase_if(peer_loads_, [](const auto& peer_load) { return peer_load->ended(); });
    peer_loads_.push_back(
        std::make_unique<PeerLoad>(device_, *mapper_, peer.gpu, std::move(peer.socket)));
    return {};
  });
  if (!met) {
    log::warning("loads go on over this GPU's link alone", {{"error", met.error().message}});
  }
}

void DeviceExecutor::meet(const GuestHost& host) {
  const auto found = opened_.find(host.model);
  if (found != opened_.end() && found->second.registered) {  // Else it was closed meanwhile.
    guests_->meet(host);
  }
}

void DeviceExecutor::execute(const core::AdoptPages& command,
                             std::vector<core::WorkerEvent>& /*events*/) {
  if (const Result<void> taken = device_.take_again(command.pages); !taken) {
    lost_ = taken.error();  // Who gave them back has not: the next life tries again.
    return;
  }
  pool_.adopt(command.pages);
  mapper_->let_go(command.pages);
}

void DeviceExecutor::execute(const core::SurrenderPages& command,
                             std::vector<core::WorkerEvent>& /*events*/) {
  Result<std::vector<PageId>> pages = pool_.surrender(command.count);
  HEDDLE_CHECK(pages.has_value());  // The core's ledger has counted them as free.
  engine_->settle();
  mapper_->when_dropped(std::move(*pages), [this, model = command.model](std::vector<PageId> left) {
    device_.give_back(left);
    handlers_.on_report(core::PagesReturned{.model = model, .pages = std::move(left)});
  });
}

void DeviceExecutor::execute(const core::FitWorkspace& command,
                             std::vector<core::WorkerEvent>& /*events*/) {
  HEDDLE_CHECK(engine_->set_workspace(command.pages).has_value());  // As above.
}

void DeviceExecutor::execute(const core::KeepGraphs& command,
                             std::vector<core::WorkerEvent>& events) {
  const auto bytes = static_cast<std::uint64_t>(command.pages) * device_.properties().page_bytes;
  engine_->set_graph_bytes(bytes);
  const std::int64_t more = command.pages - std::ssize(graphs_);
  if (more > 0) {
    give_up_for_graphs(more);
  } else {
    take_from_graphs(-more);
  }
  events.push_back(core::GraphsKept{.pages = std::ssize(graphs_)});
}

void DeviceExecutor::give_up_for_graphs(std::int64_t count) {
  auto pages = pool_.take(owner({}, Lease::kGraphs), count);
  HEDDLE_CHECK(pages.has_value());  // As above.
  mapper_->drop_kept(*pages);
  device_.give_back(*pages);  // The engine has settled.
  graphs_.insert(graphs_.end(), pages->begin(), pages->end());
}

/// All or none: the driver may keep what CUDA graphs had for others to come.
void DeviceExecutor::take_from_graphs(std::int64_t count) {
  const std::span<const PageId> pages = std::span(graphs_).last(static_cast<std::size_t>(count));
  if (const Result<void> taken = device_.take_again(pages); !taken) {
    log::warning("the memory of graphs that were dropped cannot be had again",
                 {{"why", taken.error().message}});
    return;
  }
  pool_.put(owner({}, Lease::kGraphs), pages);
  graphs_.resize(graphs_.size() - pages.size());
}

std::int64_t DeviceExecutor::most_graph_pages(const device::Device& device, std::int64_t pages) {
  return device.properties().records ? pages / kGraphsShare : 0;
}

void DeviceExecutor::execute(core::OpenModel& command, std::vector<core::WorkerEvent>& events) {
  HEDDLE_CHECK(!opened_.contains(command.model));
  OpenedModel& opened = opened_[command.model];
  opened.source = command.source;
  const ModelId model = command.model;
  if (const Result<void> began = open(command, opened); !began) {
    events.push_back(core::OpenFailed{.model = model, .error = began.error()});
  }
}

Result<void> DeviceExecutor::open(core::OpenModel& command, OpenedModel& opened) {
  const bool shared = command.source == core::ImageSource::kShared;
  std::vector<PageId> source;
  if (shared) {
    source = std::move(command.pages);
    auto taken = pool_.take(owner(command.model, Lease::kWeights),
                            command.part_pages > 0 ? command.part_pages : std::ssize(source));
    HEDDLE_CHECK(taken.has_value());  // As above: reserved before it is done.
    opened.weights = std::move(*taken);
    engine_->settle();  // What is ahead of a sequence that has gone still writes KV to its pages.
  } else {
    opened.weights = std::move(command.pages);
    pool_.adopt(opened.weights, owner(command.model, Lease::kWeights));
  }

  const auto found = described_.find(command.model);
  if (found == described_.end() || found->second.layout.bytes != command.image_bytes) {
    return Error{Code::kFailedPrecondition,
                 "open model " + std::to_string(command.model.value()) + ": an image of " +
                     std::to_string(command.image_bytes) + " bytes does not fit its description"};
  }
  Described& model = found->second;
  if (!model.window.has_value()) {
    const std::uint64_t bytes = opened.weights.size() * device_.properties().page_bytes;
    Result<memory::Window> window = memory::Window::create(device_, bytes);
    if (!window) {
      return window.error();
    }
    model.window.emplace(std::move(*window));
  }
  if (const auto placed = place_experts(command, model, source, opened); !placed) {
    return placed.error();
  }
  const Result<void> added = engine_->add_model(command.model,
                                                model.spec,
                                                model.layout,
                                                model.window->base(),
                                                owner(command.model, Lease::kKv),
                                                opened.experts.get());
  if (!added) {
    return added.error();
  }
  opened.registered = true;
  const Open open = set_open(command.model, command.source);
  mapper_->open({.model = command.model,
                 .window = &*model.window,
                 .pages = opened.weights,
                 .source = std::move(source),
                 .image_bytes = model.layout.resident_bytes,
                 .ready_bytes = may_copy(open, command.ready_bytes) ? command.ready_bytes : 0});
  if (!shared) {
    engine_->set_image_ready(command.model, command.ready_bytes);
  }
  return {};
}

void DeviceExecutor::execute(const core::CloseModel& command,
                             std::vector<core::WorkerEvent>& /*events*/) {
  OpenedModel& opened = opened_.at(command.model);
  opened.after = command.image;
  {
    const std::lock_guard lock(open_mutex_);
    open_.erase(command.model);
  }
  if (!opened.registered) {
    mapper_->close(command.model, nullptr, Mapper::After::kLetGo);  // Nothing was mapped.
    return;
  }
  forget_followed(command.model);  // The leader has ended: what it said of them is on its way.
  engine_->remove_model(command.model);
  if (opened.experts != nullptr) {
    count_experts(command.model, *opened.experts);
    opened.experts.reset();
  }
  guests_->forget(command.model);
  grammars_->forget(command.model);
  ranks_.erase(command.model);
  if (pipe_ != nullptr && pipe_->model() == command.model) {
    pipe_.reset();
  }
  opened.registered = false;
  kv_changed_ = true;
  mapper_->close(
      command.model,
      &*described_.at(command.model).window,
      command.image == core::ImagePages::kToPool ? Mapper::After::kLetGo : Mapper::After::kKeep);
}

void DeviceExecutor::finish_close(ModelId model) {
  const auto found = opened_.find(model);
  HEDDLE_CHECK(found != opened_.end());
  const OpenedModel& opened = found->second;
  if (opened.after == core::ImagePages::kToPool) {
    pool_.put(owner(model, Lease::kWeights), opened.weights);
  } else {
    pool_.surrender(owner(model, Lease::kWeights), opened.weights);
  }
  opened_.erase(found);
}

void DeviceExecutor::execute(const core::LetGoWindow& command,
                             std::vector<core::WorkerEvent>& /*events*/) {
  const auto found = described_.find(command.model);
  if (found != described_.end() && found->second.window) {
    mapper_->let_go(*found->second.window);
  }
}

void DeviceExecutor::execute(const core::SetImageReady& command,
                             std::vector<core::WorkerEvent>& /*events*/) {
  engine_->set_image_ready(command.model, command.bytes);
}

void DeviceExecutor::execute(const core::SetSourceReady& command,
                             std::vector<core::WorkerEvent>& /*events*/) {
  const std::lock_guard lock(open_mutex_);
  allow_copy(command.model, command.bytes);
}

void DeviceExecutor::execute(const core::PrioritiseCopy& command,
                             std::vector<core::WorkerEvent>& /*events*/) {
  mapper_->prioritise(command.model);
}

/// Of the group that the step runs, the rank that is here; null: it runs none.
Lockstep* DeviceExecutor::lockstep_of(const policy::StepPlan& plan) const {
  Lockstep* group = nullptr;
  for (const auto& [shard, rank] : ranks_) {
    if (runs(plan, shard)) {
      HEDDLE_CHECK(group == nullptr);  // Else ranks could meet in different orders.
      group = rank.lockstep.get();
    }
  }
  return group;
}

void DeviceExecutor::execute(const core::RunStep& command, std::vector<core::WorkerEvent>& events) {
  Lockstep* const group = lockstep_of(command.plan);
  const bool follows = group != nullptr && !group->leads();
  std::erase_if(refused_, [&](core::SequenceId id) {
    return is_followed(id) == follows;  // The core that runs this has heard of all of its own.
  });
  const bool waits = waits_for_weights(command.plan);
  pulse_.begin(kind_of(command.plan, waits), pacing_.of(command.plan));
  Instant began = steady_now();
  const Duration guest_time = pacing_.guest_time();
  const HotGuests::Times before = guests_->times();
  if (waits) {
    begin_waiting(command.plan);
  }
  Result<engine::StepOutcome> outcome = engine_->run(command.plan);
  if (!outcome) {
    lost_ = outcome.error();
    return;
  }
  if (waits) {
    end_waiting(command.plan, outcome->unready);
  }
  if (outcome->ahead) {
    began = stepped_at_;  // The device has been at it since then.
  }
  core::StepDone done{.starved = std::move(outcome->starved),
                      .unready = std::move(outcome->unready)};
  done.slices = slices_of(*outcome);
  send_batches(outcome->sent, done);
  forget_failed(*outcome);
  const HotGuests::Times after = guests_->times();
  const HotGuests::Times spent{.own = after.own - before.own,
                               .waited = after.waited - before.waited};
  done.guests = pacing_.guest_times(command.plan, done, *guests_, spent);
  done.took = pacing_.keep(command.plan,
                           {.began = began,
                            .guest_time = guest_time,
                            .positions_read = pacing_.positions_read(command.plan, done, *guests_),
                            .waited = spent.waited,
                            .waits_for_weights = waits},
                           stats_);
  done.hosting = std::min(pacing_.guest_time() - guest_time, done.took);
  done.counted = counted();
  if (group != nullptr) {
    if (const Result<void> same = group->compare(done); !same) {
      lost_ = same.error();
      return;
    }
  }
  pulse_.begin(policy::Doing::kWork);
  ++stats_.steps;
  stats_.busy += done.took;
  stepped_at_ = began + done.took;
  events.push_back(std::move(done));
  tell_failed(*outcome, events);
}

void DeviceExecutor::execute(core::Report& command, std::vector<core::WorkerEvent>& /*events*/) {
  if (const auto* returned = std::get_if<core::GuestsReturned>(&command.report)) {
    guests_->unmap(returned->model, returned->pages);  // The core has not taken them.
  }
  handlers_.on_report(std::move(command.report));
}

bool DeviceExecutor::waits_for_weights(const policy::StepPlan& plan) const {
  return std::any_of(plan.batches.begin(), plan.batches.end(), [this](const auto& batch) {
    return engine_->image_ready(batch.model) < described_.at(batch.model).layout.bytes;
  });
}

policy::Doing DeviceExecutor::kind_of(const policy::StepPlan& plan, bool waits) const {
  if (waits) {
    return policy::Doing::kWeights;
  }
  return lockstep_of(plan) != nullptr ? policy::Doing::kGroupStep : policy::Doing::kStep;
}

DeviceExecutor::Open DeviceExecutor::set_open(ModelId model, core::ImageSource source) {
  const store::ImageLayout& layout = described_.at(model).layout;
  const std::lock_guard lock(open_mutex_);
  return open_[model] = {.source = source,
                         .image_bytes = layout.bytes,
                         .resident_bytes = layout.resident_bytes};
}

void DeviceExecutor::hear_early(const core::WorkerMessage& message) {
  const std::lock_guard lock(open_mutex_);
  if (const auto* progress = std::get_if<core::ImageProgress>(&message)) {
    const auto found = open_.find(progress->model);
    if (found == open_.end()) {
      return;
    }
    if (found->second.source == core::ImageSource::kShared) {
      allow_copy(progress->model, progress->bytes);
    } else {
      engine_->set_image_ready(progress->model, progress->bytes);
      note_ready(progress->model, progress->bytes);
    }
    return;
  }
  const auto* evict = std::get_if<core::EvictModel>(&message);
  if (evict != nullptr && evict->mode == core::EvictMode::kNow && open_.contains(evict->model)) {
    engine_->abandon_image(evict->model);
  }
  const auto* submit = std::get_if<core::Submit>(&message);
  if (submit == nullptr || !waited_for_.contains(submit->model)) {
    pause_step();
  }
}

/// With the lock. A model whose image is whole may run, which the core has to hear.
void DeviceExecutor::note_ready(ModelId model, std::uint64_t bytes) {
  const auto found = open_.find(model);
  if (found != open_.end() && bytes >= found->second.image_bytes && !waited_for_.contains(model)) {
    pause_step();
  }
}

void DeviceExecutor::interrupt_waiting() {
  const std::lock_guard lock(open_mutex_);
  pause_step();
}

void DeviceExecutor::interrupt_long_waiting(Instant now) {
  const std::lock_guard lock(open_mutex_);
  if (now - waits_since_ >= kWaitsMost) {
    pause_step();
  }
}

/// With the lock.
void DeviceExecutor::pause_step() {
  for (const ModelId model : waited_for_) {
    engine_->pause_image(model, true);
    interrupted_ = true;
  }
}

/// From now on a step of these models gives up what it waits for when something is to be done.
/// Ranks of a group run the same steps, so theirs do not.
void DeviceExecutor::begin_waiting(const policy::StepPlan& plan) {
  {
    const std::lock_guard lock(open_mutex_);
    waits_since_ = steady_now();
    for (const policy::ModelBatch& batch : plan.batches) {
      if (!ranks_.contains(batch.model)) {
        waited_for_.insert(batch.model);
      }
    }
  }
  if (handlers_.has_news && handlers_.has_news()) {
    interrupt_waiting();
  }
}

/// Of a step that gave up, these sequences are as they were before it.
void DeviceExecutor::end_waiting(const policy::StepPlan& plan,
                                 std::vector<core::SequenceId>& unready) {
  const std::lock_guard lock(open_mutex_);
  if (std::exchange(interrupted_, false)) {
    for (const ModelId model : waited_for_) {
      engine_->pause_image(model, false);
    }
    for (const policy::ModelBatch& batch : plan.batches) {
      if (!engine_->image_abandoned(batch.model)) {
        std::erase_if(unready, [&](core::SequenceId sequence) {
          return std::ranges::any_of(batch.slices,
                                     [&](const auto& slice) { return slice.sequence == sequence; });
        });
      }
    }
  }
  waited_for_.clear();
}

std::vector<policy::ThreadPulse> DeviceExecutor::pulses() const {
  return {pulse_.read(), mapper_->pulse().read()};
}

rpc::WorkerStats DeviceExecutor::stats() const {
  rpc::WorkerStats stats = stats_;
  const rpc::WorkerStats guests = guests_->stats();
  stats.guest_wait = guests.guest_wait;
  stats.guest_layers = guests.guest_layers;
  stats.guest_layers_alone = guests.guest_layers_alone;
  stats.guest_busy = pacing_.guest_time();
  stats.mapping = mapper_->mapping();
  stats.peer_load_bytes = mapper_->peer_load_bytes();
  stats.copied_bytes = mapper_->copied_bytes();  // After those, of which it is no less.
  stats.kept_bytes = mapper_->kept_bytes();
  stats.peer_assist_bytes = peer_assist_ == nullptr ? 0 : peer_assist_->peer_assist_bytes();
  for (const auto& [model, counts] : engine_->prefix_counts()) {
    stats.prefixes.push_back({.model = model,
                              .queried_tokens = counts.queried_tokens,
                              .hit_tokens = counts.hit_tokens,
                              .host_tokens = counts.host_tokens});
  }
  for (const auto& [model, opened] : opened_) {
    if (!opened.registered) {
      continue;
    }
    for (const engine::AdapterUse& use : engine::adapters_of(*engine_, model)) {
      stats.adapters.push_back({.model = model,
                                .name = adapter_files_->name_of(model, use.identity),
                                .pages = use.pages,
                                .sequences = use.sequences,
                                .loads = use.loads});
    }
  }
  tell_experts(stats);
  const engine::KeptCounts kept = engine::KeptKv(*engine_).counts();
  stats.kv_store = {.pages = kept.pages,
                    .held = kept.held,
                    .kept_pages = kept.store.kept_pages,
                    .kept_blocks = kept.store.kept_blocks,
                    .returned_pages = kept.store.returned_pages,
                    .displaced_pages = kept.store.displaced_pages,
                    .declined_tokens = kept.declined_tokens};
  stats.dropped_pages = engine_->dropped_pages();
  return stats;
}

}  // namespace heddle::worker
