#include "agent/agent.h"

#include <map>
#include <span>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/group.h"
#include "agent/guest_pairs.h"
#include "agent/image_reader.h"
#include "agent/make_arena.h"
#include "agent/page_backing.h"
#include "agent/peer_links.h"
#include "agent/read_watch.h"
#include "agent/worker_life.h"
#include "base/child.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/units.h"
#include "core/hearing.h"
#include "device/cpu/arena.h"
#include "rpc/link.h"
#include "spec/pipe_stage.h"

#include <signal.h>

namespace heddle::agent {

namespace asio = boost::asio;

namespace {

/// Of looking whether workers and the reader get on.
constexpr Duration kWatchPeriod = rpc::kBeatPeriod;
static_assert(kWatchPeriod <= policy::Watchdog::kPeriodMost);

}  // namespace

class Agent::Impl {
 public:
  Impl(const asio::any_io_executor& executor,
       AgentSetup setup,
       Handlers handlers,
       device::Arena arena)
      : executor_(executor),
        setup_(std::move(setup)),
        handlers_(std::move(handlers)),
        arena_(std::move(arena)),
        core_(core_options(setup_)),
        timer_(executor),
        watch_timer_(executor),
        reader_({.on_progress =
                     [this](ModelId model, std::uint64_t bytes) {
                       post([this, model, bytes] {
                         reads_.got_on();
                         hear(core::ReadProgress{.model = model, .bytes = bytes});
                       });
                     },
                 .on_ended =
                     [this](ModelId model, Result<void> ended) {
                       post([this, model, ended] { end_read(model, ended); });
                     }}),
        fetcher_(setup_.fetch, fetch_handlers()),
        backing_(arena_) {
    for (const DeviceSetup& device : setup_.devices) {
      workers_[device.id].setup = &device;
      workers_[device.id].watch.emplace(device.name, steady_now());
    }
    watch();
  }

  ~Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void set_models(const std::vector<HostModel>& models) {
    std::vector<core::AgentModel> known;
    for (const HostModel& model : models) {
      known.push_back({.id = model.id,
                       .image_bytes = model.image_bytes,
                       .footprint = model.footprint,
                       .gpu_footprint = model.gpu_footprint,
                       .host_pages = model.host_pages,
                       .fetched = !model.source.empty()});
      const auto [place, fresh] = models_.try_emplace(model.id);
      if (std::exchange(place->second, model).adapters != model.adapters || fresh) {
        for (auto& [id, worker] : workers_) {
          describe(worker, model);
        }
      }
    }
    hear(core::AgentModels{.models = std::move(known)});
  }

  /// Lets the core hear `event`, and all that follows from it.
  void hear(core::AgentEvent event) {
    hearing_.hear(
        core_,
        std::move(event),
        steady_now,
        [this](Instant at, const auto& heard, const auto& commands) {
          if (handlers_.on_step) {
            handlers_.on_step(at, heard, commands);
          }
        },
        [this](auto& command) { execute(command); });
  }

  void send(DeviceId device, WorkerEpoch epoch, core::WorkerMessage message) {
    WorkerState& worker = workers_.at(device);
    const auto* submit = std::get_if<core::Submit>(&message);
    if (submit != nullptr && models_.contains(submit->model)) {
      fetcher_.prioritise(submit->model, models_.at(submit->model).source);
    }
    if (worker.life != nullptr && worker.life->epoch() == epoch) {
      worker.life->send(std::move(message));
    }
  }

  void give_kv(rpc::KvAsk ask, KvAnswer answer) {
    kv_.ask(std::move(ask), true, std::move(answer));
  }

  [[nodiscard]] std::vector<core::FetchStatus> fetches() const { return fetcher_.statuses(); }
  [[nodiscard]] ledger::PoolUsage host_usage() const { return core_.host_usage(); }
  [[nodiscard]] core::ModelsByDevice models() const { return core_.models(); }
  [[nodiscard]] std::uint64_t restarts(DeviceId device) const {
    const auto found = workers_.find(device);
    const std::uint64_t lives = found == workers_.end() ? 0 : found->second.lives;
    return lives == 0 ? 0 : lives - 1;
  }
  [[nodiscard]] rpc::WorkerStats stats(DeviceId device) const {
    const auto found = workers_.find(device);
    return found == workers_.end() ? rpc::WorkerStats{} : found->second.stats;
  }
  [[nodiscard]] WorkerHealth health(DeviceId device) const {
    const auto found = workers_.find(device);
    return found == workers_.end() ? WorkerHealth{} : found->second.watch->health();
  }
  [[nodiscard]] std::vector<std::string> troubles() const {
    std::vector<std::string> all;
    for (const auto& [device, worker] : workers_) {
      if (const std::string& trouble = worker.watch->health().trouble; !trouble.empty()) {
        all.push_back("device " + worker.setup->name + ": " + trouble);
      }
    }
    if (std::string trouble = reads_.trouble(); !trouble.empty()) {
      all.push_back(std::move(trouble));
    }
    return all;
  }
  [[nodiscard]] int worker_pid(DeviceId device) const {
    const auto found = workers_.find(device);
    return found == workers_.end() || found->second.life == nullptr ? -1
                                                                    : found->second.life->pid();
  }

