#include "ops/kv_append.h"

#include "ops/paged_kv_test.h"

namespace heddle::ops {
namespace {

class KvAppendTest : public OpTest {};

TEST_F(KvAppendTest, WritesEachTokenToItsSlotAndNothingElse) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    constexpr std::int64_t kHeads = 2;
    constexpr std::int64_t kDim = 6;
    constexpr std::int64_t kBlock = 5;  // Not a power of two.
    PagedKvFixture cache(
        {.kv_heads = kHeads, .head_dim = kDim, .block_tokens = kBlock, .dtype = dtype},
        {12, 7},
        rng_);
    // Positions 3..11 of the first, over two block borders, and 6 of the second.
    const std::vector<std::int32_t> begin{0, 9, 10};
    const std::vector<std::int32_t> first_position{3, 6};
    const auto keys = random(10 * kHeads * kDim);
    const auto values = random(10 * kHeads * kDim);
    const auto heads = [&](const std::vector<float>& data) {
      return heads_of(
          matrix_of(const_cast<float*>(data.data()), 10, kHeads * kDim), 0, kHeads, kDim);
    };
    kv_append(context_,
              {.rows = {.begin = vector_of(begin.data(), 3),
                        .first_position = vector_of(first_position.data(), 2)},
               .key = heads(keys),
               .value = heads(values),
               .kv = cache.kv()});
    synchronize();
    for (std::int64_t row = 0; row < 10; ++row) {
      const std::int64_t s = row < 9 ? 0 : 1;
      const std::int64_t position = row < 9 ? 3 + row : 6;
      for (std::int64_t i = 0; i < kHeads * kDim; ++i) {
        const auto source = static_cast<std::size_t>(row * kHeads * kDim + i);
        const auto stored = [&](float x) {
          return dtype == DType::kF32 ? x : from_bf16(to_bf16(x));
        };
        EXPECT_EQ(cache.at(s, position, i / kDim, i % kDim, false), stored(keys[source]));
        EXPECT_EQ(cache.at(s, position, i / kDim, i % kDim, true), stored(values[source]));
      }
    }
    const auto written = std::count_if(
        cache.memory().begin(), cache.memory().end(), [](auto b) { return b != std::byte{0xff}; });
    EXPECT_LE(written,
              static_cast<std::ptrdiff_t>(10 * 2 * kHeads * kDim * spec::dtype_bytes(dtype)));
  }
}

}  // namespace
}  // namespace heddle::ops
