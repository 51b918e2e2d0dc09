#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/manager/state.h"

/// What can be said of a model without looking at devices.
namespace heddle::core::manager {

/// Of a model on a device, which for a sharded one is where its rank 0 is; nothing else has it.
[[nodiscard]] policy::ReplicaId replica_id(DeviceId device, ModelId model);
[[nodiscard]] DeviceId device_of(policy::ReplicaId replica);
[[nodiscard]] ModelId model_of(policy::ReplicaId replica);

/// The model that this is a shard of; itself if it is none, or rank 0.
[[nodiscard]] ModelId whole(const State& state, ModelId model);

/// The model whose requests it runs: of a cut, or one of its stages, the model that was cut.
[[nodiscard]] ModelId asked(const State& state, ModelId model);

/// Whether it is a stage of a cut, which other models run beside. Any other group has its devices
/// to itself.
[[nodiscard]] bool of_cut(const State& state, ModelId model);

/// What can run the model's requests: itself, then its cuts.
[[nodiscard]] std::vector<ModelId> forms(const ModelState& model);

/// Its shards but rank 0, or stages but the first; none where it is neither sharded nor cut.
[[nodiscard]] std::vector<ModelId> shards_of(const ModelState& model);

/// Where the shards are when this device leads, by rank; or the devices of an external engine that
/// is on several. Any other model is a block of one.
[[nodiscard]] std::vector<ShardPlace> block(const State& state, ModelId model, DeviceId leader);

/// Whether `other` cannot stay when `model` comes.
[[nodiscard]] bool displaces(const ModelState& model, ModelId other);

/// Whether it is a part of a sharded model whose group is there, or is about to be: of no cut.
[[nodiscard]] bool in_group(const State& state, ModelId model, const Instance& instance);

/// Whether a moment ago it had more requests than its instances bear: it has none to spare.
[[nodiscard]] bool was_short(const State& state, const ModelState& model);

/// Whether it never leaves for another model.
[[nodiscard]] bool stays(const State& state, const ModelState& model);

/// The most tokens that a request has which waits for the model; 0 when none does.
[[nodiscard]] std::int64_t longest_waiting(const State& state, const ModelState& model);

/// When the first token is due that waits for the model, or for what it is a part or a cut of;
/// nullopt: no request waits.
[[nodiscard]] std::optional<Instant> first_due(const State& state, ModelId model);

/// Of an external engine that is on several devices at once, those beside the one that leads.
[[nodiscard]] std::span<const DeviceId> further_devices(const ModelState& model, DeviceId leader);
/// Whether it is such an engine.
[[nodiscard]] bool on_several(const ModelState& model);

/// Pages that an external engine may hold of the device while it runs there.
[[nodiscard]] std::int64_t engine_pages(const ModelState& model, DeviceId device);
/// The same where it needs this.
[[nodiscard]] std::int64_t engine_pages(const ModelState& model,
                                        const policy::Footprint& footprint);

/// How long an external engine that is busy stays at least.
[[nodiscard]] Duration most_residence(const ModelState& model);

/// How long an external engine stays at least. One that is idle has answered all requests; if none
/// has come since the engine did, it may go at once, so that users who alternate between engines
/// wait for one switch and no longer. If one has come, the next may follow soon: the engine stays
/// until it was idle for half of what bringing it back takes.
[[nodiscard]] Duration residence(const ModelState& model, const Instance& instance);

/// Whether no request runs there, and none that went on elsewhere has its KV come from there.
[[nodiscard]] bool idle(const State& state, const Instance& instance);

/// "morse", "morse and sorter".
[[nodiscard]] std::string names(const State& state, const std::vector<ModelId>& models);

/// For people: two digits, or whole.
[[nodiscard]] std::string number(double value);

/// ", first token in 310 ms by estimate".
[[nodiscard]] std::string describe_first_token(Duration predicted);

/// "2 requests wait": why the model is loaded now.
[[nodiscard]] std::string who_waits(const ModelState& model);

/// Why the model cannot be had, in numbers: what it needs where it needs least, and what there is.
[[nodiscard]] std::string too_large(const State& state, const ModelState& model);

}  // namespace heddle::core::manager