 private:
  struct WorkerState {
    const DeviceSetup* setup = nullptr;
    std::uint64_t lives = 0;
    std::unique_ptr<WorkerLife> life{};
    bool ready = false;  ///< This life is.
    rpc::WorkerStats stats{};
    std::optional<WorkerWatch> watch{};  ///< Always there.
  };

  /// Has the loop call `what`, if this still lives then. Any thread.
  template <class What>
  void post(What what) {
    asio::post(executor_, [alive = std::weak_ptr(alive_), what = std::move(what)] {
      if (!alive.expired()) {
        what();
      }
    });
  }

  void end_read(ModelId model, const Result<void>& ended) {
    const auto ms = std::chrono::round<std::chrono::milliseconds>(reads_.end(steady_now())).count();
    std::optional<Error> error;
    if (ended) {
      log::info("weights read", {{"model", model_name(model)}, {"ms", ms}});
    } else {
      error = ended.error();
      log::warning("weights not read",
                   {{"model", model_name(model)}, {"ms", ms}, {"error", error->message}});
    }
    hear(core::ReadEnded{.model = model, .error = std::move(error)});
  }

  /// What fetchers say, in their threads.
  ImageFetcher::Handlers fetch_handlers() {
    return {.on_progress =
                [this](ModelId model, std::uint64_t bytes) {
                  post([this, model, bytes] {
                    hear(core::ReadProgress{.model = model, .bytes = bytes});
                  });
                },
            .on_ended =
                [this](ModelId model, Result<void> ended) {
                  post([this, model, ended] { end_fetch(model, ended); });
                },
            .on_changed =
                [this](const std::string& source) {
                  post([this, source] {
                    if (handlers_.on_changed) {
                      handlers_.on_changed(source);
                    }
                  });
                }};
  }

  void end_fetch(ModelId model, const Result<void>& ended) {
    for (const ModelId other : fetcher_.forget(model)) {
      hear(core::ImageSpoilt{.model = other, .error = ended.error()});
    }
    hear(core::ReadEnded{.model = model,
                         .error = ended ? std::nullopt : std::optional(ended.error())});
  }

  [[nodiscard]] const std::string& model_name(ModelId model) const {
    return models_.at(model).name;
  }

  static void describe(WorkerState& worker, const HostModel& model) {
    if (worker.life != nullptr) {
      worker.life->send(rpc::ModelDescription{.model = model.id,
                                              .name = model.name,
                                              .spec = model.spec,
                                              .dtype = model.dtype,
                                              .directory = model.directory.string(),
                                              .adapters = model.adapters});
    }
  }

  void execute(core::SpawnWorker& command) {
    WorkerState& worker = workers_.at(command.device);
    const DeviceSetup& setup = *worker.setup;
    const DeviceId device = command.device;
    const WorkerEpoch epoch = command.epoch;
    worker.stats = {};
    worker.ready = false;
    ++worker.lives;
    const rpc::WorkerHello hello = worker_hello(setup_, setup, epoch, std::move(command.pages));
    auto life = WorkerLife::begin(executor_, hello, arena_.fd(), life_handlers(worker, epoch));
    if (!life) {
      log::error("worker cannot be started",
                 {{"device", setup.name}, {"error", life.error().message}});
      hear(core::WorkerExited{.device = device, .epoch = epoch});
      return;
    }
    worker.life = std::move(*life);
    worker.watch->begin(worker.life->pid(), steady_now());
    log::info("worker started",
              {{"device", setup.name}, {"epoch", epoch}, {"pid", worker.life->pid()}});
    for (const auto& [id, model] : models_) {
      describe(worker, model);
    }
  }

