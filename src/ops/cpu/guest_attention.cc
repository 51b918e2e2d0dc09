#include "ops/guest_attention.h"

#include "ops/cpu/kernels.h"

namespace heddle::ops::cpu {
namespace {

/// The rows of the batch that are guests' stand together.
GuestRows rows_of(const GuestAttentionArgs& args) {
  const AttentionArgs& attention = args.attention;
  const std::int64_t first = attention.rows.begin.as<std::int32_t>()[0];
  const ConstTensorRef& query = attention.query;
  const TensorRef& left = attention.parts.left;
  return {.layer = args.layer,
          .rows = attention.rows.sequences(),
          .query = query.as<float>() + first * query.stride[0],
          .query_stride = query.stride[0],
          .state = left.as<float>() + first * left.stride[0],
          .state_stride = left.stride[0]};
}

}  // namespace

void post_guest_attention(device::Stream& stream, const GuestAttentionArgs& args) {
  cpu_stream(stream).enqueue([args](device::ThreadPool&) {
    if (args.host != nullptr) {
      args.host->post(rows_of(args));
    }
  });
}

void await_guest_attention(device::Stream& stream, const GuestAttentionArgs& args) {
  cpu_stream(stream).enqueue([args](device::ThreadPool& pool) {
    if (args.host == nullptr || !args.host->await(rows_of(args))) {
      attention_on(pool, args.attention);
    }
  });
}

}  // namespace heddle::ops::cpu
