#include "ops/add_low_rank.h"

#include <gtest/gtest.h>

#include "ops/linear.h"
#include "ops/op_test.h"
#include "ops/rescale.h"

namespace heddle::ops {
namespace {

constexpr std::int64_t kInputs = 70;
constexpr std::int64_t kOutputs = 500;

/// Numbers of either type, and the tensor over them.
class Numbers {
 public:
  Numbers(std::vector<float> values, DType dtype)
      : dtype_(dtype), wide_(std::move(values)), narrow_(rounded(wide_)) {}

  [[nodiscard]] ConstTensorRef matrix(std::int64_t rows, std::int64_t columns) const {
    return dtype_ == DType::kBf16 ? bf16_matrix(narrow_, rows, columns)
                                  : ConstTensorRef(matrix_of(wide_.data(), rows, columns));
  }

 private:
  DType dtype_;
  std::vector<float> wide_;
  std::vector<std::uint16_t> narrow_;
};

class AddLowRankTest : public OpTest {
 protected:
  LowRankPair pair(std::int64_t rank, std::int64_t first, std::int64_t outputs, DType dtype) {
    const auto draw = [&](std::int64_t count) {
      return made_.emplace_back(std::make_unique<Numbers>(random(count), dtype)).get();
    };
    return {.first = first,
            .a = draw(rank * kInputs)->matrix(rank, kInputs),
            .b = draw(outputs * rank)->matrix(outputs, rank)};
  }

  /// The same by linear() and rescale(), product after product.
  void add_one_by_one(const AddLowRankArgs& args, const TensorRef& out) {
    for (const LowRankRows& group : args.rows) {
      ConstTensorRef x = args.x;
      x.data += group.first * x.stride[0] * dtype_size(x.dtype);
      x.shape[0] = group.rows;
      for (const LowRankPair& pair : group.pairs) {
        const std::int64_t rank = pair.a.shape[0];
        std::vector<float> inner(static_cast<std::size_t>(group.rows * rank));
        std::vector<std::uint16_t> narrow(inner.size());
        const TensorRef given = matrix_of(inner.data(), group.rows, rank);
        const TensorRef taken =
            args.x.dtype == DType::kF32
                ? given
                : tensor_2d(
                      reinterpret_cast<std::byte*>(narrow.data()), DType::kBf16, group.rows, rank);
        linear(context_, {.x = x, .weight = pair.a, .out = given});
        rescale(context_, {.x = given, .out = taken});
        TensorRef to = columns_of(out, pair.first, pair.b.shape[0]);
        to.data += group.first * to.stride[0] * dtype_size(DType::kF32);
        to.shape[0] = group.rows;
        linear(context_, {.x = taken, .weight = pair.b, .residual = to, .out = to});
        synchronize();
      }
    }
  }

  void expect_bits_of_products(AddLowRankArgs args, std::int64_t tokens) {
    const std::vector<float> before = random(tokens * kOutputs);
    std::vector<float> expected = before;
    std::vector<float> out = before;
    add_one_by_one(args, matrix_of(expected.data(), tokens, kOutputs));
    args.out = matrix_of(out.data(), tokens, kOutputs);
    add_low_rank(context_, args);
    synchronize();
    EXPECT_NE(out, before);
    for (std::size_t i = 0; i < out.size(); ++i) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(out[i]), std::bit_cast<std::uint32_t>(expected[i]))
          << "element " << i;
    }
  }

  std::vector<std::unique_ptr<Numbers>> made_{};
};

TEST_F(AddLowRankTest, GivesTheBitsOfTheTwoProducts) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    constexpr std::int64_t kTokens = 60;
    const Numbers x(random(kTokens * kInputs), dtype);
    const std::vector<LowRankPair> qkv{
        pair(16, 0, 400, dtype), pair(16, 400, 50, dtype), pair(16, 450, 50, dtype)};
    const std::vector<LowRankPair> all{pair(7, 0, kOutputs, dtype)};
    const std::vector<LowRankPair> wide{pair(64, 99, 1, dtype)};
    for (const std::int64_t most : {std::int64_t{40}, kTokens}) {  // In two waves, and in one.
      SCOPED_TRACE(spec::dtype_name(dtype));
      expect_bits_of_products({.x = x.matrix(kTokens, kInputs),
                               .rows = {{.first = 0, .rows = 1, .pairs = qkv},
                                        {.first = 1, .rows = 1, .pairs = all},
                                        {.first = 3, .rows = 37, .pairs = qkv},
                                        {.first = 40, .rows = 17, .pairs = wide}},
                               .most_tokens = most},
                              kTokens);
    }
  }
}

TEST_F(AddLowRankTest, LeavesOtherTokensAlone) {
  constexpr std::int64_t kTokens = 5;
  const Numbers x(random(kTokens * kInputs), DType::kF32);
  const std::vector<LowRankPair> pairs{pair(4, 10, 20, DType::kF32)};
  const std::vector<float> before = random(kTokens * kOutputs);
  std::vector<float> out = before;
  add_low_rank(context_,
               {.x = x.matrix(kTokens, kInputs),
                .rows = {{.first = 2, .rows = 2, .pairs = pairs}},
                .out = matrix_of(out.data(), kTokens, kOutputs),
                .most_tokens = kTokens});
  synchronize();
  for (std::int64_t token = 0; token < kTokens; ++token) {
    for (std::int64_t column = 0; column < kOutputs; ++column) {
      const auto i = static_cast<std::size_t>(token * kOutputs + column);
      const bool changed = (token == 2 || token == 3) && column >= 10 && column < 30;
      EXPECT_EQ(out[i] != before[i], changed) << token << ", " << column;
    }
  }
}

TEST_F(AddLowRankTest, NeedsNoMoreMemoryThanItSays) {
  // As the packed inner products of a kernel that widens bfloat16.
  EXPECT_EQ(low_rank_bytes(16, 1), 2 * 16 * 4 + 32 * 4 + 64);
  EXPECT_EQ(low_rank_bytes(64, 3), 3 * (2 * 64 * 4 + 64 * 4 + 64));
}

}  // namespace
}  // namespace heddle::ops
