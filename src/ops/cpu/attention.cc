#include "ops/attention.h"

#include <algorithm>

#include "ops/cpu/kernels.h"
#include "ops/cpu/simd/kernels.h"

namespace heddle::ops::cpu {
namespace {

/// The blocks of work of a batch: (sequence, key/value head, up to kAttentionRowsMax rows).
class Work {
 public:
  explicit Work(const AttentionArgs& args)
      : args_(args),
        group_(args.query.shape[1] / args.kv.kv_heads),
        begin_(args.rows.begin.as<std::int32_t>()) {
    for (std::int64_t s = 0; s < args.rows.sequences(); ++s) {
      count_ += blocks_of(s);
    }
  }

  [[nodiscard]] std::int64_t count() const { return count_; }

  /// Runs blocks [first, last).
  void run(std::int64_t first, std::int64_t last) const {
    std::int64_t before = 0;
    for (std::int64_t s = 0; s < args_.rows.sequences() && before < last; ++s) {
      const std::int64_t blocks = blocks_of(s);
      for (std::int64_t i = std::max(first - before, std::int64_t{0});
           i < std::min(last - before, blocks);
           ++i) {
        run_block(s, i);
      }
      before += blocks;
    }
  }

 private:
  [[nodiscard]] std::int64_t rows_of(std::int64_t s) const {
    return (begin_[s + 1] - begin_[s]) * group_;
  }
  [[nodiscard]] std::int64_t chunks_of(std::int64_t s) const {
    return (rows_of(s) + kAttentionRowsMax - 1) / kAttentionRowsMax;
  }
  [[nodiscard]] std::int64_t blocks_of(std::int64_t s) const {
    return chunks_of(s) * args_.kv.kv_heads;
  }

  void run_block(std::int64_t s, std::int64_t index) const {
    const PagedKv& kv = args_.kv;
    const std::int64_t kv_head = index / chunks_of(s);
    const std::int64_t row = index % chunks_of(s) * kAttentionRowsMax;
    const std::int64_t token = begin_[s];
    const std::int64_t element = kv_head * group_ * kv.head_dim;
    const std::int64_t head_bytes = kv_head * kv.head_stride();
    AttentionBlock block{.query = args_.query.as<float>() + token * args_.query.stride[0] + element,
                         .query_stride = args_.query.stride[0],
                         .group = group_,
                         .row_begin = row,
                         .row_end = std::min(row + kAttentionRowsMax, rows_of(s)),
                         .first_position = args_.rows.first_position.as<std::int32_t>()[s],
                         .window = args_.window,
                         .head_dim = kv.head_dim,
                         .scale = args_.scale,
                         .soft_cap = args_.soft_cap,
                         .keys = kv.base + kv.key_offset + head_bytes,
                         .values = kv.base + kv.value_offset + head_bytes,
                         .token_bytes = kv.token_stride(),
                         .block_bytes = kv.block_bytes,
                         .block_tokens = kv.block_tokens,
                         .block_table = kv.table.as<std::int32_t>() + s * kv.table.stride[0]};
    if (kv.scaled()) {
      block.key_scales = kv.base + kv.key_offset + kv.scale_offset(kv_head);
      block.value_scales = kv.base + kv.value_offset + kv.scale_offset(kv_head);
    }
    if (!args_.causal) {
      block.all = block.first_position + begin_[s + 1] - token;
    }
    if (args_.sinks.present()) {
      block.sinks = args_.sinks.as<float>() + kv_head * group_;
    }
    if (args_.out.present()) {
      block.out =
          args_.out.data + (token * args_.out.stride[0] + element) * dtype_size(args_.out.dtype);
      block.out_stride = args_.out.stride[0];
      block.out_bf16 = args_.out.dtype == DType::kBf16;
    }
    if (args_.lse.present()) {
      block.lse = args_.lse.as<float>() + token * args_.lse.stride[0] + kv_head * group_;
      block.lse_stride = args_.lse.stride[0];
    }
    set_parts(block, s, token, kv_head);
    kernel_of(kv.dtype)(block);
  }

  static void (*kernel_of(DType dtype))(const AttentionBlock& block) {
    const SimdKernels& simd = simd_kernels();
    switch (dtype) {
      case DType::kI8:
        return simd.attention_int8;
      case DType::kF8:
        return simd.attention_f8;
      case DType::kBf16:
        return simd.attention_bf16;
      default:
        return simd.attention_f32;
    }
  }

  void set_parts(AttentionBlock& block,
                 std::int64_t s,
                 std::int64_t token,
                 std::int64_t kv_head) const {
    const AttentionParts& parts = args_.parts;
    const std::int64_t head = kv_head * group_;
    if (parts.begin.present()) {
      block.begin = parts.begin.as<std::int32_t>()[s];
    }
    if (parts.end.present()) {
      block.end = parts.end.as<std::int32_t>()[s];
    }
    if (parts.resumed.present() && block.begin > 0) {
      block.resumed = parts.resumed.as<float>() + token * parts.resumed.stride[0] +
                      head * parts.resumed.stride[1];
      block.resumed_stride = parts.resumed.stride[0];
    }
    if (parts.left.present()) {
      block.left =
          parts.left.as<float>() + token * parts.left.stride[0] + head * parts.left.stride[1];
      block.left_stride = parts.left.stride[0];
    }
  }

  const AttentionArgs& args_;
  std::int64_t group_;
  const std::int32_t* begin_;
  std::int64_t count_ = 0;
};

}  // namespace

static_assert(kHeadDimMax == kAttentionHeadDimMax);

void attention(device::Stream& stream, const AttentionArgs& args) {
  cpu_stream(stream).enqueue([args](device::ThreadPool& pool) { attention_on(pool, args); });
}

void attention_on(device::ThreadPool& pool, const AttentionArgs& args) {
  const Work work(args);
  pool.parallel_for(
      work.count(), 1, [&](std::int64_t begin, std::int64_t end, int) { work.run(begin, end); });
}

void attention_here(const AttentionArgs& args) {
  const Work work(args);
  work.run(0, work.count());
}

}  // namespace heddle::ops::cpu
