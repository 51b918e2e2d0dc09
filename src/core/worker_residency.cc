#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "core/worker_core_impl.h"

namespace heddle::core {
namespace {

using ledger::LeaseId;
using ledger::LeaseKind;

std::string text(std::int64_t number) {
  return std::to_string(number);
}
std::string text(ModelId model) {
  return "model " + std::to_string(model.value());
}

}  // namespace

void WorkerCore::Impl::on(const EvictModel& evict) {
  if (evict.mode == EvictMode::kNow) {
    // What has not begun never does; what runs is given back at once, so that the eviction waits
    // for nothing but its turn.
    std::erase_if(operations_, [&](const Operation& operation) {
      const auto* load = std::get_if<LoadModel>(&operation);
      if (load == nullptr || load->model != evict.model) {
        return false;
      }
      say(LoadRefused{.model = load->model,
                      .version = version_,
                      .reason = {Code::kCancelled, text(load->model) + ": evicted before loaded"}});
      return true;
    });
    const auto found = models_.find(evict.model);
    if (found != models_.end()) {
      found->second.draining = true;
      give_back_requests(evict.model);
    }
  }
  operations_.emplace_back(evict);
}

void WorkerCore::Impl::carry_out() {
  while (!operations_.empty()) {
    const Operation operation = operations_.front();
    const bool done =
        std::visit([this](const auto& concrete) { return carry_out(concrete); }, operation);
    if (!done) {
      return;
    }
    operations_.pop_front();
    residency_changed_ = true;
  }
}

std::optional<Error> WorkerCore::Impl::staleness(const Basis& basis) const {
  if (basis.epoch == options_.epoch && basis.version == version_) {
    return std::nullopt;
  }
  return Error{Code::kFailedPrecondition,
               "stale: decided on epoch " + std::to_string(basis.epoch.value()) + " version " +
                   std::to_string(basis.version) + ", this is epoch " +
                   std::to_string(options_.epoch.value()) + " version " + std::to_string(version_)};
}

void WorkerCore::Impl::refuse(const LoadModel& load, Error reason) {
  say(LoadRefused{.model = load.model, .version = ++version_, .reason = std::move(reason)});
}

void WorkerCore::Impl::refuse(const LendPages& lend, Error reason) {
  say(LoadRefused{.model = lend.model, .version = ++version_, .reason = std::move(reason)});
}

void WorkerCore::Impl::refuse(const EvictModel& evict, Error reason) {
  say(EvictRefused{.model = evict.model, .version = ++version_, .reason = std::move(reason)});
}

/// True when the load was begun or refused, false when it has to wait.
bool WorkerCore::Impl::carry_out(const LoadModel& load) {
  if (auto stale = staleness(load.basis)) {
    refuse(load, std::move(*stale));
    return true;
  }
  const auto found = models_.find(load.model);
  if (found != models_.end()) {
    if (found->second.stage == Stage::kClosing) {
      return false;
    }
    refuse(load, {Code::kFailedPrecondition, text(load.model) + " is resident already"});
    return true;
  }
  const std::int64_t need =
      load.footprint.image_pages + workspace_with(load.footprint.overhead_pages) - workspace_pages_;
  bool wait = false;
  if (find_room(need, wait)) {
    open(load);
    return true;
  }
  if (wait) {
    return false;
  }
  refuse(load,
         {Code::kResourceExhausted,
          "load " + text(load.model) + ": needs " + text(need) + " pages, free are " +
              text(ledger_.usage(pool_).free + cached_pages_) + " of " + text(options_.pages)});
  return true;
}

/// Whether so many pages are free, cached prefixes giving way; if not, whether an eviction under
/// way may bring more, or CUDA graphs that go for it.
bool WorkerCore::Impl::find_room(std::int64_t need, bool& wait) {
  if (need > ledger_.usage(pool_).free + cached_pages_) {
    drop_gathers();
  }
  const std::int64_t free = ledger_.usage(pool_).free;
  if (need <= free + cached_pages_) {
    if (need > free) {
      trim_cached(cached_pages_ - (need - free), ledger::DropReason::kLoad);
    }
    return true;
  }
  wait = std::any_of(models_.begin(), models_.end(), [](const auto& entry) {
    return entry.second.stage == Stage::kClosing;
  });
  wait = wait || (need <= free + cached_pages_ + graph_pages_ && give_up_graphs());
  return false;
}

/// The device becomes smaller. True when that was done or refused, false when it has to wait.
bool WorkerCore::Impl::carry_out(const LendPages& lend) {
  if (auto stale = staleness(lend.basis)) {
    refuse(lend, std::move(*stale));
    return true;
  }
  bool wait = false;
  if (!find_room(lend.count, wait)) {
    if (wait) {
      return false;
    }
    refuse(lend,
           {Code::kResourceExhausted,
            "lend " + text(lend.count) + " pages for " + text(lend.model) + ": free are " +
                text(ledger_.usage(pool_).free + cached_pages_) + " of " + text(options_.pages)});
    return true;
  }
  options_.pages -= lend.count;
  HEDDLE_CHECK(ledger_.resize_pool(pool_, options_.pages).has_value());
  act(SurrenderPages{.model = lend.model, .count = lend.count});
  return true;
}

void WorkerCore::Impl::on(const GivePages& give) {
  options_.pages += std::ssize(give.pages);
  HEDDLE_CHECK(ledger_.resize_pool(pool_, options_.pages).has_value());
  act(AdoptPages{.pages = give.pages});
  crowded_ = stalled_ = false;
  residency_changed_ = true;
}

void WorkerCore::Impl::open(const LoadModel& load) {
  const auto lease = [&](LeaseKind kind, std::int64_t pages) {
    const ledger::Demand demand{.pool = pool_, .pages = pages};
    const Result<LeaseId> reserved = ledger_.reserve(kind, {.model = load.model}, {&demand, 1});
    HEDDLE_CHECK(reserved.has_value());
    ledger_.commit(*reserved, pool_, pages);
    return *reserved;
  };
  const policy::Footprint& footprint = load.footprint;
  const bool in_part =
      load.source == ImageSource::kShared && footprint.image_pages < std::ssize(load.pages);
  models_[load.model] = {.source = load.source,
                         .in_part = in_part,
                         .image_bytes = load.image_bytes,
                         .ready_bytes = load.source == ImageSource::kGiven ? load.ready_bytes : 0,
                         .footprint = footprint,
                         .kv = lease(LeaseKind::kKvOwn, 0)};
  fit_workspace();  // It may shrink for what comes now.
  models_.at(load.model).weights = lease(LeaseKind::kWeightsIdle, footprint.image_pages);
  costs_.add(load.model, load.image_bytes);
  if (load.source == ImageSource::kGiven) {
    act(SurrenderPages{.model = load.model, .count = footprint.image_pages});
  }
  act(OpenModel{.model = load.model,
                .source = load.source,
                .pages = load.pages,
                .image_bytes = load.image_bytes,
                .ready_bytes = load.ready_bytes,
                .part_pages = in_part ? footprint.image_pages : 0});
}

/// True when the eviction was begun or answered, false when it has to wait.
bool WorkerCore::Impl::carry_out(const EvictModel& evict) {
  const auto found = models_.find(evict.model);
  if (found != models_.end() && found->second.stage == Stage::kClosing) {
    return false;
  }
  if (evict.mode == EvictMode::kWhenIdle) {
    if (auto stale = staleness(evict.basis)) {
      refuse(evict, std::move(*stale));
      return true;
    }
  }
  if (found == models_.end()) {
    say(ModelEvicted{.model = evict.model});
    return true;
  }
  Resident& model = found->second;
  if (!model.draining) {
    model.draining = true;
    residency_changed_ = true;
  }
  if (stalled_ || (model.share && model.share->stalled)) {
    // They never end: whoever is to find pages for the oldest waits for this very eviction.
    give_back_requests(evict.model);
  }
  if (sequences_.count(evict.model) > 0) {
    return false;
  }
  close(evict.model, model, evict);
  return true;
}

void WorkerCore::Impl::close(ModelId id, Resident& model, const EvictModel& evict) {
  HEDDLE_CHECK(evict.pages.empty() || (model.source == ImageSource::kGiven &&
                                       std::ssize(evict.pages) == model.footprint.image_pages));
  return_guests(id, model, model.lent_pages);
  leave_pipe(id, model);
  end_gathers(id);
  model.stage = Stage::kClosing;
  model.exchanging = !evict.pages.empty();
  if (model.exchanging) {
    // The pages that came are free at once; the image's are the host's, though still mapped.
    ledger_.release(*model.weights);
    model.weights.reset();
    act(AdoptPages{.pages = evict.pages});
    crowded_ = stalled_ = false;
  }
  act(CloseModel{.model = id,
                 .image = model.exchanging ? ImagePages::kLeave : ImagePages::kToPool});
}

void WorkerCore::Impl::on(const ModelOpened& opened) {
  const auto found = models_.find(opened.model);
  if (found == models_.end() || found->second.stage != Stage::kOpening) {
    return;  // It was closed meanwhile.
  }
  found->second.stage = Stage::kOpen;
  residency_changed_ = true;
  act(SetImageReady{.model = opened.model, .bytes = found->second.ready_bytes});
  if (!found->second.draining) {
    say(ModelServing{.model = opened.model});
  }
}

void WorkerCore::Impl::on(const OpenFailed& failed) {
  const auto found = models_.find(failed.model);
  if (found == models_.end() || found->second.stage != Stage::kOpening) {
    return;
  }
  found->second.stage = Stage::kFailed;
  residency_changed_ = true;
  say(LoadFailed{.model = failed.model, .version = ++version_, .reason = failed.error});
}

void WorkerCore::Impl::on(const ModelClosed& closed) {
  const auto found = models_.find(closed.model);
  HEDDLE_CHECK(found != models_.end() && found->second.stage == Stage::kClosing);
  const Resident& model = found->second;
  if (model.weights) {
    ledger_.release(*model.weights);
  }
  ledger_.release(model.kv);
  say(ModelEvicted{.model = closed.model, .exchanged = model.exchanging});
  models_.erase(found);
  costs_.remove(closed.model);
  memory_came_free();
}

/// Who lacked pages may find some.
void WorkerCore::Impl::memory_came_free() {
  crowded_ = stalled_ = false;
  for (auto& [id, other] : models_) {
    if (other.share) {
      other.share->grows_at = now_;
    }
  }
  residency_changed_ = true;
}

void WorkerCore::Impl::set_ready(ModelId id, std::uint64_t bytes) {
  const auto found = models_.find(id);
  if (found == models_.end() || bytes <= found->second.ready_bytes) {
    return;
  }
  found->second.ready_bytes = bytes;
  residency_changed_ = residency_changed_ || found->second.complete();
  if (found->second.stage == Stage::kOpen) {
    act(SetImageReady{.model = id, .bytes = bytes});
  }
}

void WorkerCore::Impl::on(const ImageProgress& progress) {
  const auto found = models_.find(progress.model);
  if (found != models_.end() && found->second.source == ImageSource::kGiven) {
    set_ready(progress.model, progress.bytes);
  } else if (found != models_.end() && found->second.stage != Stage::kClosing) {
    act(SetSourceReady{.model = progress.model, .bytes = progress.bytes});
  }
  for (Operation& operation : operations_) {
    auto* load = std::get_if<LoadModel>(&operation);
    if (load != nullptr && load->model == progress.model) {
      load->ready_bytes = std::max(load->ready_bytes, progress.bytes);
    }
  }
}

void WorkerCore::Impl::on(const CopyProgress& progress) {
  const auto found = models_.find(progress.model);
  if (found == models_.end() || found->second.source != ImageSource::kShared) {
    return;
  }
  const bool was_complete = found->second.complete();
  set_ready(progress.model, progress.bytes);
  if (!was_complete && found->second.complete() && !found->second.in_part) {
    say(ImageCopied{.model = progress.model});
  }
}

}  // namespace heddle::core
