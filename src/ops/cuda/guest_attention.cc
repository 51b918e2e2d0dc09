#include "ops/guest_attention.h"

#include <optional>
#include <utility>

#include "ops/cuda/kernels.h"
#include "ops/cuda/kernels/guest_params.h"
#include "ops/cuda/launch.h"

namespace heddle::ops::cuda {
namespace {

/// What a stream keeps between posting a layer and waiting for it.
struct Posted {
  std::optional<GuestMeeting> meeting{};
};

device::LaunchShape block_for_each(std::int64_t sequences) {
  return {.grid = {static_cast<std::uint32_t>(sequences)}, .block = {256}};
}

}  // namespace

void post_guest_attention(device::Stream& stream, const GuestAttentionArgs& args) {
  device::CudaStream& cuda = cuda_stream(stream);
  const AttentionArgs& attention = args.attention;
  const std::int64_t sequences = attention.rows.sequences();
  std::optional<GuestMeeting>& meeting = cuda.attachment<Posted>().meeting;
  meeting = args.host != nullptr ? args.host->meet(args.layer, sequences) : std::nullopt;
  if (!meeting) {
    return;
  }
  cuda.launch(kernel("heddle_guest_post"),
              block_for_each(sequences),
              GuestPostParams{.begin = attention.rows.begin.as<std::int32_t>(),
                              .query = attention.query.as<float>(),
                              .query_stride = attention.query.stride[0],
                              .out = meeting->query,
                              .width = attention.query.shape[1] * attention.kv.head_dim});
  cuda.raise_flag(*meeting->posted, meeting->ticket);
}

void await_guest_attention(device::Stream& stream, const GuestAttentionArgs& args) {
  device::CudaStream& cuda = cuda_stream(stream);
  const auto meeting = std::exchange(cuda.attachment<Posted>().meeting, std::nullopt);
  if (!meeting) {
    attention(stream, args.attention);
    return;
  }
  const TensorRef& left = args.attention.parts.left;
  cuda.await_flag(*meeting->served, meeting->ticket);
  cuda.launch(kernel("heddle_guest_take"),
              block_for_each(args.attention.rows.sequences()),
              GuestTakeParams{.begin = args.attention.rows.begin.as<std::int32_t>(),
                              .served = reinterpret_cast<const std::uint32_t*>(meeting->served),
                              .state = meeting->state,
                              .out = left.as<float>(),
                              .out_stride = left.stride[0],
                              .heads = static_cast<std::int32_t>(left.shape[1]),
                              .head_dim = static_cast<std::int32_t>(args.attention.kv.head_dim),
                              .ticket = meeting->ticket});
  attention_of_missing(stream, args.attention);
}

}  // namespace heddle::ops::cuda
