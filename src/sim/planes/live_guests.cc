#include <algorithm>

#include "sim/planes/live.h"

/// Memory that GPUs lend to KV of models on others (WEAVER).
namespace heddle::sim {

/// GPUs of one server reach each other's memory.
void LivePlane::tell_peers(const Turn& turn) {
  core::GuestPeers peers;
  for (const Host& host : turn.world.hosts()) {
    for (std::size_t i = 0; i < host.gpus.size(); ++i) {
      for (std::size_t j = i + 1; j < host.gpus.size(); ++j) {
        peers.pairs.emplace_back(map_->device(host.gpus[i]), map_->device(host.gpus[j]));
      }
    }
  }
  hear(std::move(peers));
}

void LivePlane::perform(const Turn& turn, const core::Weave& weave) {
  const LiveDevice& host = device(weave.host);
  LiveDevice& hot = device(weave.hot);
  if (!host.lives(weave.basis.epoch)) {
    return;
  }
  const LiveDevice::Resident* resident =
      hot.lives(weave.hot_epoch) ? hot.resident(weave.model) : nullptr;
  const Replica* replica = resident != nullptr && !resident->going && resident->replica
                               ? turn.world.replica(*resident->replica)
                               : nullptr;
  const bool fresh = weave.basis.version == host.version();
  const bool free_for_it =
      replica != nullptr && replica->serves() &&
      replica->guest_host.value_or(host.gpu()) == host.gpu() &&
      turn.world.free_pages(host.gpu()) - lent_and_empty(turn.world, host.gpu()) >= weave.pages;
  if (!fresh || !free_for_it) {
    const std::int64_t pages = replica == nullptr ? 0 : replica->lent_pages;
    return hear(core::GuestState{
        .device = weave.host, .model = weave.model, .pages = pages, .refused = true});
  }
  loans_.try_emplace({weave.host, weave.model}, Loan{.replica = replica->id});
  turn.actions.weave(replica->id,
                     {.host = host.gpu(), .pages = replica->lent_pages + weave.pages},
                     Reason::kOffload);
}

/// The world takes back all or nothing.
void LivePlane::perform(const Turn& turn, const core::Unweave& unweave) {
  const auto found = loans_.find({unweave.host, unweave.model});
  if (found != loans_.end()) {
    turn.actions.weave(found->second.replica, {.host = map_->gpu(unweave.host)}, Reason::kMakeRoom);
  }
}

/// Says of loans what has changed, by an order or as the world took pages back.
void LivePlane::tell_guests(const Turn& turn) {
  for (auto loan = loans_.begin(); loan != loans_.end();) {
    const auto& [host, model] = loan->first;
    const Replica* hot = turn.world.replica(loan->second.replica);
    const bool lent = hot != nullptr && hot->guest_host == map_->gpu(host);
    const std::int64_t pages = lent ? hot->lent_pages : 0;
    if (pages != loan->second.told) {
      loan->second.told = pages;
      hear(core::GuestState{.device = host, .model = model, .pages = pages});
      touch(host, true);
    }
    loan = pages == 0 ? loans_.erase(loan) : std::next(loan);
  }
}

}  // namespace heddle::sim
