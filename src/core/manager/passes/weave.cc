#include "policy/weave.h"

#include <algorithm>
#include <string>

#include "core/manager/groups.h"
#include "core/manager/index.h"
#include "core/manager/models.h"
#include "core/manager/pages.h"
#include "core/manager/passes/passes.h"

namespace heddle::core::manager {
namespace {

using ledger::LeaseKind;

/// A loan that holds nothing for so long goes back.
constexpr Duration kIdle = std::chrono::seconds(10);
/// A loan that is too large by less than one in so many pages stays as it is.
constexpr std::int64_t kSlack = 8;

/// Memory for KV on a device, as its worker last said [pages].
struct KvRoom {
  std::int64_t own = 0;   ///< KV of sequences.
  std::int64_t free = 0;  ///< Cached prefixes included.
  [[nodiscard]] std::int64_t all() const { return own + free; }
  [[nodiscard]] double use() const {
    return static_cast<double>(own) / static_cast<double>(std::max<std::int64_t>(all(), 1));
  }
};

KvRoom kv_room(const DeviceState& device) {
  return {.own = device.usage.of(LeaseKind::kKvOwn).held,
          .free = device.usage.free + device.usage.of(LeaseKind::kKvCached).held};
}

/// Nothing else happens to the device's memory now.
bool calm(const State& state, const DeviceState& device) {
  return device.up && !device.leaving && !device.plan && !device.alone && !device.claimed &&
         std::all_of(device.instances.begin(), device.instances.end(), [&](const auto& entry) {
           const ModelState& model = state.models.at(entry.first);
           return entry.second.template is<Serving>() && entry.second.complete &&
                  !model.external() && !model.grouped();
         });
}

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

/// With so much of all its KV away, a model has this much of it on lent pages.
std::int64_t quota_of(const DeviceState& hot, double share) {
  return static_cast<std::int64_t>(share / (1 - share) * static_cast<double>(kv_room(hot).all()));
}

/// Gives the model on `hot` memory of another device, as much as its share of the work there.
void lend_to(const Parts& core, const DeviceState& hot, ModelId id) {
  const State& state = core.state;
  const DeviceState* host = host_for(state, hot, id);
  if (host == nullptr || !calm(state, *host) || host->shortage.sequences > 0) {
    return;
  }
  const auto loan = host->guests.find(id);
  const std::int64_t lent = loan == host->guests.end() ? 0 : loan->second.pages;
  if (loan != host->guests.end() &&
      (loan->second.asked > 0 || loan->second.recalled > 0 || state.now < loan->second.more_at)) {
    return;
  }
  const double share = std::min(policy::choose_share(pair_of(state, hot, *host, id)).share,
                                state.options.planner.weave_share);
  const std::int64_t more = std::min(quota_of(hot, share) - lent, spare(*host));
  if (more <= 0) {
    return;
  }
  core.guests.lend(host->config.id,
                   hot.config.id,
                   id,
                   more,
                   std::to_string(more) + " pages for KV of " + hot.config.name + ", which uses " +
                       number(100 * kv_room(hot).use()) + " % of its own; a share of " +
                       number(share) + " of its KV");
}

/// What the host itself wants goes back, and what nobody uses.
void recall_from(const Parts& core, const DeviceState& host) {
  const DeviceId id = host.config.id;
  if (host.shortage.pages > 0) {
    core.guests.recall_any(
        id,
        host.shortage.pages,
        std::to_string(host.shortage.sequences) + " requests of the device itself wait for memory",
        host.shortage.model);
  }
  for (const auto& [model, loan] : std::map(host.guests)) {
    if (host.leaving) {
      core.guests.recall(id, model, loan.pages, "its host is to go");
      continue;
    }
    const DeviceState& hot = core.state.devices.at(loan.hot);
    const auto instance = hot.instances.find(model);
    if (instance != hot.instances.end() && instance->second.guest_pages > 0) {
      core.guests.used(id, model);
      const auto timely = static_cast<std::int64_t>(
          policy::most_timely(pair_of(core.state, hot, host, model)) *
          static_cast<double>(instance->second.kv_pages + instance->second.guest_pages));
      const std::int64_t kept = loan.pages - loan.recalled;
      if (kept > timely + kept / kSlack) {
        core.guests.recall(id,
                           model,
                           kept - timely,
                           "guests take so much of the device's time that its own requests would "
                           "miss their objective");
      }
    } else if (core.state.now >= loan.used_at + kIdle) {
      core.guests.recall(id, model, loan.pages, "it has held nothing for a while");
    } else {
      core.out.wake_by(loan.used_at + kIdle);
    }
  }
}

}  // namespace

void weave(const Parts& core) {
  const State& state = core.state;
  each(state.index.lending, [&](DeviceId id) { recall_from(core, state.devices.at(id)); });
  if (!state.options.planner.weave || state.drain_deadline) {
    return;
  }
  for (const auto& [id, device] : state.devices) {
    if (!calm(state, device) || !device.guests.empty()) {
      continue;
    }
    for (const auto& [model, instance] : device.instances) {
      const auto place =
          instance.in_flight.empty() ? std::nullopt : place_for_replica(state, model);
      const bool has_room = place && place->lost <= 0 && state.options.planner.pressure;
      if (!instance.in_flight.empty() && !has_room) {
        lend_to(core, device, model);
      }
    }
  }
}

}  // namespace heddle::core::manager
