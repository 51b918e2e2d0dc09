#include "policy/weave.h"

#include <map>
#include <optional>
#include <string>

#include "core/manager/further_plans.h"
#include "core/manager/guest_hosts.h"
#include "core/manager/index.h"
#include "core/manager/models.h"
#include "core/manager/passes/passes.h"

namespace heddle::core::manager {
namespace {

/// A loan that holds nothing for so long goes back.
constexpr Duration kIdle = std::chrono::seconds(10);
/// A loan that is too large by less than one in so many pages stays as it is.
constexpr std::int64_t kSlack = 8;

/// Gives the model on `hot` memory of another device, as much as its share of the work there.
void lend_to(const Parts& core, const DeviceState& hot, ModelId id) {
  const std::optional<GuestOffer> offer = guest_offer(core.state, hot, id);
  if (!offer) {
    return;
  }
  core.guests.lend(offer->host,
                   hot.config.id,
                   id,
                   offer->pages,
                   std::to_string(offer->pages) + " pages for KV of " + hot.config.name +
                       ", which uses " + number(100 * kv_room(hot).use()) +
                       " % of its own; a share of " + number(offer->share) + " of its KV" +
                       describe_beside(core.state, id, policy::PlanKind::kWeave));
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