  WorkerLife::Handlers life_handlers(WorkerState& worker, WorkerEpoch epoch) {
    const DeviceId device = worker.setup->id;
    return {
        .on_hello = [this, &worker, epoch](
                        const std::optional<Error>& failure) { greet(worker, epoch, failure); },
        .on_report =
            [this, &worker, device, epoch](core::WorkerReport report,
                                           std::vector<rpc::Descriptor> descriptors) {
              if (auto* produced = std::get_if<core::TokensProduced>(&report)) {
                handlers_.on_tokens(device, epoch, std::move(produced->tokens));
                return;
              }
              if (!guests_.heard(device, report, std::move(descriptors))) {
                worker.life->kill();
              }
              if (const auto* failed = std::get_if<core::LoadFailed>(&report)) {
                log::warning("load failed",
                             {{"model", model_name(failed->model)},
                              {"device", workers_.at(device).setup->name},
                              {"error", failed->reason.message}});
              }
              hear(core::WorkerSaid{.device = device, .epoch = epoch, .report = std::move(report)});
            },
        .on_stats = [&worker](const rpc::WorkerStats& stats) { worker.stats = stats; },
        .on_beat = [&worker](const rpc::Beat& beat) { worker.watch->heard(beat); },
        .on_kv_ask =
            [this, device, epoch](rpc::KvAsk ask) { ask_kv(device, epoch, std::move(ask)); },
        .on_kv_given = [this, device](rpc::KvGiven given) { kv_.given(device, std::move(given)); },
        .on_exited =
            [this, &worker, epoch](const std::string& how) {
              log::warning("worker ended",
                           {{"device", worker.setup->name}, {"epoch", epoch}, {"how", how}});
              worker.life.reset();
              worker.watch->ended(steady_now());
              kv_.ended(worker.setup->id);
              const bool killed = how == heddle::describe(ProcessEnd{
                                             .how = ProcessEnd::How::kKilled, .number = SIGKILL});
              hear(
                  core::WorkerExited{.device = worker.setup->id, .epoch = epoch, .killed = killed});
            }};
  }

  /// Looks, again and again, whether what is to go on does.
  void watch() {
    const Instant now = steady_now();
    for (auto& [device, worker] : workers_) {
      if (const std::optional<WorkerWatch::Hang> hang = worker.watch->look(now)) {
        hear(core::WorkerHung{.device = device,
                              .epoch = worker.life->epoch(),
                              .stopped = hang->reason == policy::HangReason::kStopped,
                              .reason = {Code::kDeadlineExceeded, hang->why}});
      }
    }
    reads_.look(now);
    watch_timer_.expires_after(kWatchPeriod);
    watch_timer_.async_wait([this, alive = std::weak_ptr(alive_)](const auto& error) {
      if (!error && !alive.expired()) {
        watch();
      }
    });
  }

  void ask_kv(DeviceId device, WorkerEpoch epoch, rpc::KvAsk ask) {
    kv_.ask(std::move(ask),
            false,
            [this, device, epoch, alive = std::weak_ptr(alive_)](const rpc::KvGiven& given) {
              if (!alive.expired()) {
                send_shell(device, epoch, given, {});
              }
            });
  }
  /// Whether a worker has taken the ask.
  bool tell_kv(DeviceId device, const rpc::KvAsk& ask) {
    const auto worker = workers_.find(device);
    const bool there = worker != workers_.end() && worker->second.ready && worker->second.life;
    if (there) {
      worker->second.life->send(ask);
    }
    return there;
  }

  void greet(WorkerState& worker, WorkerEpoch epoch, const std::optional<Error>& failure) {
    if (failure.has_value()) {
      log::error("worker cannot act for its device",
                 {{"device", worker.setup->name}, {"error", failure->message}});
      worker.life->kill();
      return;
    }
    log::debug("worker ready", {{"device", worker.setup->name}, {"epoch", epoch}});
    worker.ready = true;
    worker.watch->heard_hello();
    introduce(worker);
    hear(core::WorkerConnected{.device = worker.setup->id, .epoch = epoch});
  }

  /// Workers of GPUs lend each other their links to the host for loads (worker::PeerLoad), once
  /// both are ready. A life that ends closes its ends.
  void introduce(WorkerState& worker) {
    for (auto& [id, other] : workers_) {
      if (&other != &worker && other.life != nullptr && other.ready && other.setup->gpu &&
          worker.setup->gpu) {
        lend_link(*worker.life, *worker.setup->gpu, *other.life, *other.setup->gpu);
        lend_link(*other.life, *other.setup->gpu, *worker.life, *worker.setup->gpu);
      }
    }
  }

  void execute(core::KillWorker& command) {
    WorkerState& worker = workers_.at(command.device);
    log::warning("worker is ended",
                 {{"device", worker.setup->name}, {"reason", command.reason.message}});
    if (worker.life != nullptr && worker.life->epoch() == command.epoch) {
      worker.life->kill();
    }
  }

