#include <algorithm>
#include <utility>
#include <vector>

#include "core/manager_core_impl.h"

/// The pages of idle models, for requests of others that wait for memory.
namespace heddle::core {

using namespace std::chrono_literals;

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
  if (drain_deadline_ || !options_.planner.value) {
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
    };
    std::vector<Idle> idle;
    for (const auto& [id, instance] : device.instances) {
      const ModelState& model = models_.at(id);
      if (instance.stage == InstanceStage::kEvicting) {
        idle.clear();  // What that frees comes first.
        break;
      }
      const bool lends = instance.stage == InstanceStage::kServing && !model.foreign() &&
                         !model.grouped() && !busy(id, instance) && !stays(model) &&
                         now_ >= instance.serving_since + model.config.min_residence;
      if (lends) {
        idle.push_back({.model = id, .worth = worth(device, id), .pages = pages_of(device, id)});
      }
    }
    std::sort(idle.begin(), idle.end(), [](const Idle& a, const Idle& b) {
      return std::pair(a.worth / static_cast<double>(a.pages), a.model) <
             std::pair(b.worth / static_cast<double>(b.pages), b.model);
    });
    std::int64_t lacking = device.short_pages;
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
      evict(device,
            lender.model,
            EvictMode::kWhenIdle,
            EvictionReason::kOutgrown,
            device.short_model);
    }
  }
}

}  // namespace heddle::core
