#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/ids.h"
#include "base/time.h"

namespace heddle::policy {

/// How a model can come to answer a request that cannot start at once.
enum class PlanKind : std::uint8_t {
  kQueue,   ///< The request waits at an instance that runs.
  kHit,     ///< An instance is loaded, and nothing runs in it (WarmServe).
  kAttach,  ///< An instance loads, and the request starts on the layers that are there (WarmServe).
  kActivate,  ///< The whole model is loaded on one device (Prism).
  kGroup,     ///< Its shards are loaded on a block of devices, which they have to themselves.
  kStages,    ///< Its stages are loaded on several devices, each by itself (HydraServe).
  kWeave,     ///< An instance gets memory of a neighbour for its KV (WEAVER).
  kSwapIn,    ///< An external engine starts, or comes back (SwapServeLLM).
};
/// "activate".
[[nodiscard]] std::string_view name(PlanKind kind);

/// When a plan can begin. Declared in order of preference.
enum class PlacementOutcome : std::uint8_t {
  kServe,  ///< Send requests to the device.
  kLoad,   ///< Evict the victims, which are idle, and load at once.
  kDrain,  ///< Send the victims nothing more; when they are idle, evict them and load.
  kWait,   ///< Nothing now; ask again when something changes, or at `not_before`.
  kNever,  ///< The model cannot be there even if the device were empty of all but pinned models.
};

enum class PlacementReason : std::uint8_t {
  kServing,      ///< It is resident.
  kFreePages,    ///< Nobody has to go.
  kIdleVictims,  ///< Idle models make room.
  kBusyVictims,  ///< Busy models make room: the oldest request has waited long enough.
  kFairness,     ///< Busy models would make room, but it has not waited long enough yet.
  kResidence,    ///< Busy models would make room, but they have not been there long enough yet.
  kReserved,     ///< The device is kept for a model that has waited for longer.
  kTransition,   ///< Loads, evictions or other plans are under way; or the device is down.
  kPinned,       ///< Pinned models leave too little.
  kTooLarge,     ///< It is larger than every device.
};

/// The name used in logs and metrics: "idle_victims".
[[nodiscard]] std::string_view reason_name(PlacementReason reason);

/// One way to have a request answered, priced. The times follow each other.
struct Plan {
  PlanKind kind = PlanKind::kActivate;
  PlacementOutcome outcome = PlacementOutcome::kWait;
  PlacementReason reason = PlacementReason::kTransition;
  DeviceId where{};                     ///< Of several devices, the one that leads.
  std::vector<ModelId> victims{};       ///< Least valuable first.
  std::optional<Instant> not_before{};  ///< Of kWait: when it may become possible by itself.

  Duration leave{};  ///< Until who is in the way has left. An engine's counts in `lost`, too.
  Duration load{};   ///< From then until the weights are there.
  Duration first{};  ///< From then until the first token.
  std::optional<Duration> tpot{};  ///< Then from one token to the next; nullopt: not known.
  /// That further devices and links are busy with it [s], beyond one load of the whole model.
  double cost = 0;
  double lost = 0;  ///< Worth of who goes, and of who cannot run meanwhile [s] (policy/value.h).

  /// Of kNever: what keeps it from being a candidate, in words, where `reason` does not say so.
  std::string_view no_candidate{};

  // What tells plans apart that cost the same.
  bool short_of_pages = false;  ///< Requests wait there for memory.
  std::int64_t victims_queue = 0;
  std::int64_t victims_pages = 0;
  std::int64_t free_pages = 0;
  double pressure = 0;  ///< KVPR of the device with the model on it.

  [[nodiscard]] Duration ttft() const { return leave + load + first; }
  /// It can be carried out now.
  [[nodiscard]] bool takes() const { return outcome <= PlacementOutcome::kDrain; }
  friend bool operator==(const Plan&, const Plan&) = default;
};

struct PlanOptions {
  Duration ttft_left = Duration::max();  ///< Of the objective of the request that waits longest.
  std::optional<Duration> tpot{};        ///< The objective.
  /// Load and first token of the model where they take least, whether it can be there or not.
  Duration soonest{};
  /// Time to load the model. Plans whose prices are in the same tenth of it count as equal; 0: what
  /// is lost is not weighed.
  Duration load{};
};

/// Whether the first token, and those that follow, come when they are due.
[[nodiscard]] bool in_time(const Plan& plan, const PlanOptions& options);

/// What the plan costs [s]: how much later than the soonest its weights and first token are there,
/// what is lost, and, while it is in time, what it keeps busy.
[[nodiscard]] double price(const Plan& plan, const PlanOptions& options);

/// Why `plan` was not taken, where `best` was: "would be late". For people.
[[nodiscard]] std::string_view why_not(const Plan& plan,
                                       const Plan& best,
                                       const PlanOptions& options);

struct PlanChoice {
  std::optional<Plan> best{};  ///< nullopt: there was no plan. It may be one that waits.
  /// The best of each other kind and reason, best first; at most kPlansTold.
  std::vector<Plan> others{};
  std::optional<Instant> retry_at{};  ///< The earliest `not_before`.
  friend bool operator==(const PlanChoice&, const PlanChoice&) = default;
};
inline constexpr std::size_t kPlansTold = 3;

/// The one decision for a request that cannot start at once (docs/policies.md, "Placing"): takes
/// in plans one by one, in any order, and says which is best. Plans that can begin now come before
/// those for which busy models would have to go, and these before those that wait. Then: where
/// nobody waits for memory; in time before late; least price(), by tenths of a load, or where busy
/// models go, the soonest; free pages before idle victims where nothing is weighed; the shortest
/// queue of victims; the least KV pressure; the fewest pages evicted; the most pages free; the kind
/// as declared; the lowest id.
class PlanPicker {
 public:
  /// Asked of plans between which KV pressure decides; null: they say it themselves.
  using PressureOf = std::function<double(const Plan&)>;
  explicit PlanPicker(const PlanOptions& options, PressureOf pressure_of = {});

  void add(Plan plan);
  /// Ends the picking.
  [[nodiscard]] PlanChoice choose();

 private:
  /// What is told before KV pressure is.
  using Rank = std::tuple<int, bool, bool, double, PlacementReason, std::int64_t>;
  [[nodiscard]] Rank rank(const Plan& plan) const;
  [[nodiscard]] double told_pressure(const Plan& plan) const;
  [[nodiscard]] bool before(const Plan& one, const Plan& other) const;
  void pass_over(Plan plan);

  PlanOptions options_;
  PressureOf pressure_of_;
  std::optional<Plan> best_{};
  Rank best_rank_{};
  bool best_told_ = false;  ///< Its pressure.
  std::vector<Plan> others_{};
  std::optional<Instant> retry_at_{};
};

/// The same of a list. Pure; O(P).
[[nodiscard]] PlanChoice choose_plan(std::span<const Plan> plans, const PlanOptions& options);

}  // namespace heddle::policy
