#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/manager/state.h"
#include "policy/placement.h"

/// Where a whole model of ours goes, among all devices that may have it. Most of a large cluster
/// is told apart by what the index has of a device; a closer look is for the rest.
namespace heddle::core::manager {

/// What placing a model, that wants `need` tokens there, has to know of all its devices.
struct PlaceChoice {
  policy::Placement placement{};
  std::optional<policy::Plan> plan{};   ///< That `placement` carries out, where it takes a device.
  std::vector<policy::Plan> others{};   ///< Plans that were not taken, as PlanChoice has them.
  policy::PlacementOptions compared{};  ///< How.
  std::int64_t fits_elsewhere = 0;  ///< Tokens that fit on the roomiest device that has too little.
  std::optional<Instant> paused_until{};  ///< The first of those that may have it later.
};

/// Where the model could get one device more at once, and the time to load it on the slowest that
/// may have it. The outcome is kLoad, or there is none. External engines are no victims: they
/// take long to leave.
struct ReplicaChoice {
  policy::Placement placement{};
  Duration load_takes{};
};
[[nodiscard]] ReplicaChoice choose_replica(const State& state, ModelId model);

/// Finds places for models that are wanted. Of one that cannot be placed it remembers why not, by
/// device: next time it looks at devices that have changed since.
class PlaceSearch {
 public:
  explicit PlaceSearch(const State& state) : state_(state) {}

  /// The best plan of those that all devices allow on which `need` tokens fit, for requests that
  /// wait since then.
  [[nodiscard]] PlaceChoice choose(ModelId model, std::int64_t need, Instant since);
  /// Forgets models that are not to be placed any more.
  void prune();
  /// CHECK-fails where what is remembered is not what a look at everything gives.
  void check() const;

 private:
  /// How the model cannot be on a device now.
  struct Look {
    DeviceId device{};
    policy::PlacementOutcome outcome{};
    policy::PlacementReason reason{};
    std::optional<Instant> retry_at{};
    Instant paused_until{};
    Instant owed_until{};  ///< Pages that are another's come free then.
  };
  struct Waiting {
    std::uint64_t seen = 0;  ///< Of Index::changed, counted from the first there ever was.
    std::int64_t need = 0;
    Instant since{};
    Instant next{};             ///< Time changes nothing before.
    std::vector<Look> looks{};  ///< By device.
    PlaceChoice choice{};
  };

  /// False: something may have changed that is not remembered, or it can be placed.
  bool look_again(ModelId model, Waiting& waiting);
  [[nodiscard]] std::optional<Look> look(ModelId model,
                                         Instant since,
                                         const DeviceState& device) const;
  static void conclude(Waiting& waiting, Instant now);

  const State& state_;
  std::map<ModelId, Waiting> waiting_{};
};

}  // namespace heddle::core::manager