  void execute(const core::ConnectGroup& command) {
    const bool pipe = spec::stages_of(models_.at(command.members.front().model).spec) > 1;
    Result<GroupEnds> ends = connect_members(
        command, pipe, [this](DeviceId device) { return workers_.contains(device); });
    const auto count = std::ssize(command.members);
    if (!pipe && ends) {
      connect_ranks(command.members, workers_);
    }
    for (std::size_t rank = 0; rank < command.members.size(); ++rank) {
      const core::GroupMember& member = command.members[rank];
      const auto worker = workers_.find(member.device);
      if (worker != workers_.end() && ends) {
        worker->second.life->send(
            join_message(models_.at(member.model), static_cast<std::int64_t>(rank), count),
            std::move(ends->members[rank]));
      } else if (worker != workers_.end()) {
        worker->second.life->kill();
      }
    }
    if (!ends) {
      log::error("group cannot be formed", {{"error", ends.error().message}});
    } else if (!ends->edges.empty()) {
      handlers_.edges->connect(command.group, std::move(ends->edges));
    }
    log::info("group formed", {{"model", model_name(command.members[0].model)}, {"ranks", count}});
  }
  void execute(const core::LeaveGroup& command) { handlers_.edges->leave(command.group); }
  void execute(const core::ConnectGuests& command) { guests_.connect(command); }
  void execute(const core::ShareMemory& command) { guests_.share(command); }
  void execute(const core::PassMemory& command) { guests_.pass(command); }
  void execute(const core::LeaseGuests& command) { guests_.lease(command); }
  void execute(const core::DisconnectGuests& command) { guests_.disconnect(command); }

  void send_shell(DeviceId device,
                  WorkerEpoch epoch,
                  const rpc::ToWorker& message,
                  std::vector<rpc::Descriptor> descriptors) {
    WorkerState& worker = workers_.at(device);
    if (worker.life != nullptr && worker.life->epoch() == epoch) {
      worker.life->send(message, std::move(descriptors));
    }
  }

  void execute(core::SendWorker& command) {
    const std::string& device = workers_.at(command.device).setup->name;
    if (const auto* load = std::get_if<core::LoadModel>(&command.message)) {
      log::info("load",
                {{"model", model_name(load->model)},
                 {"device", device},
                 {"pages", load->pages.size()},
                 {"ready_bytes", load->ready_bytes},
                 {"image_bytes", load->image_bytes}});
      handlers_.on_told(command.device, load->model);
    } else if (const auto* evict = std::get_if<core::EvictModel>(&command.message)) {
      log::info("evict",
                {{"model", model_name(evict->model)},
                 {"device", device},
                 {"now", evict->mode == core::EvictMode::kNow},
                 {"keep_image", !evict->pages.empty()}});
    }
    send(command.device, command.epoch, std::move(command.message));
  }

  void execute(core::StartRead& command) {
    const HostModel& model = models_.at(command.model);
    ImageJob job = image_job(command.model, model, setup_.page_bytes);
    for (const PageId page : command.pages) {
      job.pages.push_back(arena_.base() + page.value() * setup_.page_bytes);
    }
    if (!model.source.empty()) {
      fetcher_.start({.image = std::move(job),
                      .name = model.name,
                      .source = model.source,
                      .early = command.early,
                      .due_in = command.due_in,
                      .peers = std::move(command.peers)});
      return;
    }
    log::info("read weights", {{"model", model.name}, {"from", model.directory.string()}});
    reads_.begin(model.name, model.directory.string(), steady_now());
    reader_.start(std::move(job));
  }

  void execute(core::CancelRead& command) {
    reader_.cancel(command.model);
    fetcher_.cancel(command.model);
  }

  /// Those of a device's pages that are in the arena: a GPU's worker gives its own memory back, and
  /// takes it again, before it says that pages have changed hands.
  [[nodiscard]] std::span<const PageId> arena_pages_of(DeviceId device,
                                                       const std::vector<PageId>& pages) const {
    return workers_.at(device).setup->gpu.has_value() ? std::span<const PageId>() : pages;
  }

  /// What backs the pages is the kernel's before the engine may start.
  void execute(core::GrantLoan& command) {
    backing_.release(arena_pages_of(command.device, command.pages));
    log::info("pages lent",
              {{"device", workers_.at(command.device).setup->name},
               {"pages", command.pages.size()},
               {"model", command.model}});
    handlers_.on_loan(command.model, {});
  }

