#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle::ops::cuda {

/// The sum of weights of a state that is not there.
constexpr float kMissing = -1.0F;

/// For heddle_guest_post, of a block for each guest sequence: copies its query to where the host
/// reads it.
struct GuestPostParams {
  const std::int32_t* begin;  ///< [sequences + 1]: rows of the batch.
  const float* query;         ///< [tokens, width]
  std::int64_t query_stride;  ///< Between tokens.
  float* out;                 ///< [sequences, width]
  std::int64_t width;         ///< heads head_dim
};

/// For heddle_guest_take, of a block for each guest sequence: copies its state, or marks it as
/// missing where the host has not answered.
struct GuestTakeParams {
  const std::int32_t* begin;    ///< [sequences + 1]: rows of the batch.
  const std::uint32_t* served;  ///< The ticket that was served last, in the host's memory.
  const float* state;           ///< [sequences, heads, head_dim + 2]
  float* out;                   ///< [tokens, heads, head_dim + 2]
  std::int64_t out_stride;      ///< Between tokens.
  std::int32_t heads;
  std::int32_t head_dim;
  std::uint32_t ticket;
};

}  // namespace heddle::ops::cuda
