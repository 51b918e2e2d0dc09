#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "device/device.h"
#include "ops/attention.h"
#include "ops/context.h"

/// Attention over the first positions of some sequences where their KV is: with a host that lends
/// its memory and its time (WEAVER).
namespace heddle::ops {

/// One sequence of a step: what its host has of it.
struct GuestSequence {
  std::int32_t border = 0;  ///< Positions [0, border) are with the host; of attention_border().
  /// By KV group, its blocks there: entry i holds positions [i T, (i + 1) T). Empty for groups that
  /// stay at home.
  std::vector<std::vector<std::int32_t>> blocks{};
};

/// One layer of a step: a row for each of its guest sequences, in their order.
struct GuestRows {
  std::int64_t layer = 0;
  std::int64_t rows = 0;
  const float* query = nullptr;  ///< [rows, heads, head_dim], rows `query_stride` apart.
  std::int64_t query_stride = 0;
  float* state = nullptr;  ///< AttentionParts::left: [rows, heads, head_dim + 2].
  std::int64_t state_stride = 0;
};

/// Where a GPU's stream and its host meet for a layer, in memory that both reach. The stream writes
/// the queries, raises `posted` to the ticket and waits until `served` is there. The state is the
/// host's answer if `served` is the ticket then. Who lets the stream go without one raises `served`
/// beyond the ticket, to a number that is none.
struct GuestMeeting {
  float* query = nullptr;        ///< [rows, heads, head_dim]
  const float* state = nullptr;  ///< [rows, heads, head_dim + 2]
  device::Flag* posted = nullptr;
  const device::Flag* served = nullptr;
  std::uint32_t ticket = 0;
};

/// Whoever runs attention over guests. Used by the thread of one stream; on GPUs by the thread that
/// enqueues.
class AttentionHost {
 public:
  virtual ~AttentionHost() = default;
  /// What the next layers are about, until it is called again.
  virtual void begin_step(std::span<const GuestSequence> sequences) = 0;
  /// On a GPU, in place of post() and await(): where its stream and the host meet for the layer;
  /// none: nobody answers. Valid until the stream has done what was enqueued of the layer.
  [[nodiscard]] virtual std::optional<GuestMeeting> meet(std::int64_t /*layer*/,
                                                         std::int64_t /*rows*/) {
    return std::nullopt;
  }
  /// Begins a layer; one at a time. Does not wait.
  virtual void post(const GuestRows& rows) = 0;
  /// Waits for what post() began, and fills in `state`. False: nobody answers, now and for the rest
  /// of the step.
  [[nodiscard]] virtual bool await(const GuestRows& rows) = 0;
};

struct GuestAttentionArgs {
  AttentionHost* host = nullptr;  ///< nullptr: computed here. Outlives the work.
  std::int64_t layer = 0;
  AttentionArgs attention{};  ///< Of the guest sequences, one token each, with parts.end and .left.
};

/// Has the host begin the part of attention that is its own.
void post_guest_attention(OpContext& context, const GuestAttentionArgs& args);
/// Waits for it. Where the host does not answer, the part is computed here, over the same pages; on
/// CPUs to the same bits.
void await_guest_attention(OpContext& context, const GuestAttentionArgs& args);

/// The same attention on the calling thread of a CPU, without a stream: what a host does.
void attention_here(const AttentionArgs& args);

}  // namespace heddle::ops
