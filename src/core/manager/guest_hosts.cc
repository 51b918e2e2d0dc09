#include "core/manager/guest_hosts.h"

#include <algorithm>

#include "core/manager/guest_loans.h"

namespace heddle::core::manager {
namespace {

using ledger::LeaseKind;

/// Whether the two can reach each other's memory: parts of the host can, and some pairs of GPUs.
bool reach(const State& state, const DeviceState& one, const DeviceState& other) {
  return (one.config.in_host_memory && other.config.in_host_memory &&
          host_of(one.config.id) == host_of(other.config.id)) ||
         state.guest_peers.contains({one.config.id, other.config.id});
}

/// What a host could lend more.
std::int64_t spare(const DeviceState& host) {
  const KvRoom room = kv_room(host);
  std::int64_t asked = 0;
  for (const auto& [model, loan] : host.guests) {
    asked += loan.asked;
  }
  return std::max<std::int64_t>(
      0, room.free - asked - (room.all() + lent_pages(host) - asked) / policy::kHostKeeps);
}

/// The device that takes guests of the model on `hot`: the one that has some already, else the one
/// that has most to spare.
const DeviceState* host_for(const State& state, const DeviceState& hot, ModelId model) {
  const DeviceState* best = nullptr;
  for (const auto& [id, device] : state.devices) {
    const auto loan = device.guests.find(model);
    if (loan != device.guests.end() && loan->second.hot == hot.config.id) {
      return &device;
    }
    const bool can = &device != &hot && reach(state, hot, device) && calm(state, device) &&
                     device.config.page_bytes == hot.config.page_bytes &&
                     !device.instances.contains(model) && !device.guests.contains(model) &&
                     state.now >= device.lends_at && device.shortage.sequences == 0 &&
                     !has_guests_elsewhere(state, id);
    if (can && spare(device) > 0 && (best == nullptr || spare(device) > spare(*best))) {
      best = &device;
    }
  }
  return best;
}

/// Of the host's time, what the objectives of all its models leave to guests.
double spare_time(const State& state, const DeviceState& host) {
  double least = 1.0;
  for (const auto& [id, instance] : host.instances) {
    least = std::min(least, policy::spare_time(host.step, state.models.at(id).objectives().tpot));
  }
  return least;
}

/// With so much of all its KV away, a model has this much of it on lent pages.
std::int64_t quota_of(const DeviceState& hot, double share) {
  return static_cast<std::int64_t>(share / (1 - share) * static_cast<double>(kv_room(hot).all()));
}

}  // namespace

KvRoom kv_room(const DeviceState& device) {
  return {.own = device.usage.of(LeaseKind::kKvOwn).held,
          .free = device.usage.free + device.usage.of(LeaseKind::kKvCached).held};
}

bool calm(const State& state, const DeviceState& device) {
  return device.up && !device.leaving && !device.plan && !device.alone && !device.claimed &&
         std::all_of(device.instances.begin(), device.instances.end(), [&](const auto& entry) {
           const ModelState& model = state.models.at(entry.first);
           return entry.second.template is<Serving>() && entry.second.complete &&
                  !model.external() && !model.grouped();
         });
}

policy::WeavePair pair_of(const State& state,
                          const DeviceState& hot,
                          const DeviceState& host,
                          ModelId model) {
  const Instance& here = hot.instances.at(model);
  const KvRoom own = kv_room(hot);
  const KvRoom there = kv_room(host);
  const auto bytes = static_cast<std::int64_t>(hot.config.page_bytes);
  return {.attention = here.attention,
          .margin = here.guest_loss,
          .hot_kv_bytes = own.all() * bytes,
          .cold_free_kv_bytes = (spare(host) + lent_pages(host)) * bytes,
          .hot_kv_use = own.use(),
          .hot_queues = hot.shortage.sequences > 0,
          .hot_reading = here.reading,
          .cold_kv_use = there.use(),
          .peer_access = true,
          .hot_step = hot.step,
          .cold_spare = spare_time(state, host)};
}

std::optional<GuestOffer> guest_offer(const State& state, const DeviceState& hot, ModelId id) {
  const DeviceState* host = host_for(state, hot, id);
  if (host == nullptr || !calm(state, *host) || host->shortage.sequences > 0) {
    return std::nullopt;
  }
  const auto loan = host->guests.find(id);
  const std::int64_t lent = loan == host->guests.end() ? 0 : loan->second.pages;
  if (loan != host->guests.end() &&
      (loan->second.asked > 0 || loan->second.recalled > 0 || state.now < loan->second.more_at)) {
    return std::nullopt;
  }
  const double share = std::min(policy::choose_share(pair_of(state, hot, *host, id)).share,
                                state.options.planner.weave_share);
  const std::int64_t more = std::min(quota_of(hot, share) - lent, spare(*host));
  return more > 0
             ? std::optional<GuestOffer>({.host = host->config.id, .pages = more, .share = share})
             : std::nullopt;
}

}  // namespace heddle::core::manager
