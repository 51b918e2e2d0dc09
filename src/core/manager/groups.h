#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/manager/state.h"

/// Sharded models (tensor parallelism), as they are on devices. The shards of a model are models
/// that are loaded and evicted together, on a block of devices. Other models may be beside them
/// where the group's KV has shares (ManagerModel::shares): also other groups, where one device
/// leads all of them (run_beside). The group serves once each shard is complete to the last byte: a
/// step that waited for weights on one device would hold up all of them.
///
/// While no request asks for the group, its shards may be staged: prewarmed like any model, sharing
/// their devices with others and evicted one by one. A group that has lost a shard is worth nothing
/// until that is there again. When a request asks for it, the group claims its block (Claims),
/// loads what is missing and runs. An idle group that is in another's way, or whose KV others want,
/// steps back to that.
namespace heddle::core::manager {

/// The instance that speaks for this one: of a further shard, that of rank 0, or null when that is
/// gone.
[[nodiscard]] const Instance* leading(const State& state, const DeviceState& device, ModelId model);

/// The shard, if it is here, stays and is staged; else null.
[[nodiscard]] const Instance* staged(const DeviceState& device, ModelId model);

/// A group is there: nothing comes to the device that no request waits for, but what is prewarmed.
[[nodiscard]] bool dedicated(const State& state, const DeviceState& device);

/// A group is there that has the device to itself.
[[nodiscard]] bool has_to_itself(const State& state, const DeviceState& device);
/// The same, and the group cannot be sent away at once.
[[nodiscard]] bool held(const State& state, const DeviceState& device);

/// A group with requests is there.
[[nodiscard]] bool runs_group(const State& state, const DeviceState& device);

/// Of a model here that has requests, and one that is to come: whether steps that read the weights
/// of both would miss the TPOT objective of either. By how long this device's steps take, or those
/// of the group's first device; false where none was measured.
[[nodiscard]] bool too_slow_beside(const State& state,
                                   const DeviceState& device,
                                   ModelId here,
                                   ModelId wanted);

/// Who leads the groups of the model that have this shard there, as is configured; of stages whose
/// blocks overlap, one of these. nullopt: none has it there.
[[nodiscard]] std::optional<DeviceId> leader_for(const State& state,
                                                 DeviceId device,
                                                 ModelId shard);

/// Whether groups that have these shards on the device may both be formed: their KV has shares, and
/// one device leads both. Ranks wait for each other within a step. Where one device begins the
/// steps of all groups of its block one after the other, no two of them wait in a circle.
[[nodiscard]] bool run_beside(const State& state,
                              const DeviceState& device,
                              ModelId shard,
                              ModelId other);

/// Whether the group that has this shard here could step back once it is idle: its KV has a share,
/// and nobody wants it gone. A pinned one may: its weights stay.
[[nodiscard]] bool may_step_back(const State& state, const DeviceState& device, ModelId shard);

/// Groups on the device whose KV is there for nobody, shards by name: they could step back now.
[[nodiscard]] std::vector<ModelId> idle_shares(const State& state, const DeviceState& device);

/// Whether a group on the device is told to step back, and has not yet.
[[nodiscard]] bool steps_back(const State& state, const DeviceState& device);

/// Whether a plan or a claim wants the model gone from here; of a group, from any of its devices.
[[nodiscard]] bool is_to_leave(const State& state, const DeviceState& device, ModelId model);

/// Whether the shard is in the group that is led from there, or may yet be. The blocks of a model
/// whose stages are on several hosts overlap: a device may have the same shard in several of them.
[[nodiscard]] bool of_group(const Instance& shard, DeviceId device, DeviceId leader);

/// Whether anything of the model is on any device; of rank 0, also the other shards.
[[nodiscard]] bool somewhere(const State& state, ModelId id);

/// What of a group is on its devices or on the way there.
struct Gathered {
  std::int64_t shards = 0;    ///< Of the model.
  std::int64_t there = 0;     ///< Of these, there or on the way.
  std::int64_t complete = 0;  ///< Of these, to the last byte.
  [[nodiscard]] bool whole() const { return there == shards; }
};
[[nodiscard]] Gathered gathered(const State& state, ModelId model, DeviceId leader);

/// A shard whose group has lost another: its pages are as good as free.
[[nodiscard]] bool left_over(const State& state, const DeviceState& device, ModelId model);

/// What is on a block of devices that may not be there when the group runs: everything, or, where
/// its KV has shares, external engines and groups that do not run beside it; kNobody of a cut,
/// whatever is there.
enum class Beside : std::uint8_t { kNobody, kLeaving, kStaying };
[[nodiscard]] Beside beside(const State& state, ModelId model, DeviceId leader);

/// How the first request finds the group that is led from this device.
[[nodiscard]] StartKind start_kind(const State& state, ModelId model, const DeviceState& device);

/// Tells the group that is led from there that its share of KV may grow now; or that it is idle,
/// and is to give up what it does not need.
[[nodiscard]] TellWorker fit_share(const State& state, ModelId model, DeviceId leader, bool idle);

/// CHECK-fails unless claims and groups are as they promise: a claim belongs to its model, a group
/// that runs has all its shards, and no other on its devices that may not run beside it.
void check_groups(const State& state);

}  // namespace heddle::core::manager
