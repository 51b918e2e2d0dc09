#include "ops/layer_norm.h"

#include <algorithm>
#include <cmath>

#include "ops/op_test.h"

namespace heddle::ops {
namespace {

constexpr std::int64_t kNormedRows = 3;
constexpr float kNormEps = 1e-5F;

class LayerNormTest : public OpTest {};

TEST_F(LayerNormTest, AgreesWithDouble) {
  for (const std::int64_t n : {1, 15, 16, 33, 384}) {
    const auto x = random(kNormedRows * n, 3.0F);
    const auto weight = random(n);
    const auto bias = random(n);
    std::vector<float> out(x.size());
    std::vector<float> copy(x.size());
    layer_norm(context_,
               {.x = matrix_of(x.data(), kNormedRows, n),
                .weight = vector_of(weight.data(), n),
                .bias = vector_of(bias.data(), n),
                .out = matrix_of(out.data(), kNormedRows, n),
                .copy = matrix_of(copy.data(), kNormedRows, n),
                .eps = kNormEps});
    synchronize();
    EXPECT_EQ(out, copy);
    for (std::int64_t row = 0; row < kNormedRows; ++row) {
      const float* const of_row = x.data() + row * n;
      double mean = 0.0;
      for (std::int64_t i = 0; i < n; ++i) {
        mean += static_cast<double>(of_row[i]) / static_cast<double>(n);
      }
      double variance = 0.0;
      for (std::int64_t i = 0; i < n; ++i) {
        const double off = static_cast<double>(of_row[i]) - mean;
        variance += off * off / static_cast<double>(n);
      }
      const double spread = std::sqrt(variance + static_cast<double>(kNormEps));
      for (std::int64_t i = 0; i < n; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const auto w = static_cast<double>(weight[at]);
        const double unit = (static_cast<double>(of_row[i]) - mean) / spread;
        const double expected = unit * w + static_cast<double>(bias[at]);
        const double bound = 0x1p-20 * (1 + std::abs(unit)) * std::abs(w) +
                             0x1p-22 * std::abs(static_cast<double>(bias[at])) +
                             0x1p-18 * std::abs(mean) / spread * std::abs(w);
        EXPECT_NEAR(
            static_cast<double>(out[static_cast<std::size_t>(row * n + i)]), expected, bound)
            << n << " columns, row " << row << ", column " << i;
      }
    }
  }
}

TEST_F(LayerNormTest, MayWriteWhereItReadsAndRoundsTheCopy) {
  constexpr std::int64_t kColumns = 21;
  auto x = random(kNormedRows * kColumns, 3.0F);
  const auto weight = random(kColumns);
  const auto bias = random(kColumns);
  std::vector<float> apart(x.size());
  std::vector<float> copy(x.size());
  std::vector<std::uint16_t> half(x.size());
  LayerNormArgs args{.x = matrix_of(x.data(), kNormedRows, kColumns),
                     .weight = vector_of(weight.data(), kColumns),
                     .bias = vector_of(bias.data(), kColumns),
                     .out = matrix_of(apart.data(), kNormedRows, kColumns),
                     .copy = matrix_of(copy.data(), kNormedRows, kColumns),
                     .eps = kNormEps};
  layer_norm(context_, args);
  args.out = matrix_of(x.data(), kNormedRows, kColumns);
  args.copy =
      tensor_2d(reinterpret_cast<std::byte*>(half.data()), DType::kBf16, kNormedRows, kColumns);
  layer_norm(context_, args);
  synchronize();
  EXPECT_EQ(x, apart);
  EXPECT_EQ(half, rounded(apart));
}

}  // namespace
}  // namespace heddle::ops
