#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "policy/eviction.h"
#include "policy/plans.h"
#include "policy/reservations.h"

namespace heddle::policy {

/// What the choice may know of one device.
struct PlacementDevice {
  DeviceId id{};
  std::int64_t need_pages = 0;  ///< Of the wanted model, on this device.
  std::int64_t pages = 0;       ///< Of the device.
  std::int64_t free_pages = 0;  ///< That a load may take now.
  bool serving = false;         ///< The wanted model is resident and takes requests.
  bool available = false;       ///< It is up, and no plan for another model is under way on it.
  bool short_of_pages = false;  ///< Requests wait there for memory: only where nothing else is.
  double pressure = 0;          ///< KVPR of the device with the wanted model on it; 0: not known.
  /// Until the wanted model is whole there, where that differs: parts of it may be there already.
  Duration missing{};
  std::vector<ResidentView> residents{};
  std::optional<Reservation> reserved{};  ///< It is kept for another model.
};

struct PlacementOptions {
  Duration drain_after{};  ///< How long a waiting request bears with busy models.
  /// Time to load the wanted model: devices that lose less than a tenth of that are as good as
  /// those that lose nothing, and KV pressure decides between them.
  Duration load{};
  // What is needed to say when first tokens come.
  PlanKind kind = PlanKind::kActivate;
  Duration soonest{};                    ///< The load where nothing is missing.
  Duration first{};                      ///< Then until the first token.
  Duration ttft_left = Duration::max();  ///< As PlanOptions has it.
  /// Within so long after it was loaded the wanted model can have left again; nullopt: not known.
  std::optional<Duration> stays{};
};
[[nodiscard]] PlanOptions plan_options(const PlacementOptions& options);

/// What a device allows, as a plan: to serve; else to load where it has free pages; else where idle
/// models can go; else where busy ones can, once fairness and residence allow; else to wait. A
/// device that is kept for another model has to be passed (may_pass).
[[nodiscard]] Plan plan_on(const PlacementDevice& device,
                           Instant now,
                           Instant waiting_since,
                           const PlacementOptions& options);

/// The same of devices that the wanted model is to be on at once, one or more: what all of them
/// allow. Victims of any go from all; `where` is the first. To wait is until the last allows it.
[[nodiscard]] Plan plan_on_all(std::span<const PlacementDevice> devices,
                               Instant now,
                               Instant waiting_since,
                               const PlacementOptions& options);

struct Placement {
  PlacementOutcome outcome = PlacementOutcome::kWait;
  PlacementReason reason = PlacementReason::kTransition;
  DeviceId device{};               ///< Meaningless for kWait and kNever.
  std::vector<ModelId> victims{};  ///< Least valuable first.
  std::optional<Instant> retry_at{};
  friend bool operator==(const Placement&, const Placement&) = default;
};

/// What is carried out of a plan.
[[nodiscard]] Placement placement_of(const PlanChoice& choice);

/// Demand-aware LRU. Chooses where a model goes that a request wants since `waiting_since`, and the
/// victims: the best plan (PlanPicker) of those that devices allow. Where residents have a worth,
/// idle ones that are worth next to nothing are as good as free pages (WarmServe's evict-aware
/// placement; Prism's activation where KV pressure is least); what is missing of the wanted model
/// there counts as lost. Where external engines are among those that could go, the victims are the
/// cheapest set instead (preemption_cost). A resident that is `displaced` is always among them.
/// Victims as choose_victims has them (SwapServeLLM, section 3.4); busy ones only after
/// options.drain_after and their own min_residence, so that models that are hot by turns share a
/// device: none starves, none thrashes. Pure; independent of the order of devices and residents.
/// O(D R log R).
[[nodiscard]] PlanChoice choose_among(std::span<const PlacementDevice> devices,
                                      Instant now,
                                      Instant waiting_since,
                                      const PlacementOptions& options);

/// The same, without the plans that were not taken.
[[nodiscard]] Placement choose_placement(std::span<const PlacementDevice> devices,
                                         Instant now,
                                         Instant waiting_since,
                                         const PlacementOptions& options);

}  // namespace heddle::policy
