#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "core/agent_core_impl.h"

namespace heddle::core {

void AgentCore::Impl::send_operations() {
  for (auto& [id, worker] : workers_) {
    while (worker.life == Life::kUp && !worker.operations.empty()) {
      const HostOperation operation = worker.operations.front();
      const bool sent =
          std::visit([&, this](const auto& concrete) { return send(worker, concrete); }, operation);
      if (!sent) {
        break;
      }
      worker.operations.pop_front();
    }
  }
}

namespace {

/// A manager that is new took an older one's eviction for that of its own load, and ordered
/// another.
WorkerSaid already_there(const WorkerState& worker, const LoadOn& load) {
  return {.device = worker.device.id,
          .epoch = worker.epoch,
          .report = LoadRefused{.model = load.model,
                                .version = load.basis.version,
                                .reason = {Code::kFailedPrecondition,
                                           "load model " + std::to_string(load.model.value()) +
                                               ": it is there already"}}};
}

}  // namespace

// ---- To the worker. True when the operation was sent or answered, false when it has to wait. ----

bool AgentCore::Impl::send(WorkerState& worker, const LoadOn& load) {
  const DeviceId device = worker.device.id;
  const auto fail = [&](Code code, std::string message) {
    tell(ImageFailed{.device = device,
                     .epoch = worker.epoch,
                     .model = load.model,
                     .reason = {code, std::move(message)}});
    return true;
  };
  const auto model = models_.find(load.model);
  if (model == models_.end()) {
    return fail(Code::kNotFound,
                "load model " + std::to_string(load.model.value()) + ": it was removed");
  }
  const std::int64_t pages = pages_at_host(model->second);
  if (pages > options_.host_pages) {
    return fail(Code::kInvalidArgument,
                "load model " + std::to_string(load.model.value()) + ": its image of " +
                    std::to_string(pages) + " pages is larger than the host cache of " +
                    std::to_string(options_.host_pages));
  }
  if (awaits_answer(worker, load.model)) {
    return false;  // Where the image is shows when that is answered.
  }
  if (worker.models.contains(load.model)) {
    tell(already_there(worker, load));
    return true;
  }
  if (worker.asked.contains(load.model) || recalls_guests(worker)) {
    return false;  // Pages are on their way, there or back.
  }
  Image* found = image(load.model);
  if (found == nullptr) {
    found = create_image(model->second, load);
  }
  const bool usable = found != nullptr && !found->dropping && !found->orphan &&
                      (found->read == ReadState::kReading || found->read == ReadState::kComplete);
  if (!usable) {
    return false;
  }
  found->last_used = std::max(found->last_used, now_);
  Hosted hosted{.footprint = worker.device.own_memory ? model->second.gpu_footprint
                                                      : model->second.footprint};
  if (worker.device.copy || found->at || model->second.host_pages > 0) {
    hosted.source = ImageSource::kShared;
    found->copiers.insert(device);
  } else {
    // Until PagesReturned, the host is owed as many pages as it gives.
    hosted.owed = std::exchange(found->lease, std::nullopt);
    ledger_.uncommit(*hosted.owed, ledger::kHostPool, pages);
    found->at = device;
    tell_image_state(load.model, *found);
  }
  commands_->push_back(SendWorker{.device = device,
                                  .epoch = worker.epoch,
                                  .message = LoadModel{.model = load.model,
                                                       .basis = load.basis,
                                                       .source = hosted.source,
                                                       .pages = found->pages,
                                                       .image_bytes = found->bytes,
                                                       .ready_bytes = found->ready_bytes,
                                                       .footprint = hosted.footprint}});
  worker.models[load.model] = std::move(hosted);
  return true;
}

bool AgentCore::Impl::send(WorkerState& worker, const WantedEvict& evict) {
  const EvictFrom& order = evict.order;
  const auto hosted = worker.models.find(order.model);
  const bool given = hosted != worker.models.end() && hosted->second.source == ImageSource::kGiven;
  Image* found = given ? image(order.model) : nullptr;
  if (awaits_answer(worker, order.model)) {
    if (evict.failure && hosted != worker.models.end()) {
      // That eviction may wait for a step which waits for weights that never come.
      send_evict(worker, evict, {});
      return true;
    }
    return false;  // Where the image is shows when that is answered.
  }
  if (hosted == worker.models.end()) {
    if (!evict.failure) {
      tell_gone(worker, order.model, std::nullopt);
    }
    return true;  // After a failure: the manager has heard already that the model is not there.
  }
  if (found != nullptr) {
    return send_given_evict(worker, evict, *found);
  }
  send_evict(worker, evict, {});
  return true;
}

bool AgentCore::Impl::awaits_answer(const WorkerState& worker, ModelId model) {
  return std::any_of(worker.evicts.begin(), worker.evicts.end(), [&](const SentEvict& sent) {
    return sent.model == model;
  });
}

/// Lets the manager know that the worker does not have the model, or has it no longer.
void AgentCore::Impl::tell_gone(const WorkerState& worker,
                                ModelId model,
                                const std::optional<Error>& failure) {
  if (failure) {
    tell(ImageFailed{
        .device = worker.device.id, .epoch = worker.epoch, .model = model, .reason = *failure});
  } else {
    tell(WorkerSaid{
        .device = worker.device.id, .epoch = worker.epoch, .report = ModelEvicted{.model = model}});
  }
}

/// The image goes back to the host if that has, or can make, room for it.
bool AgentCore::Impl::send_given_evict(WorkerState& worker,
                                       const WantedEvict& evict,
                                       Image& image) {
  const ModelId model = evict.order.model;
  const std::int64_t pages = std::ssize(image.pages);
  const Instant last_used = std::max(image.last_used, evict.last_used);
  const bool worth = image.read != ReadState::kFailed && image.read != ReadState::kStopped &&
                     image.read != ReadState::kStopping && models_.contains(model);
  if (worth && make_room(pages, last_used)) {
    SentEvict sent{.lease = lease_host(model, pages), .last_used = last_used};
    sent.pages = take_free(pages);
    worker.pool.insert(sent.pages.begin(), sent.pages.end());
    send_evict(worker, evict, std::move(sent));
    return true;
  }
  if (!image.copiers.empty()) {
    return false;  // They need the rest of it, too.
  }
  stop_read(model, image);
  if (image.being_written()) {
    return false;
  }
  image.dropping = true;
  WantedEvict drop = evict;
  if (image.read != ReadState::kComplete) {
    drop.order.mode = EvictMode::kNow;  // A step may be waiting for the rest, which never comes.
  }
  send_evict(worker, drop, {});
  return true;
}

void AgentCore::Impl::send_evict(WorkerState& worker, const WantedEvict& evict, SentEvict sent) {
  commands_->push_back(SendWorker{.device = worker.device.id,
                                  .epoch = worker.epoch,
                                  .message = EvictModel{.model = evict.order.model,
                                                        .basis = evict.order.basis,
                                                        .mode = evict.order.mode,
                                                        .pages = sent.pages}});
  sent.model = evict.order.model;
  sent.failure = evict.failure;
  worker.evicts.push_back(std::move(sent));
}

// ---- From the worker ----

void AgentCore::Impl::on(const WorkerSaid& said) {
  WorkerState* worker = live(said.device, said.epoch);
  if (worker == nullptr) {
    return;
  }
  const auto* evicted = std::get_if<ModelEvicted>(&said.report);
  std::optional<Error> failure;
  bool there = false;
  if (evicted != nullptr) {
    there = worker->models.contains(evicted->model);
    const auto sent = std::find_if(worker->evicts.begin(),
                                   worker->evicts.end(),
                                   [&](const auto& e) { return e.model == evicted->model; });
    failure = sent == worker->evicts.end() ? std::nullopt : sent->failure;
  }
  std::visit([&, this](const auto& report) { heard(*worker, report); }, said.report);
  if (worker->life == Life::kDoomed) {
    return;
  }
  if (evicted != nullptr) {
    if (there || !failure) {  // Else the answer to an earlier eviction was told.
      tell_gone(*worker, evicted->model, failure);
    }
    return;
  }
  const auto* refused = std::get_if<LoadRefused>(&said.report);
  const auto failing =
      refused == nullptr
          ? worker->evicts.end()
          : std::find_if(worker->evicts.begin(), worker->evicts.end(), [&](const auto& sent) {
              return sent.model == refused->model && sent.failure;
            });
  if (failing != worker->evicts.end()) {
    // The eviction that is under way will find nothing: nothing else is told of it.
    tell_gone(*worker, refused->model, failing->failure);
    return;
  }
  const bool ours = std::holds_alternative<PagesReturned>(said.report) ||
                    std::holds_alternative<GuestsReturned>(said.report) ||
                    std::holds_alternative<GuestsShared>(said.report) ||
                    std::holds_alternative<ImageCopied>(said.report) ||
                    std::holds_alternative<TokensProduced>(said.report);
  if (!ours) {
    tell(said);
  }
}

/// What it did cannot be trusted any more, its pages least of all, until it is dead.
void AgentCore::Impl::doom(WorkerState& worker, Error reason, bool blameless) {
  worker.life = Life::kDoomed;
  worker.blameless = blameless;
  commands_->push_back(
      KillWorker{.device = worker.device.id, .epoch = worker.epoch, .reason = std::move(reason)});
}

void AgentCore::Impl::heard(WorkerState& worker, const LoadRefused& refused) {
  if (miss_loan(worker, refused)) {
    return;
  }
  const auto found = worker.models.find(refused.model);
  if (found == worker.models.end()) {
    doom(worker, {Code::kCorrupt, "refused a load that was not asked for"});
    return;
  }
  if (found->second.source == ImageSource::kGiven) {
    if (!found->second.owed) {
      doom(worker, {Code::kCorrupt, "refused a load after having returned pages for it"});
      return;
    }
    come_home(refused.model, images_.at(refused.model), *found->second.owed);
  }
  unpin(refused.model, worker.device.id);
  worker.models.erase(found);
}

void AgentCore::Impl::heard(WorkerState& worker, const PagesReturned& returned) {
  if (take_loan(worker, returned)) {
    return;
  }
  const auto found = worker.models.find(returned.model);
  const bool expected = found != worker.models.end() && found->second.owed &&
                        std::ssize(returned.pages) == found->second.footprint.image_pages;
  const std::set<PageId> pages(returned.pages.begin(), returned.pages.end());
  const bool own =
      pages.size() == returned.pages.size() &&
      std::includes(worker.pool.begin(), worker.pool.end(), pages.begin(), pages.end());
  if (!expected || !own) {
    doom(worker,
         {Code::kCorrupt,
          "returned " + std::to_string(returned.pages.size()) +
              " pages that it did not owe or have"});
    return;
  }
  for (const PageId page : pages) {
    worker.pool.erase(page);
    free_.insert(page);
  }
  ledger_.release(*found->second.owed);
  found->second.owed.reset();
}

void AgentCore::Impl::heard(WorkerState& worker, const ImageCopied& copied) {
  unpin(copied.model, worker.device.id);
}

std::optional<SentEvict> AgentCore::Impl::answered(WorkerState& worker, ModelId model) {
  const auto found = std::find_if(worker.evicts.begin(),
                                  worker.evicts.end(),
                                  [&](const SentEvict& sent) { return sent.model == model; });
  if (found == worker.evicts.end()) {
    return std::nullopt;
  }
  SentEvict sent = std::move(*found);
  worker.evicts.erase(found);
  return sent;
}

/// The pages that went with an eviction are the host's again.
void AgentCore::Impl::undo_gift(WorkerState& worker, const SentEvict& sent) {
  for (const PageId page : sent.pages) {
    if (worker.pool.erase(page) == 0) {
      // It was taken for a free page and returned as such; any other page of the pool will do.
      HEDDLE_CHECK(!worker.pool.empty());
      free_.insert(worker.pool.extract(std::prev(worker.pool.end())).value());
      continue;
    }
    free_.insert(page);
  }
  if (sent.lease) {
    ledger_.release(*sent.lease);
  }
}

void AgentCore::Impl::heard(WorkerState& worker, const EvictRefused& refused) {
  const auto sent = answered(worker, refused.model);
  if (!sent) {
    doom(worker, {Code::kCorrupt, "refused an eviction that was not asked for"});
    return;
  }
  undo_gift(worker, *sent);
  Image* found = image(refused.model);
  if (found != nullptr && found->at == worker.device.id) {
    found->dropping = false;
  }
}

void AgentCore::Impl::heard(WorkerState& worker, const ModelEvicted& evicted) {
  const auto sent = answered(worker, evicted.model);
  const auto hosted = worker.models.find(evicted.model);
  const bool there = hosted != worker.models.end();
  if (!sent || evicted.exchanged != (there && sent->lease.has_value()) ||
      (there && hosted->second.owed)) {
    doom(worker, {Code::kCorrupt, "evicted a model otherwise than it was asked to"});
    return;
  }
  if (!there) {
    undo_gift(worker, *sent);
    return;
  }
  if (hosted->second.source == ImageSource::kGiven) {
    Image& home = images_.at(evicted.model);
    home.last_used = std::max(home.last_used, sent->last_used);
    if (evicted.exchanged) {
      come_home(evicted.model, home, *sent->lease);
      worker.gave_back.insert(evicted.model);
    } else {
      worker.pool.insert(home.pages.begin(), home.pages.end());
      images_.erase(evicted.model);
      tell(ImageState{.model = evicted.model, .host = host_of(worker.device.id)});
      tell_image_gone(evicted.model);
    }
  }
  unpin(evicted.model, worker.device.id);
  worker.models.erase(hosted);
  leave_group(worker.device.id, evicted.model);
}

}  // namespace heddle::core
