#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/manager/cold_starts.h"
#include "core/manager/place_search.h"
#include "core/manager/state.h"
#include "policy/placement.h"

namespace heddle::core::manager {

/// What is to be done for a model that is wanted and nowhere, in no form on its way.
struct StartChoice {
  policy::PlanChoice plans{};
  policy::PlacementOptions compared{};  ///< How.
  /// What to carry out of the best plan: stages, else the placement on a device, or on a block.
  std::optional<CutStart> stages{};
  policy::Placement placement{};
  std::int64_t fits_elsewhere = 0;               ///< As PlaceChoice has it.
  std::optional<Instant> paused_until{};         ///< The first device that may have it later.
  std::vector<policy::PlacementDevice> views{};  ///< Of an external engine, or a sharded model.
};

/// The one list of plans for the requests, or operators, that wait for the model since then, and
/// the best of them (policy/plans.h): activation on a device, a block of devices of a sharded
/// model, the start or the return of an external engine, stages on several hosts; its instances
/// that leave.
[[nodiscard]] StartChoice choose_start(const State& state,
                                       PlaceSearch& search,
                                       ModelId model,
                                       Instant since);

/// Whether load_time() is more than a guess: loads like this one were measured, or the files have
/// yet to be fetched. Else nothing is said of a first token.
[[nodiscard]] bool load_known(const ModelState& model, const DeviceState& device);

/// For people, the plans that were not taken: "; instead of free_pages on d1 (520 ms: loses more),
/// stages (900 ms: comes later)". Empty where there are none, or nobody waits for a first token.
[[nodiscard]] std::string describe_others(const State& state,
                                          ModelId model,
                                          const StartChoice& choice);

}  // namespace heddle::core::manager
