#pragma once

#include <optional>
#include <vector>

#include "core/manager/state.h"

/// Devices, and blocks of them, as policies see them.
namespace heddle::core::manager {

/// The device as a place for `wanted`: what that needs, what is free, which models are in its way.
[[nodiscard]] policy::PlacementDevice view(const State& state,
                                           const DeviceState& device,
                                           ModelId wanted);

/// The same without what its models are worth and its pressure, which cost more to say.
[[nodiscard]] policy::PlacementDevice outline(const State& state,
                                              const DeviceState& device,
                                              ModelId wanted);

/// Says of an outline what its models are worth.
void weigh(const State& state, const DeviceState& device, policy::PlacementDevice& view);

/// A block of devices as if it were one: whatever is there has to go, but the model's own shards.
[[nodiscard]] policy::PlacementDevice block_view(const State& state,
                                                 ModelId model,
                                                 DeviceId leader);

/// Pages that the shard needs here to serve the requests that wait for its model, as far as pinned
/// models leave as many.
[[nodiscard]] std::int64_t pages_for_shard(const State& state,
                                           const DeviceState& device,
                                           ModelId shard);

/// Pages that a pinned model keeps on a device whatever comes: of a group that may step back, those
/// of its weights.
[[nodiscard]] std::int64_t pages_that_stay(const State& state,
                                           const DeviceState& device,
                                           ModelId id,
                                           std::int64_t workspace);

/// What has to make room on a device for a shard to run there.
struct InTheWay {
  std::vector<ModelId> goes{};
  std::vector<ModelId> steps_back{};  ///< Shards of groups that end, but stay there, staged.
  [[nodiscard]] bool has(ModelId model) const {
    return std::ranges::count(goes, model) > 0 || std::ranges::count(steps_back, model) > 0;
  }
};

/// What goes from the device for this shard to run there: groups that do not run beside it, what it
/// would be too slow beside, and of the rest what is worth least, as far as memory is needed. Where
/// idle groups have as much KV as is lacking, they step back, and nothing goes. A group that would
/// go steps back instead where its shard has room as a staged one. What drains counts as going. No
/// external engines, which all go. nullopt: what stays leaves too little, or the group is to have
/// the device to itself.
[[nodiscard]] std::optional<InTheWay> in_the_way(const State& state,
                                                 const DeviceState& device,
                                                 ModelId shard);

/// Where the model could go, one entry a device, or a block of a sharded model, on which `need`
/// tokens fit. Of whole models of ours PlaceSearch knows more cheaply.
struct Places {
  /// Those of an engine on several devices follow the one that leads.
  std::vector<policy::PlacementDevice> views{};
  std::int64_t fits_elsewhere = 0;  ///< Tokens that fit on the roomiest of those left out.
  Duration load_takes{};  ///< The longest time to load it on one of them; where values count.
  Duration soonest{};     ///< To load it where nothing is missing; 0 of a sharded model.
};
[[nodiscard]] Places places_for(const State& state, ModelId model, std::int64_t need);

/// How places for the model are compared: `load` as PlacementOptions has it, `soonest` what it
/// takes to load where nothing is missing.
[[nodiscard]] policy::PlacementOptions placing(const State& state,
                                               ModelId model,
                                               Duration load,
                                               Duration soonest);

/// Within so long after it was loaded the model can have left again for another, by estimate: busy
/// all the time, with a request that began last. nullopt: not known, or it is sharded.
[[nodiscard]] std::optional<Duration> stay_time(const ModelState& model);

/// Where an external engine stands by, which comes back nowhere else.
[[nodiscard]] std::optional<DeviceId> standing_by(const State& state, ModelId model);

/// Whether the model may not run on the device now because another does and they do not share.
[[nodiscard]] bool blocked(const State& state, const DeviceState& device, ModelId model);

/// Whether the model serves on some device with the last of its weights.
[[nodiscard]] bool serves_complete(const State& state, ModelId model);

/// Where the model serves, the best place for its next request first: those that are not spared and
/// where no request waits for memory, while they have room, then those with the fewest requests of
/// it. For a request that asks for `adapter`, policy::rank_of() orders those of either kind.
[[nodiscard]] std::vector<DeviceId> serving_places(const State& state,
                                                   ModelId model,
                                                   const std::string& adapter = {});

}  // namespace heddle::core::manager
