#include <algorithm>
#include <utility>

#include "base/check.h"
#include "core/agent_core_impl.h"
#include "policy/host_cache.h"

namespace heddle::core {

using ledger::LeaseId;

Image* AgentCore::Impl::image(ModelId model) {
  const auto found = images_.find(model);
  return found == images_.end() ? nullptr : &found->second;
}

std::vector<PageId> AgentCore::Impl::take_free(std::int64_t count) {
  HEDDLE_CHECK(std::ssize(free_) >= count);
  const auto end = std::next(free_.begin(), count);
  std::vector<PageId> pages(free_.begin(), end);
  free_.erase(free_.begin(), end);
  return pages;
}

/// Reserves host pages, which the caller has made sure there are.
LeaseId AgentCore::Impl::lease_host(ModelId model, std::int64_t pages) {
  const ledger::Demand demand{.pool = ledger::kHostPool, .pages = pages};
  const Result<LeaseId> lease =
      ledger_.reserve(ledger::LeaseKind::kImage, {.model = model}, {&demand, 1});
  HEDDLE_CHECK(lease.has_value());
  return *lease;
}

/// Makes `pages` free at the host, if need be by dropping images that were used before
/// `worth_since`; false, with nothing changed, if that does not do.
bool AgentCore::Impl::make_room(std::int64_t pages, Instant worth_since) {
  const std::int64_t lacking = pages - std::ssize(free_);
  if (lacking <= 0) {
    return true;
  }
  std::vector<policy::CachedImage> candidates;
  for (const auto& [model, image] : images_) {
    if (!image.at && image.read == ReadState::kComplete && image.quiet()) {
      candidates.push_back(
          {.model = model, .pages = std::ssize(image.pages), .last_used = image.last_used});
    }
  }
  const auto victims = policy::choose_images_to_drop(candidates, lacking, worth_since);
  if (!victims) {
    return false;
  }
  for (const ModelId victim : *victims) {
    drop(victim);
  }
  return true;
}

/// An image with pages, queued for the reader or fetched; null if there is no room for it now.
Image* AgentCore::Impl::create_image(const AgentModel& model, const LoadOn& load) {
  const std::int64_t pages = pages_at_host(model);
  if (!make_room(pages, Instant::max())) {
    return nullptr;
  }
  Image& image = images_[model.id];
  image.lease = lease_host(model.id, pages);
  ledger_.commit(*image.lease, ledger::kHostPool, pages);
  image.pages = take_free(pages);
  image.bytes = model.image_bytes;
  if (model.fetched) {
    image.read = ReadState::kReading;
    fetching_.insert(model.id);
    commands_->push_back(StartRead{.model = model.id,
                                   .pages = image.pages,
                                   .early = load.early,
                                   .due_in = load.due_in,
                                   .peers = load.peers});
  } else {
    reads_.push_back(model.id);
    start_reader();
  }
  return &image;
}

void AgentCore::Impl::start_reader() {
  if (reading_ || reads_.empty()) {
    return;
  }
  reading_ = reads_.front();
  reads_.pop_front();
  Image& image = images_.at(*reading_);
  image.read = ReadState::kReading;
  commands_->push_back(StartRead{.model = *reading_, .pages = image.pages});
}

/// Sees to it that nobody writes the image any more, if not at once, then in time.
void AgentCore::Impl::stop_read(ModelId model, Image& image) {
  if (image.read == ReadState::kPending) {
    std::erase(reads_, model);
    image.read = ReadState::kStopped;
  } else if (image.read == ReadState::kReading) {
    image.read = ReadState::kStopping;
    commands_->push_back(CancelRead{.model = model});
  }
}

void AgentCore::Impl::on(const ReadProgress& progress) {
  Image* found = image(progress.model);
  if (found == nullptr || !found->being_written() || progress.bytes <= found->ready_bytes) {
    return;
  }
  found->ready_bytes = progress.bytes;
  for (const auto& [id, worker] : workers_) {
    if (worker.life == Life::kUp && worker.models.contains(progress.model)) {
      commands_->push_back(
          SendWorker{.device = id,
                     .epoch = worker.epoch,
                     .message = ImageProgress{.model = progress.model, .bytes = progress.bytes}});
    }
  }
  tell_image_state(progress.model, *found);
}

void AgentCore::Impl::on(const ReadEnded& ended) {
  const bool fetched = fetching_.contains(ended.model);
  HEDDLE_CHECK(fetched || reading_ == ended.model);
  Image& ended_image = images_.at(ended.model);
  if (!ended.error) {
    on(ReadProgress{.model = ended.model, .bytes = ended_image.bytes});
  }
  if (fetched) {
    fetching_.erase(ended.model);
  } else {
    reading_.reset();
  }
  if (!ended.error) {
    ended_image.read = ReadState::kComplete;
    tell_image_state(ended.model, ended_image);
  } else if (ended_image.read == ReadState::kStopping) {
    ended_image.read = ReadState::kStopped;
  } else {
    fail_image(ended.model, ended_image, *ended.error);
  }
  start_reader();
}

void AgentCore::Impl::on(const ImageSpoilt& spoilt) {
  Image* found = image(spoilt.model);
  if (found != nullptr && found->read == ReadState::kComplete) {
    fail_image(spoilt.model, *found, spoilt.error);
  }
}

/// Whoever has the image gives it up, and whoever waits for it is told.
void AgentCore::Impl::fail_image(ModelId model, Image& image, const Error& error) {
  image.read = ReadState::kFailed;
  image.error = error;
  for (auto& [id, worker] : workers_) {
    std::erase_if(worker.operations, [&](const HostOperation& operation) {
      const auto* load = std::get_if<LoadOn>(&operation);
      if (load == nullptr || load->model != model) {
        return false;
      }
      tell(ImageFailed{.device = id, .epoch = worker.epoch, .model = model, .reason = error});
      return true;
    });
    if (worker.life == Life::kUp) {
      commands_->push_back(
          SendWorker{.device = id, .epoch = worker.epoch, .message = ForgetKv{.model = model}});
    }
    if (worker.models.contains(model)) {
      worker.operations.push_front(WantedEvict{.order = {.device = id,
                                                         .model = model,
                                                         .basis = {.epoch = worker.epoch},
                                                         .mode = EvictMode::kNow},
                                               .failure = error});
    }
  }
}

/// The image is the host's again; `lease` has its pages reserved.
void AgentCore::Impl::come_home(ModelId model, Image& image, LeaseId lease) {
  ledger_.commit(lease, ledger::kHostPool, std::ssize(image.pages));
  image.lease = lease;
  image.at.reset();
  image.dropping = false;
  tell_image_state(model, image);
}

void AgentCore::Impl::unpin(ModelId model, DeviceId device) {
  if (Image* found = image(model)) {
    found->copiers.erase(device);
  }
}

/// Forgets an image that is at the host or an orphan; nobody uses its pages.
void AgentCore::Impl::drop(ModelId model) {
  Image& image = images_.at(model);
  HEDDLE_CHECK(image.quiet() && image.lease.has_value() != image.orphan);
  std::set<PageId>& pages = image.orphan ? workers_.at(*image.at).pool : free_;
  pages.insert(image.pages.begin(), image.pages.end());
  if (image.lease) {
    ledger_.release(*image.lease);
  }
  std::erase(reads_, model);
  images_.erase(model);
  tell(ImageState{.model = model, .host = host_of(workers_.begin()->first)});
  tell_image_gone(model);
}

/// Workers that had the image and gave it back map its pages no longer. Until they have heard, what
/// they map is read only, and read by nobody.
void AgentCore::Impl::tell_image_gone(ModelId model) {
  for (auto& [id, worker] : workers_) {
    if (worker.gave_back.erase(model) > 0 && worker.life == Life::kUp) {
      commands_->push_back(
          SendWorker{.device = id, .epoch = worker.epoch, .message = ImageGone{.model = model}});
    }
  }
}

/// Whether an image is fetched for nobody: it was evicted before it was there. Of one that is there
/// the files are still compared with their digests.
bool AgentCore::Impl::abandoned(ModelId model, const Image& image) const {
  const auto orders = [&](const HostOperation& operation) {
    const auto* load = std::get_if<LoadOn>(&operation);
    return load != nullptr && load->model == model;
  };
  return fetching_.contains(model) && image.ready_bytes < image.bytes && !image.at &&
         image.copiers.empty() &&
         std::ranges::none_of(
             workers_,
             [&](const auto& entry) {
               return std::ranges::any_of(entry.second.operations, orders);
             });
}

/// Drops what is of no use to anybody: images that failed or were stopped, orphans, and those of
/// models that are gone.
void AgentCore::Impl::drop_unwanted() {
  std::vector<ModelId> unwanted;
  for (auto& [model, image] : images_) {
    const bool gone = !models_.contains(model) && !image.at;
    if (((gone || image.orphan) && image.copiers.empty()) || abandoned(model, image)) {
      stop_read(model, image);
    }
    const bool useless = image.read == ReadState::kFailed || image.read == ReadState::kStopped;
    if (image.quiet() && (image.orphan || (!image.at && (gone || useless)))) {
      unwanted.push_back(model);
    }
  }
  for (const ModelId model : unwanted) {
    drop(model);
  }
}

void AgentCore::Impl::tell_image_state(ModelId model, const Image& image) {
  tell(ImageState{.model = model,
                  .bytes = image.ready_bytes,
                  .host_cached = !image.at && image.read == ReadState::kComplete,
                  .host = host_of(workers_.begin()->first)});
}

}  // namespace heddle::core
