#include <memory>
#include <utility>

#include "ops/attention.h"
#include "ops/gather_rows.h"
#include "ops/linear.h"
#include "ops/paged_kv_test.h"
#include "ops/rms_norm.h"
#include "ops/rope_append.h"
#include "ops/silu_mul.h"

namespace heddle::ops {
namespace {

constexpr std::int64_t kColumns = 64;  // Of the residual stream: two heads.
constexpr std::int64_t kHeadDim = 32;
constexpr std::int64_t kEntries = 11;

/// The operations of a step of something like a decoder of one layer, over sequences of which some
/// have many tokens.
class RecordingTest : public OpTest {
 protected:
  void enqueue() {
    const std::int64_t tokens = begin_.back();
    const BatchRows rows{.begin = vector_of(begin_.data(), 4),
                         .first_position = vector_of(first_.data(), 3)};
    const auto weight = tensor_2d(
        reinterpret_cast<const std::byte*>(weight_.data()), DType::kBf16, 3 * kColumns, kColumns);
    const auto part = [&](std::int64_t i) {
      return heads_of(matrix_of(qkv_.data(), tokens, 3 * kColumns), i * kColumns, 2, kHeadDim);
    };
    const auto matrix = [&](std::vector<float>& data, std::int64_t columns) {
      return matrix_of(data.data(), tokens, columns);
    };
    const TensorRef normed =
        tensor_2d(reinterpret_cast<std::byte*>(normed_.data()), DType::kBf16, tokens, kColumns);
    gather_rows(context_,
                {.table = matrix_of(std::as_const(table_).data(), kEntries, kColumns),
                 .rows = vector_of(std::as_const(ids_).data(), tokens),
                 .out = matrix(x_, kColumns)});
    rms_norm(context_,
             {.x = matrix(x_, kColumns),
              .weight = vector_of(std::as_const(scale_).data(), kColumns),
              .out = normed});
    linear(context_, {.x = normed, .weight = weight, .out = matrix(qkv_, 3 * kColumns)});
    rope_append(context_,
                {.rows = rows,
                 .cos_sin = matrix(cos_sin_, kHeadDim),
                 .query = part(0),
                 .key = part(1),
                 .value = part(2),
                 .kv = cache_.kv()});
    attention(context_,
              {.rows = rows,
               .query = part(0),
               .kv = cache_.kv(),
               .scale = 0.2F,
               .out = heads_of(matrix(attended_, kColumns), 0, 2, kHeadDim)});
    silu_mul(context_, {.gate_up = matrix(attended_, kColumns), .out = matrix(out_, kColumns / 2)});
  }

  /// What the step gives; nothing of it is left behind.
  std::vector<float> take() { return std::exchange(out_, std::vector<float>(out_.size())); }

  const std::vector<std::int32_t> begin_{0, 1, 41, 42};
  const std::vector<std::int32_t> first_{150, 100, 0};
  std::vector<std::int32_t> ids_ = [] {
    std::vector<std::int32_t> ids(42);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      ids[i] = static_cast<std::int32_t>(i * 7 % kEntries);
    }
    return ids;
  }();
  PagedKvFixture cache_{
      {.kv_heads = 2, .head_dim = kHeadDim, .block_tokens = 16, .dtype = DType::kBf16},
      {151, 140, 1},
      rng_};
  const std::vector<float> scale_ = random(kColumns);
  const std::vector<std::uint16_t> weight_ = rounded(random(3 * kColumns * kColumns, 0.2F));
  std::vector<float> table_ = random(kEntries * kColumns);
  std::vector<float> cos_sin_ = random(42 * kHeadDim);
  std::vector<float> x_ = random(42 * kColumns);
  std::vector<std::uint16_t> normed_ = rounded(x_);
  std::vector<float> qkv_ = random(42 * 3 * kColumns);
  std::vector<float> attended_ = x_;
  std::vector<float> out_ = std::vector<float>(42 * kColumns / 2);
};

TEST_F(RecordingTest, AStepThatWasRecordedRunsAgainOverWhatIsThereThen) {
  // What earlier steps have left in the cache.
  for (std::int64_t s = 0; s < 2; ++s) {
    for (std::int64_t position = 0; position < first_[static_cast<std::size_t>(s)]; ++position) {
      const auto earlier = random(kColumns);
      cache_.put(s, position, earlier.data(), earlier.data());
    }
  }

  enqueue();
  synchronize();
  const std::vector<float> once = take();
  ASSERT_TRUE(stream_.begin_capture());
  enqueue();
  auto recorded = stream_.end_capture();
  ASSERT_TRUE(recorded) << recorded.error().message;
  EXPECT_EQ(out_, std::vector<float>(out_.size())) << "recorded, not run";
  stream_.replay(**recorded);
  synchronize();
  EXPECT_TRUE(same_bits(take(), once));

  for (float& value : table_) {
    value = 1.0F - value;
  }
  enqueue();
  synchronize();
  const std::vector<float> other = take();
  EXPECT_FALSE(same_bits(other, once));
  stream_.replay(**recorded);
  synchronize();
  EXPECT_TRUE(same_bits(take(), other));
}

}  // namespace
}  // namespace heddle::ops