  void execute(core::EndLoan& command) { handlers_.on_repaid(command.model); }

  void execute(core::RefuseLoan& command) { handlers_.on_loan(command.model, command.reason); }

  /// Takes as long as clearing the memory does, so it is not for the loop.
  void execute(core::BackPages& command) {
    backing_.restore(arena_pages_of(command.device, command.pages), [this, command] {
      post([this, command] {
        hear(core::PagesBacked{
            .device = command.device, .model = command.model, .pages = command.pages});
      });
    });
  }

  void execute(core::TellManager& command) { handlers_.on_event(std::move(command.event)); }

  void execute(core::WakeAt& command) {
    timer_.expires_at(std::chrono::steady_clock::time_point(command.at.time_since_epoch()));
    timer_.async_wait([this, alive = std::weak_ptr(alive_)](const auto& error) {
      if (!error && !alive.expired()) {
        hear(core::Tick{});
      }
    });
  }

  asio::any_io_executor executor_;
  AgentSetup setup_;
  Handlers handlers_;
  device::Arena arena_;
  core::AgentCore core_;
  std::map<ModelId, HostModel> models_{};  ///< Removed ones too: a worker may still have them.
  std::map<DeviceId, WorkerState> workers_{};
  core::Hearing<core::AgentCore, core::AgentEvent, core::AgentCommand> hearing_{};
  GuestPairs guests_{
      {.page_bytes = setup_.page_bytes,
       .model = [this](ModelId id) -> const HostModel& { return models_.at(id); },
       .device = [this](DeviceId id) -> const DeviceSetup& { return *workers_.at(id).setup; },
       .send =
           [this](DeviceId device,
                  WorkerEpoch epoch,
                  const rpc::ToWorker& message,
                  std::vector<rpc::Descriptor> descriptors) {
             send_shell(device, epoch, message, std::move(descriptors));
           },
       .hear = [this](core::AgentEvent event) { hear(std::move(event)); }}};
  KvExchange kv_{{.tell = [this](DeviceId id, const rpc::KvAsk& ask) { return tell_kv(id, ask); },
                  .ask_host = handlers_.ask_kv}};
  ReadWatch reads_{};
  asio::steady_timer timer_;
  asio::steady_timer watch_timer_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  ImageReader reader_;    ///< Its thread ends before what it writes to does.
  ImageFetcher fetcher_;  ///< Likewise.
  PageBacking backing_;   ///< Last: likewise.
};

Result<std::unique_ptr<Agent>> Agent::create(const asio::any_io_executor& executor,
                                             AgentSetup setup,
                                             Handlers handlers) {
  Result<device::Arena> arena = make_arena(setup);
  if (!arena) {
    return arena.error();
  }
  return std::unique_ptr<Agent>(new Agent(
      std::make_unique<Impl>(executor, std::move(setup), std::move(handlers), std::move(*arena))));
}

Agent::Agent(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Agent::~Agent() = default;

void Agent::set_models(const std::vector<HostModel>& models) {
  impl_->set_models(models);
}
void Agent::start() {
  impl_->hear(core::StartAgent{});
}
void Agent::carry_out(const AgentOrder& order) {
  std::visit([this](const auto& wanted) { impl_->hear(wanted); }, order);
}
core::ModelsByDevice Agent::models() const {
  return impl_->models();
}
void Agent::hear_edges(const EdgeNews& news) {
  std::visit([this](const auto& said) { impl_->hear(said); }, news);
}
void Agent::give_kv(rpc::KvAsk ask, KvAnswer answer) {
  impl_->give_kv(std::move(ask), std::move(answer));
}
void Agent::forget_orders() {
  impl_->hear(core::ForgetOrders{});
}
void Agent::send(DeviceId device, WorkerEpoch epoch, core::WorkerMessage message) {
  impl_->send(device, epoch, std::move(message));
}
ledger::PoolUsage Agent::host_usage() const {
  return impl_->host_usage();
}
std::uint64_t Agent::restarts(DeviceId device) const {
  return impl_->restarts(device);
}
rpc::WorkerStats Agent::stats(DeviceId device) const {
  return impl_->stats(device);
}
WorkerHealth Agent::health(DeviceId device) const {
  return impl_->health(device);
}
std::vector<core::FetchStatus> Agent::fetches() const {
  return impl_->fetches();
}
std::vector<std::string> Agent::troubles() const {
  return impl_->troubles();
}
int Agent::worker_pid(DeviceId device) const {
  return impl_->worker_pid(device);
}

}  // namespace heddle::agent
