#pragma once

#include <cstdint>

#include "core/manager/state.h"

/// Who holds, or would hold, how many pages of a device.
namespace heddle::core::manager {

/// What the model holds of the device, or will when it is loaded. The models of a device share one
/// workspace, the largest that any of them needs; of its own workspace the model holds what it has
/// beyond one of `workspace` pages, that of the model for which this is asked. Together with that
/// these are never less than the largest of all, whichever models stay.
[[nodiscard]] std::int64_t pages_of(const State& state,
                                    const DeviceState& device,
                                    ModelId model,
                                    std::int64_t workspace = 0);

/// The same of an instance of the model; null: it is not there.
[[nodiscard]] std::int64_t pages_of(const DeviceState& device,
                                    const ModelState& model,
                                    const Instance* instance,
                                    std::int64_t workspace = 0);

/// The same of a shard whose group has stepped back.
[[nodiscard]] std::int64_t pages_if_staged(const State& state,
                                           const DeviceState& device,
                                           ModelId shard,
                                           std::int64_t workspace);

/// Pages that have to be free for the model to come to the device: of an external engine that
/// stands by there, what it lacks.
[[nodiscard]] std::int64_t pages_to_come(const State& state,
                                         const DeviceState& device,
                                         ModelId model);

/// The workspace that the model has on the device; 0 of an external engine, or of no model.
[[nodiscard]] std::int64_t workspace_of(const State& state,
                                        const DeviceState& device,
                                        ModelId model);

/// What a load may take that brings a workspace of so many pages. Evictions under way count as
/// done, as the worker keeps the order; not so those of external engines, which take long and may
/// not free what they should. A group leaves nothing, but what is beside its share of KV if it has
/// one; staged shards and the stages of a cut leave what they do not hold.
[[nodiscard]] std::int64_t free_pages(const State& state,
                                      const DeviceState& device,
                                      std::int64_t workspace = 0);

/// Tokens of the longest request that runs on the device if nothing else is there, of the model or
/// shard by itself; 0 where it cannot be.
[[nodiscard]] std::int64_t tokens_alone(const State& state, ModelId model, DeviceId device);

/// The same where it needs this, of a device that has so many pages.
[[nodiscard]] std::int64_t tokens_in(const ModelState& model,
                                     const policy::Footprint& footprint,
                                     std::int64_t pages);

/// The longest prompt and answer together [tokens] that the model can have on the device, alone
/// there, with the KV that every device of its group has room for; at most its context. 0: unknown
/// model, or the device cannot hold it.
[[nodiscard]] std::int64_t tokens_max(const State& state, ModelId model, DeviceId device);
/// The same on the device that suits it best.
[[nodiscard]] std::int64_t tokens_max(const State& state, ModelId model);
/// The same, reckoned anew.
[[nodiscard]] std::int64_t reckon_tokens_max(const State& state, ModelId model);

}  // namespace heddle::core::manager
