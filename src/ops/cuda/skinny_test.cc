#include "ops/cuda/skinny.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "ops/cuda/kernels.h"
#include "ops/cuda/linear_args.h"
#include "ops/op_test.h"

namespace heddle::ops::cuda {
namespace {

/// The skinny kernels by themselves: how tiles are cut and put together again.
class SkinnyTest : public OpTest {
 protected:
  /// A product with all that may be added to it.
  struct Case {
    std::int64_t tokens = 0;
    std::int64_t outputs = 0;
    std::int64_t inputs = 0;
    bool bias = false;
    bool residual = false;
    bool gated = false;
    bool out_bf16 = false;
  };

  static std::string name_of(const Case& c) {
    return std::to_string(c.tokens) + " x " + std::to_string(c.inputs) + " to " +
           std::to_string(c.outputs) + (c.gated ? ", gated" : "");
  }

  /// Every kernel at its ends; fewer outputs than a tile, several tiles, and a part of one; lines
  /// of inputs that are cut short; runs of a step, and such as end in the middle of a tile.
  static std::vector<Case> cases() {
    return {{.tokens = 1, .outputs = 5, .inputs = 8},
            {.tokens = 9, .outputs = 40, .inputs = 64, .bias = true},
            {.tokens = 16, .outputs = 128, .inputs = 200, .residual = true},
            {.tokens = 17, .outputs = 300, .inputs = 1096, .bias = true, .residual = true},
            {.tokens = 32, .outputs = 264, .inputs = 328, .out_bf16 = true},
            {.tokens = 33, .outputs = 129, .inputs = 72, .residual = true},
            {.tokens = 64, .outputs = 264, .inputs = 1096, .bias = true},
            {.tokens = 12, .outputs = 48, .inputs = 128, .bias = true, .gated = true},
            {.tokens = 30, .outputs = 272, .inputs = 520, .gated = true, .out_bf16 = true},
            {.tokens = 64, .outputs = 130, .inputs = 1096, .gated = true}};
  }

  /// A case's numbers; x and out are parts of wider rows.
  struct Numbers {
    std::vector<std::uint16_t> x;
    std::vector<std::uint16_t> weight;
    std::vector<float> bias;
    std::vector<float> residual;
  };
  Numbers numbers_of(const Case& c) {
    return {.x = rounded(random(c.tokens * (c.inputs + kBesideX))),
            .weight = rounded(random(c.outputs * c.inputs, 0.2F)),
            .bias = random(c.outputs),
            .residual = random(c.tokens * c.outputs)};
  }

  /// Results of a launch, of rows with `kBesideOut` more places, widened.
  std::vector<float> run(const Case& c, const Numbers& n) {
    const std::int64_t columns = (c.gated ? c.outputs / 2 : c.outputs) + kBesideOut;
    std::vector<float> wide(static_cast<std::size_t>(c.tokens * columns), kUntouched);
    std::vector<std::uint16_t> half = rounded(wide);
    auto* x = const_cast<std::byte*>(reinterpret_cast<const std::byte*>(n.x.data()));
    const LinearArgs args{
        .x = columns_of(tensor_2d(x, DType::kBf16, c.tokens, c.inputs + kBesideX), 0, c.inputs),
        .weight = bf16_matrix(n.weight, c.outputs, c.inputs),
        .bias = c.bias ? vector_of(n.bias.data(), c.outputs) : ConstTensorRef{},
        .residual =
            c.residual ? matrix_of(n.residual.data(), c.tokens, c.outputs) : ConstTensorRef{},
        .out = c.out_bf16
                   ? tensor_2d(
                         reinterpret_cast<std::byte*>(half.data()), DType::kBf16, c.tokens, columns)
                   : matrix_of(wide.data(), c.tokens, columns)};
    EXPECT_TRUE(skinny_takes(args));
    LinearParams params = linear_params(args, true);
    params.gated = c.gated;
    EXPECT_TRUE(launch_skinny(cuda_stream(stream_), params));
    synchronize();
    return c.out_bf16 ? widened(half) : wide;
  }

