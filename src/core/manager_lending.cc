#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "core/manager_core_impl.h"

/// For requests that wait for memory: the pages of idle models, other devices of their own model,
/// and devices more for it.
namespace heddle::core {

using namespace std::chrono_literals;

/// Where it is left out what models are worth, they are idle after so many times their load time
/// (Prism's rule).
constexpr std::int64_t kLoadsIdle = 5;

/// Adds what those who wait for pages have waited since.
void ManagerCore::Impl::count_shortage(DeviceState& device) const {
  device.short_waited = device.short_sequences == 0
                            ? 0
                            : device.short_waited + static_cast<double>(device.short_sequences) *
                                                        to_seconds(now_ - device.short_until);
  device.short_until = now_;
}

/// How long requests will wait for others to end is not known, but how long they have: once that is
/// as much as what idle models are worth, those give their pages. So nobody waits for more than
/// twice what knowing it would have made of it (as one who rents skis until that has cost a pair).
void ManagerCore::Impl::lend_idle() {
  if (drain_deadline_) {
    return;
  }
  for (auto& [device_id, device] : devices_) {
    count_shortage(device);
    if (!device.up || device.plan || device.short_pages == 0) {
      continue;
    }
    struct Idle {
      ModelId model{};
      double worth = 0;
      std::int64_t pages = 0;
      Instant last_used{};
    };
    std::vector<Idle> idle;
    const std::int64_t workspace = workspace_of(device, device.short_model);
    for (const auto& [id, instance] : device.instances) {
      const ModelState& model = models_.at(whole(id));
      if (instance.stage == InstanceStage::kEvicting) {
        idle.clear();  // What that frees comes first.
        break;
      }
      const Instant last_used = std::max(model.last_used, instance.load_began);
      const Instant rests = last_used + kLoadsIdle * load_time(model, device);
      const bool resident = model.cut() ? instance.apart && instance.stage == InstanceStage::kMember
                                        : instance.stage == InstanceStage::kServing;
      const bool lends = resident && !model.foreign() && !busy(whole(id), instance) &&
                         !stays(model) &&
                         now_ >= instance.serving_since + model.config.min_residence;
      if (lends && (options_.planner.value || now_ >= rests)) {
        idle.push_back({.model = id,
                        .worth = resident_worth(device, id),
                        .pages = pages_of(device, id, workspace),
                        .last_used = last_used});
      } else if (lends) {
        wake_by(rests);
      }
    }
    std::sort(idle.begin(), idle.end(), [](const Idle& a, const Idle& b) {
      return std::tuple(a.worth / static_cast<double>(a.pages), a.last_used, a.model) <
             std::tuple(b.worth / static_cast<double>(b.pages), b.last_used, b.model);
    });
    std::int64_t lacking = device.short_pages;
    bool lent = false;
    for (const Idle& lender : idle) {
      if (lacking <= 0) {
        break;
      }
      if (lender.worth > device.short_waited) {
        wake_by(now_ +
                std::max<Duration>(1ms,
                                   from_seconds((lender.worth - device.short_waited) /
                                                static_cast<double>(device.short_sequences))));
        break;
      }
      device.short_waited -= lender.worth;
      lacking -= lender.pages;
      lent = true;
      evict(device,
            lender.model,
            EvictMode::kWhenIdle,
            EvictionReason::kOutgrown,
            device.short_model);
    }
    if (!lent && options_.planner.pressure) {
      relieve(device);
    }
  }
}

/// Those who wait for memory go where their model has some, as many as there is room for. Once a
/// period, so that what they take there is seen before more follow.
void ManagerCore::Impl::recall(DeviceState& device) {
  const auto found = models_.find(device.short_model);
  if (!options_.planner.pressure || !device.up || device.short_sequences == 0 ||
      now_ < device.recall_at || found == models_.end() || found->second.grouped() ||
      found->second.foreign()) {
    return;
  }
  const auto& [id, model] = *found;
  const std::vector<DeviceId> places = serving_places(id);
  if (places.empty() || places.front() == device.config.id) {
    return;
  }
  const DeviceState& there = devices_.at(places.front());
  const Instance& instance = there.instances.at(id);
  const std::int64_t each =
      std::max<std::int64_t>(1, (device.short_pages - 1) / device.short_sequences + 1);
  const std::int64_t workspace = workspace_of(there, id);
  const std::int64_t free = free_pages(there, workspace) - workspace;
  const std::int64_t most =
      std::min(free / each, model.config.batch - std::ssize(instance.in_flight));
  if (there.short_sequences == 0 && instance.complete && most > 0) {
    device.recall_at = now_ + options_.planner.period;
    act(TellWorker{.device = device.config.id,
                   .epoch = device.epoch,
                   .message = RecallRequests{.model = id, .most = most}});
  }
}

/// Where those who wait have waited for as much as it costs, and no device that their model has, or
/// is about to have, has room for them, it gets another.
void ManagerCore::Impl::relieve(DeviceState& device) {
  const auto found = models_.find(device.short_model);
  if (found == models_.end() || found->second.foreign() || found->second.grouped() ||
      found->second.removed) {
    return;
  }
  const bool coming = std::any_of(devices_.begin(), devices_.end(), [&](const auto& entry) {
    const auto there = entry.second.instances.find(found->first);
    return there != entry.second.instances.end() &&
           (!there->second.complete || entry.second.short_sequences == 0);
  });
  const std::optional<ReplicaPlace> place = coming ? std::nullopt : place_for_replica(found->first);
  if (!place) {
    return;
  }
  const double cost = to_seconds(place->load_takes) + place->lost;
  if (device.short_waited < cost) {
    wake_by(now_ + std::max<Duration>(1ms,
                                      from_seconds((cost - device.short_waited) /
                                                   static_cast<double>(device.short_sequences))));
    return;
  }
  if (load_replica(found->first,
                   *place,
                   LoadReason::kPressure,
                   std::to_string(device.short_sequences) + " of the requests at " +
                       device.config.name + " wait for memory")) {
    device.short_waited -= cost;
  }
}

}  // namespace heddle::core
