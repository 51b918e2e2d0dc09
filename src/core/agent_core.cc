#include "core/agent_core.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "core/agent_core_impl.h"
#include "policy/backoff.h"

namespace heddle::core {

namespace {

/// CHECK-fails unless these are the pages [0, count).
void check_numbered(const std::set<PageId>& pages, std::int64_t count) {
  HEDDLE_CHECK(std::ssize(pages) == count);
  HEDDLE_CHECK(pages.empty() || pages.rbegin()->value() == static_cast<std::uint64_t>(count) - 1);
}

}  // namespace

AgentCore::Impl::Impl(const AgentOptions& options) : options_(options) {
  ledger_.add_pool(ledger::kHostPool, options.host_pages);
  std::uint64_t next = 0;
  const auto number = [](std::uint64_t& first, std::set<PageId>& pages, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      pages.insert(PageId(first++));
    }
  };
  number(next, free_, options.host_pages);
  for (const AgentDevice& device : options.devices) {
    HEDDLE_CHECK(device.copy || !device.own_memory);
    WorkerState& worker = workers_[device.id];
    worker.device = device;
    std::uint64_t own = 0;
    HEDDLE_CHECK(device.kv_pages == 0 || !device.own_memory);
    number(device.own_memory ? own : next, worker.pool, device.pages + device.kv_pages);
  }
}

void AgentCore::Impl::step(Instant now,
                           const AgentEvent& event,
                           std::vector<AgentCommand>& commands) {
  HEDDLE_CHECK(now >= now_);
  now_ = now;
  commands_ = &commands;
  std::visit([this](const auto& concrete) { on(concrete); }, event);
  drop_unwanted();
  start_workers();
  send_operations();
  set_timer();
  commands_ = nullptr;
}

void AgentCore::Impl::on(const StartAgent& /*start*/) {
  running_ = true;
}

void AgentCore::Impl::on(const StopAgent& /*stop*/) {
  running_ = false;
}

/// What is evicted goes on: the host may want that itself.
void AgentCore::Impl::on(const ForgetOrders& /*forget*/) {
  for (auto& [id, worker] : workers_) {
    std::erase_if(worker.operations, [](const HostOperation& operation) {
      return std::holds_alternative<LoadOn>(operation) || std::holds_alternative<Weave>(operation);
    });
  }
}

void AgentCore::Impl::on(const AgentModels& models) {
  models_.clear();
  for (const AgentModel& model : models.models) {
    HEDDLE_CHECK(model.footprint.image_pages > 0);
    models_[model.id] = model;
  }
}

WorkerState* AgentCore::Impl::live(DeviceId device, WorkerEpoch epoch) {
  const auto found = workers_.find(device);
  const bool current = found != workers_.end() && found->second.epoch == epoch &&
                       found->second.life != Life::kDown && found->second.life != Life::kDoomed;
  return current ? &found->second : nullptr;
}

// An order for a life that has ended needs no answer: the manager has heard, or will, WorkerDown.
void AgentCore::Impl::on(const LoadOn& load) {
  if (WorkerState* worker = live(load.device, load.basis.epoch)) {
    worker->operations.emplace_back(load);
  }
}

void AgentCore::Impl::on(const EvictFrom& evict) {
  WorkerState* worker = live(evict.device, evict.basis.epoch);
  if (worker == nullptr) {
    return;
  }
  const WantedEvict wanted{.order = evict, .last_used = now_ - evict.idle};
  if (evict.mode == EvictMode::kWhenIdle) {
    worker->operations.emplace_back(wanted);
    return;
  }
  // It goes first: what waits before it may wait for the very pages that it frees.
  std::erase_if(worker->operations, [&](const HostOperation& operation) {
    const auto* load = std::get_if<LoadOn>(&operation);
    return load != nullptr && load->model == evict.model;
  });
  worker->operations.emplace_front(wanted);
}