  /// What a result should be, in double, and how far it may be from that.
  std::pair<double, double> expected(const Case& c,
                                     const Numbers& n,
                                     std::int64_t token,
                                     std::int64_t column) {
    const auto sum = [&](std::int64_t output) {
      double value = c.bias ? static_cast<double>(n.bias[static_cast<std::size_t>(output)]) : 0.0;
      for (std::int64_t i = 0; i < c.inputs; ++i) {
        const auto x = n.x[static_cast<std::size_t>(token * (c.inputs + kBesideX) + i)];
        const auto w = n.weight[static_cast<std::size_t>(output * c.inputs + i)];
        value += static_cast<double>(from_bf16(x)) * static_cast<double>(from_bf16(w));
      }
      return value;
    };
    double value = sum(column);
    if (c.gated) {
      value = value / (1.0 + std::exp(-value)) * sum(c.outputs / 2 + column);
    } else if (c.residual) {
      value +=
          static_cast<double>(n.residual[static_cast<std::size_t>(token * c.outputs + column)]);
    }
    const double rounding = c.out_bf16 ? 0x1p-8 : 0.0;
    return {value, (rounding + 0x1p-18) * std::abs(value) + 0x1p-16 * std::sqrt(c.inputs)};
  }

  static constexpr float kUntouched = 7.0F;
  static constexpr std::int64_t kBesideX = 16;
  static constexpr std::int64_t kBesideOut = 3;
};

TEST_F(SkinnyTest, AgreesWithDoubleHoweverTilesAreShared) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(name_of(c));
    const Numbers n = numbers_of(c);
    const std::vector<float> out = run(c, n);
    const std::int64_t columns = c.gated ? c.outputs / 2 : c.outputs;
    for (std::int64_t t = 0; t < c.tokens; ++t) {
      for (std::int64_t o = 0; o < columns + kBesideOut; ++o) {
        const float got = out[static_cast<std::size_t>(t * (columns + kBesideOut) + o)];
        if (o >= columns) {
          ASSERT_EQ(got, kUntouched) << "written beside its row";
          continue;
        }
        const auto [value, bound] = expected(c, n, t, o);
        ASSERT_NEAR(static_cast<double>(got), value, bound) << t << ", " << o;
      }
    }
  }
}

TEST_F(SkinnyTest, GivesTheSameBitsAgainAndLeavesCountersAsTheyWere) {
  const Case c{.tokens = 24, .outputs = 300, .inputs = 1096, .residual = true};
  const Numbers n = numbers_of(c);
  const std::vector<float> once = run(c, n);
  EXPECT_TRUE(same_bits(run(c, n), once));
  EXPECT_TRUE(same_bits(run(c, n), once));
}

TEST_F(SkinnyTest, TakesWhatItsKernelsAreMadeFor) {
  const std::vector<std::uint16_t> numbers(65 * 24 + 1);
  const std::vector<float> wide(65 * 24);
  const auto args = [&](std::int64_t tokens, std::int64_t inputs) {
    return LinearArgs{.x = bf16_matrix(numbers, tokens, inputs),
                      .weight = bf16_matrix(numbers, 3, inputs)};
  };
  EXPECT_TRUE(skinny_takes(args(64, 24)));
  EXPECT_FALSE(skinny_takes(args(65, 24)));
  EXPECT_FALSE(skinny_takes(args(64, 20))) << "rows that begin anywhere";
  LinearArgs apart = args(64, 24);
  apart.x.data += 2;
  EXPECT_FALSE(skinny_takes(apart));
  EXPECT_FALSE(
      skinny_takes({.x = matrix_of(wide.data(), 4, 24), .weight = matrix_of(wide.data(), 3, 24)}));
}

}  // namespace
}  // namespace heddle::ops::cuda
