#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/time.h"

namespace heddle::policy {

/// What a controller wants done, the most pressing first.
enum class ActionKind : std::uint8_t {
  kStart,        ///< For a request that waits, whatever the mechanism.
  kConsolidate,  ///< A pipeline becomes workers of their own.
  kScaleUp,      ///< One more instance.
  kScaleDown,    ///< Drain an instance.
  kMigrate,      ///< A model of the pool to another device.
  kPrewarm,
  kEvict,  ///< Idle weights, for no one in particular.
};

/// How often the planner looks ahead; what is held is held for so many times that.
inline constexpr Duration kPlanPeriod = std::chrono::milliseconds(500);

/// For how long an action keeps other controllers' hands off its models and devices: 60 periods
/// after a migration, else 10.
[[nodiscard]] Duration hold_after(ActionKind kind, Duration period = kPlanPeriod);

struct Action {
  ActionKind kind = ActionKind::kStart;
  ModelId model{};
  std::vector<DeviceId> devices{};  ///< All it takes from or puts on.
  std::vector<ModelId> victims{};   ///< That lose something by it.
  double worth = 0.0;               ///< Among actions of a kind, more goes first.
  std::size_t plan = 0;             ///< The caller's: which of its plans this carries out.
  friend bool operator==(const Action&, const Action&) = default;
};

enum class HeldReason : std::uint8_t {
  kModelTaken,   ///< Another action of this tick has one of its models.
  kDeviceTaken,  ///< Another action of this tick has one of its devices.
  kTooSoon,      ///< A model or device was acted on a moment ago.
};

struct HeldAction {
  Action action{};
  HeldReason reason = HeldReason::kTooSoon;
  friend bool operator==(const HeldAction&, const HeldAction&) = default;
};

/// What one tick changes.
struct Diff {
  std::vector<Action> actions{};      ///< To carry out, in this order.
  std::vector<HeldAction> held{};     ///< Not now. Proposed again by who still wants it.
  std::optional<Instant> retry_at{};  ///< When the first of those that came too soon may come.
  friend bool operator==(const Diff&, const Diff&) = default;
};

/// Until when models and devices are to be left alone. A value.
class NotBefore {
 public:
  /// When everything that the action touches is free; the past or now: it is.
  [[nodiscard]] Instant free_at(const Action& action) const;
  void hold(const Action& action, Instant until);
  /// Forgets what has passed. O(what it forgets, log n each).
  void expire(Instant now);
  [[nodiscard]] std::size_t size() const { return models_.size() + devices_.size(); }

 private:
  std::map<ModelId, Instant> models_{};
  std::map<DeviceId, Instant> devices_{};
  std::set<std::pair<Instant, ModelId>> models_by_end_{};
  std::set<std::pair<Instant, DeviceId>> devices_by_end_{};
};

/// Makes one consistent diff of what the controllers propose, so that no two act on a model or a
/// device in the same tick (both would count on the same free memory), nor shortly after each
/// other (prewarming a model while it migrates). Starts for waiting requests never come too soon;
/// they hold what they touch like the rest. Marks what it accepts in `not_before`.
/// The result does not depend on the order of `proposals`, save for equal ones.
/// O(P log P + touched log n): what nobody proposes about costs nothing.
[[nodiscard]] Diff make_diff(std::span<const Action> proposals,
                             NotBefore& not_before,
                             Instant now,
                             Duration period = kPlanPeriod);

}  // namespace heddle::policy
