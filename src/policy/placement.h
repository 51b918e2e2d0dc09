#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "policy/eviction.h"

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
};

struct PlacementOptions {
  Duration drain_after{};  ///< How long a waiting request bears with busy models.
  /// Time to load the wanted model: devices that lose less than a tenth of that are as good as
  /// those that lose nothing, and KV pressure decides between them.
  Duration load{};
};

enum class PlacementOutcome : std::uint8_t {
  kServe,  ///< Send requests to `device`.
  kLoad,   ///< Evict `victims`, which are idle, and load at once.
  kDrain,  ///< Send `victims` nothing more; when they are idle, evict them and load.
  kWait,   ///< Nothing now; ask again when something changes, or at `retry_at`.
  kNever,  ///< No device could hold the model even if it were empty of all but pinned models.
};

enum class PlacementReason : std::uint8_t {
  kServing,      ///< It is resident.
  kFreePages,    ///< Nobody has to go.
  kIdleVictims,  ///< Idle models make room.
  kBusyVictims,  ///< Busy models make room: the oldest request has waited long enough.
  kFairness,     ///< Busy models would make room, but it has not waited long enough yet.
  kResidence,    ///< Busy models would make room, but they have not been there long enough yet.
  kTransition,   ///< Loads, evictions or other plans are under way; or the device is down.
  kPinned,       ///< Pinned models leave too little.
  kTooLarge,     ///< It is larger than every device.
};

/// The name used in logs and metrics: "idle_victims".
[[nodiscard]] std::string_view reason_name(PlacementReason reason);

struct Placement {
  PlacementOutcome outcome = PlacementOutcome::kWait;
  PlacementReason reason = PlacementReason::kTransition;
  DeviceId device{};               ///< Meaningless for kWait and kNever.
  std::vector<ModelId> victims{};  ///< Least valuable first.
  std::optional<Instant> retry_at{};
  friend bool operator==(const Placement&, const Placement&) = default;
};

/// Demand-aware LRU. Chooses where a model goes that a request wants since `waiting_since`, and the
/// victims. Devices: one that serves it; else one with free pages; else one where idle models can
/// go; else one where busy ones can. Among equals: one where nobody waits for memory; then the
/// shortest queue of victims, the least KV pressure, the fewest pages evicted, the most pages free,
/// the lowest id. Where residents have a worth, idle ones that are worth next to nothing are as
/// good as free pages (WarmServe's evict-aware placement; Prism's activation where KV pressure is
/// least); what is missing of the wanted model there counts as lost. Where external
/// engines are among those that could go, the victims are the cheapest set instead
/// (preemption_cost). A resident that is `displaced` is always among them. Victims as
/// choose_victims has them (SwapServeLLM, section 3.4); busy ones only after options.drain_after
/// and their own min_residence, so that models that are hot by turns share a device: none starves,
/// none thrashes. Pure; independent of the order of devices and residents. O(D R log R).
[[nodiscard]] Placement choose_placement(std::span<const PlacementDevice> devices,
                                         Instant now,
                                         Instant waiting_since,
                                         const PlacementOptions& options);

/// The same where devices do not say their pressure: it is asked of those between which it decides.
[[nodiscard]] Placement choose_placement(
    std::span<const PlacementDevice> devices,
    Instant now,
    Instant waiting_since,
    const PlacementOptions& options,
    const std::function<double(const PlacementDevice&)>& pressure_of);

}  // namespace heddle::policy
