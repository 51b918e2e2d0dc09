// Attention without causal order, which CPUs alone have.

#include "ops/attention.h"
#include "ops/paged_kv_test.h"

namespace heddle::ops {
namespace {

class BidirectionalAttentionTest : public OpTest {
 protected:
  /// Attention of `count` tokens of one sequence, of which the first is at `first`.
  std::vector<float> attend(PagedKv kv,
                            std::int64_t heads,
                            std::vector<float>& query,
                            std::int64_t first,
                            std::int64_t count,
                            bool causal) {
    const std::int64_t width = heads * kv.head_dim;
    std::vector<float> out(static_cast<std::size_t>(count * width));
    const std::vector<std::int32_t> begin{0, static_cast<std::int32_t>(count)};
    const std::vector<std::int32_t> position{static_cast<std::int32_t>(first)};
    attention(context_,
              {.rows = {.begin = vector_of(begin.data(), 2),
                        .first_position = vector_of(position.data(), 1)},
               .query = heads_of(matrix_of(query.data(), count, width), 0, heads, kv.head_dim),
               .kv = kv,
               .causal = causal,
               .scale = 0.3F,
               .out = heads_of(matrix_of(out.data(), count, width), 0, heads, kv.head_dim)});
    synchronize();
    return out;
  }
};

// A token that attends to all positions does as the last one does in causal order, to the bit.
TEST_F(BidirectionalAttentionTest, EveryTokenDoesAsTheLastOneWould) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    for (const std::int64_t head_dim : {8, 32}) {
      for (const std::int64_t length : {1, 15, 16, 70, 131}) {
        constexpr std::int64_t kHeads = 2;
        const PagedKvFixture::Shape shape{
            .kv_heads = kHeads, .head_dim = head_dim, .block_tokens = 16, .dtype = dtype};
        PagedKvFixture cache(shape, {length}, rng_);
        const std::int64_t width = kHeads * head_dim;
        for (std::int64_t position = 0; position < length; ++position) {
          const auto key = random(width, 1.5F);
          const auto value = random(width);
          cache.put(0, position, key.data(), value.data());
        }
        std::vector<float> query = random(length * width, 1.0F);
        const auto all = attend(cache.kv(), kHeads, query, 0, length, /*causal=*/false);
        for (std::int64_t token = 0; token < length; ++token) {
          const auto at = static_cast<std::ptrdiff_t>(token * width);
          std::vector<float> own(query.begin() + at, query.begin() + at + width);
          const auto last = attend(cache.kv(), kHeads, own, length - 1, 1, /*causal=*/true);
          ASSERT_TRUE(std::equal(last.begin(), last.end(), all.begin() + at))
              << "token " << token << " of " << length;
        }
      }
    }
  }
}

}  // namespace
}  // namespace heddle::ops