void AgentCore::Impl::start_workers() {
  for (auto& [id, worker] : workers_) {
    const bool ready =
        std::ssize(worker.pool) + worker.away() == worker.device.pages + worker.device.kv_pages &&
        now_ >= worker.restart_at;
    if (!running_ || worker.life != Life::kDown || !ready) {
      continue;
    }
    worker.life = Life::kStarting;
    worker.epoch = worker_epoch(options_.incarnation, ++lives_given_);
    worker.up_at.reset();
    commands_->push_back(SpawnWorker{
        .device = id, .epoch = worker.epoch, .pages = {worker.pool.begin(), worker.pool.end()}});
  }
}

ModelsByDevice AgentCore::Impl::models() const {
  ModelsByDevice all;
  for (const auto& [id, worker] : workers_) {
    for (const auto& [model, hosted] : worker.models) {
      all[id].push_back(model);
    }
  }
  return all;
}

void AgentCore::Impl::on(const WorkerConnected& connected) {
  WorkerState* worker = live(connected.device, connected.epoch);
  if (worker != nullptr && worker->life == Life::kStarting) {
    worker->life = Life::kUp;
    worker->up_at = now_;
    if (!worker->arrived.empty()) {
      commands_->push_back(
          SendWorker{.device = connected.device,
                     .epoch = connected.epoch,
                     .message = GivePages{.pages = std::exchange(worker->arrived, {})}});
    }
    for (const auto& [model, pair] : worker->guests) {
      if (worker->lent.contains(model) && live(pair.hot, pair.hot_epoch) != nullptr) {
        if (worker->device.own_memory) {
          share_memory(
              *worker, model, {worker->lent.at(model).begin(), worker->lent.at(model).end()});
        }
        connect_guests(*worker, model);
      }
    }
    tell(WorkerUp{.device = connected.device, .epoch = connected.epoch});
  }
}

void AgentCore::Impl::on(const WorkerExited& exited) {
  WorkerState& worker = workers_.at(exited.device);
  if (worker.epoch != exited.epoch || worker.life == Life::kDown) {
    return;
  }
  const bool doomed = worker.life == Life::kDoomed;
  const bool killed = doomed ? worker.blameless : exited.killed;
  const bool calm = (!doomed || worker.blameless) && worker.up_at &&
                    now_ - *worker.up_at >= options_.restart_calm;
  worker.failures = calm ? 1 : worker.failures + 1;
  worker.restart_at =
      now_ + policy::backoff(worker.failures, options_.restart_first, options_.restart_most);
  worker.life = Life::kDown;
  worker.arrived.clear();
  refuse_loans(worker);
  worker.operations.clear();
  disconnect_host(worker);
  lose_hot(exited.device, exited.epoch);
  take_back_pages(worker);
  end_groups(exited.device, exited.epoch, killed);
  tell(WorkerDown{.device = exited.device, .epoch = exited.epoch, .killed = killed});
}

void AgentCore::Impl::on(const WorkerHung& hung) {
  if (WorkerState* worker = live(hung.device, hung.epoch)) {
    doom(*worker, hung.reason, hung.stopped);
  }
}

void AgentCore::Impl::take_back_pages(WorkerState& worker) {
  worker.gave_back.clear();
  const std::map<ModelId, Hosted> hosted = std::exchange(worker.models, {});
  for (const auto& [model, entry] : hosted) {
    if (entry.source == ImageSource::kGiven) {
      take_back_image(worker, model, images_.at(model), entry);
    }
    unpin(model, worker.device.id);
  }
  for (const SentEvict& sent : std::exchange(worker.evicts, {})) {
    HEDDLE_CHECK(!sent.lease || !hosted.contains(sent.model));
    if (sent.lease) {
      undo_gift(worker, sent);  // The load before it had been refused.
    }
  }
}

