#include "ops/rms_norm.h"

#include <utility>

#include "ops/op_test.h"

namespace heddle::ops {
namespace {

class RmsNormTest : public OpTest {};

TEST_F(RmsNormTest, AgreesWithDouble) {
  for (const std::int64_t columns : {1, 2, 15, 16, 17, 64, 130, 1024}) {
    constexpr std::int64_t kTokens = 3;
    constexpr double kEps = 1e-3;
    const auto x = random(kTokens * columns, 0.3F);
    const auto weight = random(columns);
    std::vector<float> out(x.size());
    rms_norm(context_,
             {.x = matrix_of(x.data(), kTokens, columns),
              .weight = vector_of(weight.data(), columns),
              .out = matrix_of(out.data(), kTokens, columns),
              .eps = static_cast<float>(kEps)});
    synchronize();
    for (std::int64_t t = 0; t < kTokens; ++t) {
      const float* row = x.data() + t * columns;
      double squares = 0.0;
      for (std::int64_t i = 0; i < columns; ++i) {
        squares += static_cast<double>(row[i]) * static_cast<double>(row[i]);
      }
      const double scale = 1.0 / std::sqrt(squares / static_cast<double>(columns) + kEps);
      for (std::int64_t i = 0; i < columns; ++i) {
        const double expected = static_cast<double>(row[i]) * scale *
                                static_cast<double>(weight[static_cast<std::size_t>(i)]);
        EXPECT_NEAR(static_cast<double>(out[static_cast<std::size_t>(t * columns + i)]),
                    expected,
                    3e-6 * std::abs(expected))
            << columns << " columns, token " << t << ", column " << i;
      }
    }
  }
}

TEST_F(RmsNormTest, NormalisesHeadsInPlaceAndLeavesTheirNeighbours) {
  // Two tokens of a row [head 0 | head 1 | other], head_dim 2.
  std::vector<float> rows{3, 4, 0, 2, 7, 9, 1, 1, 5, 0, 7, 9};
  const std::vector<float> weight{1, 10};
  const auto heads = heads_of(matrix_of(rows.data(), 2, 6), 0, 2, 2);
  rms_norm(context_,
           {.x = heads, .weight = vector_of(weight.data(), 2), .out = heads, .eps = 0.0F});
  synchronize();
  const float r = std::sqrt(2.0F);
  const std::vector<float> expected{3 * r / 5, 4 * r / 5 * 10, 0, r * 10, 7, 9, 1, 10, r, 0, 7, 9};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_NEAR(rows[i], expected[i], 2e-6F * std::abs(expected[i])) << i;
  }
}

TEST_F(RmsNormTest, WithoutWeightsItIsAsWithOnes) {
  if (backend_->kind() != device::Kind::kCpu) {
    GTEST_SKIP() << "norms without weights are for CPUs";
  }
  constexpr std::int64_t kColumns = 37;
  const auto x = random(2 * kColumns);
  const std::vector<float> ones(kColumns, 1.0F);
  std::vector<float> with(x.size());
  std::vector<float> without(x.size());
  RmsNormArgs args{.x = matrix_of(x.data(), 2, kColumns),
                   .weight = vector_of(ones.data(), kColumns),
                   .out = matrix_of(with.data(), 2, kColumns)};
  rms_norm(context_, args);
  args.weight = {};
  args.out = matrix_of(without.data(), 2, kColumns);
  rms_norm(context_, args);
  synchronize();
  EXPECT_EQ(without, with);
}

TEST_F(RmsNormTest, RoundsWhatItHandsOn) {
  constexpr std::int64_t kColumns = 37;
  auto x = random(2 * kColumns);
  x[40] = std::nanf("");
  const auto weight = random(kColumns);
  std::vector<float> exact(x.size());
  std::vector<std::uint16_t> half(x.size());
  const RmsNormArgs args{.x = matrix_of(std::as_const(x).data(), 2, kColumns),
                         .weight = vector_of(weight.data(), kColumns),
                         .out = matrix_of(exact.data(), 2, kColumns)};
  RmsNormArgs rounding = args;
  rounding.out = tensor_2d(reinterpret_cast<std::byte*>(half.data()), DType::kBf16, 2, kColumns);
  rms_norm(context_, args);
  rms_norm(context_, rounding);
  synchronize();
  EXPECT_EQ(half, rounded(exact));
}

}  // namespace
}  // namespace heddle::ops
