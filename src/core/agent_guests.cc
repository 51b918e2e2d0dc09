#include <algorithm>
#include <utility>

#include "base/check.h"
#include "core/agent_core_impl.h"

/// Pages that one device lends to KV of a model on another (WEAVER). While they are lent they are
/// in nobody's pool: they survive the host's worker, and come back when the hot one ends.
namespace heddle::core {
namespace {

std::vector<PageId> listed(const std::set<PageId>& pages) {
  return {pages.begin(), pages.end()};
}

}  // namespace

void AgentCore::Impl::on(const Weave& weave) {
  WorkerState* host = live(weave.host, weave.basis.epoch);
  WorkerState* hot = live(weave.hot, weave.hot_epoch);
  if (host == nullptr || hot == nullptr || host->device.own_memory != hot->device.own_memory) {
    if (const auto found = workers_.find(weave.host); found != workers_.end()) {
      tell_guests(found->second, weave.model, true);
    }
    return;
  }
  host->operations.emplace_back(weave);
}

/// In order with loads and evictions, as those before it may bring the pages.
bool AgentCore::Impl::send(WorkerState& worker, const Weave& weave) {
  if (worker.models.contains(weave.model) || worker.asked.contains(weave.model) ||
      recalls_guests(worker) || live(weave.hot, weave.hot_epoch) == nullptr) {
    tell_guests(worker, weave.model, true);
    return true;
  }
  const auto [pair, added] = worker.guests.try_emplace(
      weave.model, GuestPair{.hot = weave.hot, .hot_epoch = weave.hot_epoch});
  if (!added && pair->second.hot_epoch != weave.hot_epoch) {
    tell_guests(worker, weave.model, true);  // It has guests of another worker.
    return true;
  }
  worker.asked[weave.model] = weave.pages;
  commands_->push_back(SendWorker{
      .device = worker.device.id,
      .epoch = worker.epoch,
      .message = LendPages{.model = weave.model, .basis = weave.basis, .count = weave.pages}});
  return true;
}

/// Whether pages are on their way back to the host: what is loaded there may need them.
bool AgentCore::Impl::recalls_guests(const WorkerState& host) {
  return std::any_of(host.guests.begin(), host.guests.end(), [](const auto& entry) {
    return entry.second.recalled > 0;
  });
}

/// The host's worker has given them up.
void AgentCore::Impl::grant_guests(WorkerState& host,
                                   ModelId model,
                                   const std::vector<PageId>& pages) {
  GuestPair& pair = host.guests.at(model);
  if (live(pair.hot, pair.hot_epoch) == nullptr) {
    take_home(host, model, pages);
    return;
  }
  if (!host.device.own_memory) {
    lend_guests(host, model, pages);
    return;
  }
  pair.pending.insert(pages.begin(), pages.end());
  pair.unshared.insert(pages.begin(), pages.end());
  share_memory(host, model, pages);
}

void AgentCore::Impl::share_memory(const WorkerState& host,
                                   ModelId model,
                                   const std::vector<PageId>& pages) {
  commands_->push_back(ShareMemory{
      .host = host.device.id, .host_epoch = host.epoch, .model = model, .pages = pages});
}

/// From the host's worker. Of pages that have gone home meanwhile it is of no matter, and neither
/// is what a later life could not map: the hot worker has it.
void AgentCore::Impl::heard(WorkerState& worker, const GuestsShared& shared) {
  const auto found = worker.guests.find(shared.model);
  if (found == worker.guests.end()) {
    return;
  }
  GuestPair& pair = found->second;
  std::size_t awaited = 0;
  for (const PageId page : shared.pages) {
    awaited += pair.unshared.erase(page);
  }
  if (awaited == 0 || (!shared.failure && !pair.unshared.empty())) {
    return;
  }
  pair.unshared.clear();
  const std::vector<PageId> pages = listed(pair.pending);
  if (shared.failure) {
    take_home(worker, shared.model, pages, true);
  } else {
    pair.pending.clear();
    lend_guests(worker, shared.model, pages);
  }
}

/// The hot worker may use them.
void AgentCore::Impl::lend_guests(WorkerState& host,
                                  ModelId model,
                                  const std::vector<PageId>& pages) {
  const GuestPair& pair = host.guests.at(model);
  connect_guests(host, model);
  if (host.device.own_memory) {
    commands_->push_back(PassMemory{.host = host.device.id,
                                    .hot = pair.hot,
                                    .hot_epoch = pair.hot_epoch,
                                    .model = model,
                                    .pages = pages});
  }
  commands_->push_back(SendWorker{.device = pair.hot,
                                  .epoch = pair.hot_epoch,
                                  .message = LendGuests{.model = model, .pages = pages}});
  tell_guests(host, model, false);
}

/// Has the host's worker serve all that it lends to the model, over memory made for that. Of GPUs
/// that have some already it stays: the hot one's stream may be at a step (weave::StreamServer).
void AgentCore::Impl::connect_guests(WorkerState& host, ModelId model) {
  GuestPair& pair = host.guests.at(model);
  if (host.device.own_memory && pair.connected == host.epoch) {
    lease_guests(host, model, host.lent.at(model));
    return;
  }
  pair.connected = host.epoch;
  commands_->push_back(ConnectGuests{.host = host.device.id,
                                     .host_epoch = host.epoch,
                                     .hot = pair.hot,
                                     .hot_epoch = pair.hot_epoch,
                                     .model = model,
                                     .pages = listed(host.lent.at(model))});
}

void AgentCore::Impl::on(const Unweave& unweave) {
  WorkerState& host = workers_.at(unweave.host);
  const auto found = host.guests.find(unweave.model);
  if (found == host.guests.end()) {
    return;  // They have come back meanwhile.
  }
  GuestPair& pair = found->second;
  const std::int64_t count = std::min(unweave.pages, host.granted(unweave.model) - pair.recalled);
  if (count > 0) {
    pair.recalled += count;
    commands_->push_back(
        SendWorker{.device = pair.hot,
                   .epoch = pair.hot_epoch,
                   .message = RecallGuests{.model = unweave.model, .count = count}});
  }
}

/// From the hot worker: nothing of its own is on them any more.
void AgentCore::Impl::heard(WorkerState& worker, const GuestsReturned& returned) {
  for (auto& [id, host] : workers_) {
    const auto pair = host.guests.find(returned.model);
    const auto lent = host.lent.find(returned.model);
    const bool its_own =
        pair != host.guests.end() && lent != host.lent.end() &&
        pair->second.hot == worker.device.id &&
        std::all_of(returned.pages.begin(), returned.pages.end(), [&](auto page) {
          return lent->second.contains(page) && !pair->second.pending.contains(page);
        });
    if (its_own) {
      take_home(host, returned.model, returned.pages, returned.failure.has_value());
      return;
    }
  }
  doom(worker, {Code::kCorrupt, "returned pages that no device had lent it"});
}

/// Lent pages are the host's again.
void AgentCore::Impl::take_home(WorkerState& host,
                                ModelId model,
                                const std::vector<PageId>& pages,
                                bool refused) {
  const auto lent = host.lent.find(model);
  GuestPair& pair = host.guests.at(model);
  for (const PageId page : pages) {
    HEDDLE_CHECK(lent->second.erase(page) == 1);
    pair.unshared.erase(page);
    if (pair.pending.erase(page) == 0 && pair.recalled > 0) {
      --pair.recalled;
    }
  }
  if (host.life == Life::kUp || host.device.own_memory) {
    lease_guests(host, model, lent->second);
  }
  if (lent->second.empty()) {
    host.lent.erase(lent);
    pair.connected = {};
    if (live(pair.hot, pair.hot_epoch) != nullptr) {
      commands_->push_back(
          DisconnectGuests{.hot = pair.hot, .hot_epoch = pair.hot_epoch, .model = model});
    }
  }
  give_pages(host, pages);
  tell_guests(host, model, refused);
}

void AgentCore::Impl::lease_guests(const WorkerState& host,
                                   ModelId model,
                                   const std::set<PageId>& pages) {
  commands_->push_back(LeaseGuests{
      .host = host.device.id, .host_epoch = host.epoch, .model = model, .pages = listed(pages)});
}

/// Pages come into a worker's pool.
void AgentCore::Impl::give_pages(WorkerState& worker, const std::vector<PageId>& pages) {
  worker.pool.insert(pages.begin(), pages.end());
  if (worker.life == Life::kUp) {
    commands_->push_back(SendWorker{
        .device = worker.device.id, .epoch = worker.epoch, .message = GivePages{.pages = pages}});
  } else if (worker.life == Life::kStarting) {
    worker.arrived.insert(worker.arrived.end(), pages.begin(), pages.end());
  }
}

/// The host's worker has ended. Its pages are what they were, and hot workers run attention over
/// them by themselves until it is up again. What they do not have yet never leaves it.
void AgentCore::Impl::disconnect_host(WorkerState& host) {
  for (auto it = host.guests.begin(); it != host.guests.end();) {
    const auto& [model, pair] = *it++;  // take_home() may let go of it.
    if (!pair.pending.empty()) {
      take_home(host, model, listed(pair.pending), true);
    }
  }
  for (const auto& [model, pair] : host.guests) {
    if (live(pair.hot, pair.hot_epoch) != nullptr) {
      commands_->push_back(
          DisconnectGuests{.hot = pair.hot, .hot_epoch = pair.hot_epoch, .model = model});
    }
  }
}

/// A hot worker has ended, and nothing touches its guests any more.
void AgentCore::Impl::lose_hot(DeviceId hot, WorkerEpoch epoch) {
  for (auto& [id, host] : workers_) {
    for (auto it = host.guests.begin(); it != host.guests.end();) {
      const auto& [model, pair] = *it++;  // take_home() may let go of it.
      const auto lent = host.lent.find(model);
      if (pair.hot == hot && pair.hot_epoch == epoch && lent != host.lent.end()) {
        take_home(host, model, listed(lent->second));
      }
    }
  }
}

/// And forgets the pair when nothing is left of it.
void AgentCore::Impl::tell_guests(const WorkerState& host, ModelId model, bool refused) {
  tell(GuestState{
      .device = host.device.id, .model = model, .pages = host.granted(model), .refused = refused});
  if (!host.lent.contains(model) && !host.asked.contains(model)) {
    workers_.at(host.device.id).guests.erase(model);
  }
}

}  // namespace heddle::core
