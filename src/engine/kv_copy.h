#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "device/device.h"
#include "engine/model_kv.h"

/// KV of single layers on its way between models whose blocks differ: from one's blocks to bytes in
/// the order of positions, and from those to another's blocks.
namespace heddle::engine {

/// Positions [begin, end) of a sequence.
struct KvPositions {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// Appends KV of a layer to `bytes`, as [k, v][kv_head][position][head_dim], and where heads have
/// scales with [kv_head][position] of those behind keys, and behind values: of those positions,
/// which are computed, that have not slid away or to another device. From which one on. An error is
/// what `stream`, which copies and is waited for, has to report.
Result<std::int64_t> copy_out(device::Device& device,
                              device::Stream& stream,
                              const ModelKv& kv,
                              const SequenceKv& sequence,
                              std::int64_t layer,
                              KvPositions positions,
                              std::string& bytes);

/// Puts such bytes, which are as many as the positions need, in their places, in blocks that nobody
/// else uses. An error as of copy_out().
Result<void> copy_in(device::Device& device,
                     device::Stream& stream,
                     const ModelKv& kv,
                     const SequenceKv& sequence,
                     std::int64_t layer,
                     KvPositions positions,
                     std::string_view bytes);

/// Bytes of the states of a sequence, of which all key heads of all layers are one behind the other
/// on the way; 0 where no layer keeps any.
[[nodiscard]] std::int64_t state_size(const KvPlan& plan);

/// Bytes [begin, end) of the states in `blocks`, one for each group of states, appended. An error
/// as of copy_out().
Result<void> copy_states_out(device::Device& device,
                             device::Stream& stream,
                             const ModelKv& kv,
                             std::span<const memory::KvBlockRef> blocks,
                             std::int64_t begin,
                             std::int64_t end,
                             std::string& bytes);

/// Puts all of them in their places. An error likewise.
Result<void> copy_states_in(device::Device& device,
                            device::Stream& stream,
                            const ModelKv& kv,
                            std::span<const memory::KvBlockRef> blocks,
                            std::string_view bytes);

}  // namespace heddle::engine