/// Windows are read only, so the image is as good as it was. It comes home if the host has room for
/// it: in exchange for as many free pages, unless an exchange was on its way already.
void AgentCore::Impl::take_back_image(WorkerState& worker,
                                      ModelId model,
                                      Image& image,
                                      const Hosted& hosted) {
  image.at.reset();
  const auto sent = std::find_if(worker.evicts.begin(),
                                 worker.evicts.end(),
                                 [&](const SentEvict& evict) { return evict.model == model; });
  const bool paid = sent != worker.evicts.end() && sent->lease.has_value();
  if (paid) {
    if (hosted.owed) {
      // Two exchanges under way: the pages that the first owed stay here, in the pool.
      ledger_.release(*hosted.owed);
      const std::int64_t count = std::ssize(image.pages);
      for (std::int64_t i = 0; i < count; ++i) {
        free_.insert(worker.pool.extract(std::prev(worker.pool.end())).value());
      }
    }
    image.last_used = sent->last_used;
    const ledger::LeaseId lease = *sent->lease;
    worker.evicts.erase(sent);
    come_home(model, image, lease);
    return;
  }
  if (hosted.owed) {
    come_home(model, image, *hosted.owed);
    return;
  }
  const bool spoilt =
      image.dropping || image.read == ReadState::kFailed || image.read == ReadState::kStopped;
  if (!spoilt && make_room(std::ssize(image.pages), image.last_used)) {
    const ledger::LeaseId lease = lease_host(model, std::ssize(image.pages));
    for (const PageId page : take_free(std::ssize(image.pages))) {
      worker.pool.insert(page);
    }
    come_home(model, image, lease);
    return;
  }
  image.at = worker.device.id;
  image.orphan = true;
}

void AgentCore::Impl::set_timer() {
  std::optional<Instant> next;
  for (const auto& [id, worker] : workers_) {
    const bool waits = running_ && worker.life == Life::kDown && worker.restart_at > now_;
    if (waits && (!next || worker.restart_at < *next)) {
      next = worker.restart_at;
    }
  }
  if (next && next != timer_) {
    commands_->push_back(WakeAt{.at = *next});
  }
  timer_ = next;
}

void AgentCore::Impl::check_invariants() const {
  ledger_.check_invariants();
  const ledger::PoolUsage usage = ledger_.usage(ledger::kHostPool);
  HEDDLE_CHECK(usage.free == std::ssize(free_));
  std::int64_t arena = options_.host_pages;
  std::int64_t placed = std::ssize(free_);
  std::set<PageId> seen = free_;
  for (const auto& [id, worker] : workers_) {
    std::set<PageId> own = worker.pool;
    own.insert(worker.unbacked.begin(), worker.unbacked.end());
    for (const auto& [model, pages] : worker.lent) {
      own.insert(pages.begin(), pages.end());
    }
    for (const auto& [model, pair] : worker.guests) {
      HEDDLE_CHECK(std::ranges::includes(pair.pending, pair.unshared));
      HEDDLE_CHECK(pair.pending.empty() ||
                   std::ranges::includes(worker.lent.at(model), pair.pending));
      HEDDLE_CHECK(pair.recalled <= worker.granted(model));
    }
    HEDDLE_CHECK(worker.life != Life::kStarting || worker.models.empty());
    if (worker.device.own_memory) {
      check_numbered(own, worker.device.pages);
      continue;
    }
    arena += worker.device.pages + worker.device.kv_pages;
    placed += std::ssize(worker.pool) + worker.away();
    seen.merge(own);
  }
  for (const auto& [model, image] : images_) {
    placed += std::ssize(image.pages);
    seen.insert(image.pages.begin(), image.pages.end());
    HEDDLE_CHECK(image.at.has_value() != image.lease.has_value());
    HEDDLE_CHECK(image.orphan || !image.at || workers_.at(*image.at).models.contains(model));
    HEDDLE_CHECK((reading_ == model || fetching_.contains(model)) == image.being_written());
  }
  // Each page in one place, and none lost.
  HEDDLE_CHECK(placed == arena);
  check_numbered(seen, arena);
}

AgentCore::AgentCore(const AgentOptions& options) : impl_(std::make_unique<Impl>(options)) {}
AgentCore::~AgentCore() = default;
AgentCore::AgentCore(AgentCore&&) noexcept = default;
AgentCore& AgentCore::operator=(AgentCore&&) noexcept = default;

void AgentCore::step(Instant now, const AgentEvent& event, std::vector<AgentCommand>& commands) {
  impl_->step(now, event, commands);
}

ModelsByDevice AgentCore::models() const {
  return impl_->models();
}

ledger::PoolUsage AgentCore::host_usage() const {
  return impl_->host_usage();
}

void AgentCore::check_invariants() const {
  impl_->check_invariants();
}

}  // namespace heddle::core
