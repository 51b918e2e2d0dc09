#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/ids.h"
#include "base/metrics.h"
#include "base/time.h"
#include "core/manager/events.h"

namespace heddle::manager {

/// Where the time of a switch to a model goes.
struct SwitchPhases {
  std::optional<Duration> decide{};  ///< A request waits, until the load is ordered: for others to
                                     ///< become idle, or their time. None: nobody waited.
  Duration image{};  ///< Until the worker is told: for the image, and for pages to exchange it for.
  Duration map{};    ///< Until it serves: for pages of others to become free, and mapping.
};

/// Times the loads that are under way; for metrics, nothing is decided by it. What never serves is
/// forgotten when the same model is ordered there again.
class SwitchTimes {
 public:
  /// A load was ordered. `wanted_since`: the arrival of the oldest request that waits for it.
  void ordered(DeviceId device, ModelId model, Instant now, std::optional<Instant> wanted_since);
  /// The worker was told.
  void told(DeviceId device, ModelId model, Instant now);
  /// It serves: the load's phases, if it was ordered and told.
  [[nodiscard]] std::optional<SwitchPhases> serves(DeviceId device, ModelId model, Instant now);

 private:
  struct Load {
    std::optional<Instant> wanted{};
    Instant ordered{};
    std::optional<Instant> told{};
  };
  std::map<std::pair<DeviceId, ModelId>, Load> loads_{};
};

/// Counts how far a predicted first token was off under heddle_plan_first_token_ratio.
void publish(const core::PlanMeasured& measured, Metrics& metrics);

/// Counts a switch to the model under heddle_switch_phase_seconds.
void publish(const SwitchPhases& phases, const std::string& model, Metrics& metrics);

}  // namespace heddle::manager
