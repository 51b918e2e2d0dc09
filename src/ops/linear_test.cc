#include "ops/linear.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>

#include "ops/cpu/simd/kernels.h"
#include "ops/op_test.h"

namespace heddle::ops {
namespace {

class LinearTest : public OpTest {};

struct Shape {
  std::int64_t tokens = 0;
  std::int64_t outputs = 0;
  std::int64_t inputs = 0;
};

/// Every remainder of the register tiles and of the lanes, and one of ordinary size.
std::vector<Shape> shapes() {
  std::vector<Shape> result{{0, 5, 8}, {64, 96, 128}};
  // More inputs than a slab holds of either type.
  result.push_back({9, 21, 2100});
  result.push_back({50, 101, 2112});
  // As many tokens as some kernels take and others do not, and more than one tile of all.
  result.push_back({5, 20, 4160});
  result.push_back({13, 20, 4160});
  result.push_back({8, 40, 192});
  result.push_back({16, 40, 192});
  result.push_back({24, 40, 200});
  result.push_back({70, 140, 136});
  for (const std::int64_t tokens : {1, 2, 3, 5, 7, 13, 49}) {
    for (const std::int64_t inputs : {1, 15, 16, 17, 40, 64, 65}) {
      result.push_back({tokens, 1 + tokens % 9, inputs});
    }
  }
  return result;
}

/// The value of one output in double, and the bound of linear.h on the distance from it.
struct Reference {
  double value = 0.0;
  double bound = 0.0;
};

Reference reference(const float* x, const float* weight, std::int64_t inputs) {
  Reference result;
  for (std::int64_t i = 0; i < inputs; ++i) {
    const double product = static_cast<double>(x[i]) * static_cast<double>(weight[i]);
    result.value += product;
    result.bound += std::abs(product);
  }
  result.bound *= static_cast<double>(inputs) * 0x1p-24;
  return result;
}

TEST_F(LinearTest, AgreesWithDoubleInBothWeightTypes) {
  for (const Shape& s : shapes()) {
    const auto half_x = rounded(random(s.tokens * s.inputs));
    const auto x = widened(half_x);
    const auto half = rounded(random(s.outputs * s.inputs));
    const auto wide = widened(half);
    const auto bias = random(s.outputs);
    const auto residual = random(s.tokens * s.outputs);
    for (const bool bf16 : {false, true}) {
      std::vector<float> out(residual.size());
      linear(context_,
             {.x = bf16 ? bf16_matrix(half_x, s.tokens, s.inputs)
                        : ConstTensorRef(matrix_of(x.data(), s.tokens, s.inputs)),
              .weight = bf16 ? bf16_matrix(half, s.outputs, s.inputs)
                             : ConstTensorRef(matrix_of(wide.data(), s.outputs, s.inputs)),
              .bias = vector_of(bias.data(), s.outputs),
              .residual = matrix_of(residual.data(), s.tokens, s.outputs),
              .out = matrix_of(out.data(), s.tokens, s.outputs)});
      synchronize();
      for (std::int64_t t = 0; t < s.tokens; ++t) {
        for (std::int64_t o = 0; o < s.outputs; ++o) {
          const auto at = static_cast<std::size_t>(t * s.outputs + o);
          const auto expected = reference(&x[static_cast<std::size_t>(t * s.inputs)],
                                          &wide[static_cast<std::size_t>(o * s.inputs)],
                                          s.inputs);
          const double added = static_cast<double>(bias[static_cast<std::size_t>(o)]) +
                               static_cast<double>(residual[at]);
          EXPECT_NEAR(static_cast<double>(out[at]),
                      expected.value + added,
                      expected.bound + 0x1p-22 * (std::abs(expected.value) + 4.0))
              << s.tokens << " x " << s.outputs << " x " << s.inputs;
        }
      }
    }
  }
}

// One order of summation: how many tokens go together, and where in a tile one lies, is invisible.
TEST_F(LinearTest, GivesATokenTheSameBitsAloneAndInABatch) {
  if (!gives_one_answer()) {
    GTEST_SKIP() << "GPUs promise the same bits for the same launch, not for every batch";
  }
  constexpr std::int64_t kTokens = 23;
  constexpr std::int64_t kOutputs = 137;
  for (const std::int64_t inputs : {83, 4200, 4224}) {
    const auto x = rounded(random(kTokens * inputs));
    const auto weight = rounded(random(kOutputs * inputs));
    const auto wide_x = widened(x);
    const auto wide = widened(weight);
    for (const bool bf16 : {false, true}) {
      std::vector<float> together(kTokens * kOutputs);
      std::vector<float> alone(kTokens * kOutputs);
      const auto run = [&](std::int64_t first, std::int64_t tokens, std::vector<float>& out) {
        const auto* half = reinterpret_cast<const std::byte*>(x.data() + first * inputs);
        linear(
            context_,
            {.x = bf16 ? tensor_2d(half, DType::kBf16, tokens, inputs)
                       : ConstTensorRef(matrix_of(wide_x.data() + first * inputs, tokens, inputs)),
             .weight = bf16 ? bf16_matrix(weight, kOutputs, inputs)
                            : ConstTensorRef(matrix_of(wide.data(), kOutputs, inputs)),
             .out = matrix_of(out.data() + first * kOutputs, tokens, kOutputs)});
      };
      run(0, kTokens, together);
      for (std::int64_t t = 0; t < kTokens; ++t) {
        run(t, 1, alone);
      }
      synchronize();
      EXPECT_TRUE(same_bits(together, alone)) << inputs << (bf16 ? " bf16" : " f32");
    }
  }
}

TEST_F(LinearTest, GivesTheSameBitsAgain) {
  for (const std::int64_t tokens : {1, 12, 40}) {
    constexpr std::int64_t kOutputs = 33;
    constexpr std::int64_t kInputs = 520;
    const auto x = rounded(random(tokens * kInputs));
    const auto weight = rounded(random(kOutputs * kInputs));
    std::vector<std::vector<float>> out(
        2, std::vector<float>(static_cast<std::size_t>(tokens * kOutputs)));
    for (std::vector<float>& each : out) {
      linear(context_,
             {.x = bf16_matrix(x, tokens, kInputs),
              .weight = bf16_matrix(weight, kOutputs, kInputs),
              .out = matrix_of(each.data(), tokens, kOutputs)});
    }
    synchronize();
    EXPECT_TRUE(same_bits(out[0], out[1])) << tokens;
  }
}

// Rows that do not follow each other, and begin anywhere.
TEST_F(LinearTest, TakesRowsOutOfWiderOnes) {
  for (const std::int64_t tokens : {3, 40}) {
    constexpr std::int64_t kOutputs = 20;
    constexpr std::int64_t kInputs = 64;
    const std::int64_t wide_x = kInputs + 3;
    const std::int64_t wide_out = kOutputs + 5;
    const auto x = rounded(random(tokens * wide_x));
    const auto weight = rounded(random(kOutputs * kInputs));
    std::vector<float> out(static_cast<std::size_t>(tokens * wide_out), 7.0F);
    const auto* half_x = reinterpret_cast<const std::byte*>(x.data());
    linear(
        context_,
        {.x = columns_of(
             tensor_2d(const_cast<std::byte*>(half_x), DType::kBf16, tokens, wide_x), 1, kInputs),
         .weight = bf16_matrix(weight, kOutputs, kInputs),
         .out = columns_of(matrix_of(out.data(), tokens, wide_out), 2, kOutputs)});
    synchronize();
    const auto whole = widened(x);
    const auto wide_weight = widened(weight);
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t o = 0; o < wide_out; ++o) {
        const float got = out[static_cast<std::size_t>(t * wide_out + o)];
        if (o < 2 || o >= 2 + kOutputs) {
          EXPECT_EQ(got, 7.0F) << "written beside its columns";
          continue;
        }
        const auto expected = reference(&whole[static_cast<std::size_t>(t * wide_x + 1)],
                                        &wide_weight[static_cast<std::size_t>((o - 2) * kInputs)],
                                        kInputs);
        EXPECT_NEAR(static_cast<double>(got), expected.value, expected.bound + 0x1p-20);
      }
    }
  }
}

TEST_F(LinearTest, AddsToItsResidualInPlace) {
  const std::vector<float> x{2.0F, 3.0F};
  const std::vector<float> weight{10.0F, 100.0F};
  std::vector<float> out{1.0F};
  linear(context_,
         {.x = matrix_of(x.data(), 1, 2),
          .weight = matrix_of(weight.data(), 1, 2),
          .residual = matrix_of(out.data(), 1, 1),
          .out = matrix_of(out.data(), 1, 1)});
  EXPECT_EQ(out[0], 1.0F) << "computed before the stream was synchronised";
  synchronize();
  EXPECT_EQ(out[0], 321.0F);
}

TEST_F(LinearTest, RefusesShapesThatDoNotFit) {
  const std::vector<float> x(6);
  std::vector<float> out(6);
  EXPECT_DEATH(linear(context_,
                      {.x = matrix_of(x.data(), 2, 3),
                       .weight = matrix_of(x.data(), 3, 2),
                       .out = matrix_of(out.data(), 2, 3)}),
               "CHECK failed");
}

/// The sum over int8 weights as linear.h states it, exactly, and then rounded once.
float int8_sum(const float* x, const std::int8_t* weight, std::int64_t inputs) {
  float largest = 0.0F;
  for (std::int64_t i = 0; i < inputs; ++i) {
    largest = std::max(largest, std::abs(x[i]));
  }
  const int exponent = largest > 0.0F ? std::ilogb(largest) : 0;
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < inputs; ++i) {
    sum += std::lrint(std::ldexp(x[i], 14 - exponent)) * weight[i];
  }
  return std::ldexp(static_cast<float>(sum), exponent - 14);
}

// Exact, so that neither batches nor instruction sets can change a bit.
TEST_F(LinearTest, SumsInt8Exactly) {
  std::vector<Shape> all = shapes();
  all.push_back({33, 160, 1024});
  all.push_back({300, 85, 1100});  // More tokens than a chunk has, more inputs than a panel.
  all.push_back({3, 21, 8300});    // More inputs than 32 bits take at once by lanes,
  all.push_back({2, 17, 65536});   // as many as the tile unit takes,
  all.push_back({2, 5, 65600});    // and more.
  for (const Shape& s : all) {
    auto x = random(s.tokens * s.inputs);
    for (std::size_t i = 0; i < x.size(); i += 7) {
      x[i] *= 1e-3F;  // Not all of about the same size, and tokens neither.
    }
    for (std::int64_t i = 0; i < s.tokens * s.inputs; ++i) {
      x[static_cast<std::size_t>(i)] *= std::exp2(static_cast<float>(i / s.inputs % 5) - 2.0F);
    }
    const auto half_x = rounded(x);
    const auto wide_x = widened(half_x);
    std::vector<std::int8_t> weight(static_cast<std::size_t>(s.outputs * s.inputs));
    for (std::int8_t& value : weight) {
      value = static_cast<std::int8_t>(static_cast<int>(rng_.below(255)) - 127);
    }
    const auto scale = random(s.outputs);
    const auto bias = random(s.outputs);
    const auto residual = random(s.tokens * s.outputs);
    std::vector<float> out(residual.size());
    linear(context_,
           {.x = bf16_matrix(half_x, s.tokens, s.inputs),
            .weight = tensor_2d(
                reinterpret_cast<const std::byte*>(weight.data()), DType::kI8, s.outputs, s.inputs),
            .scale = vector_of(scale.data(), s.outputs),
            .bias = vector_of(bias.data(), s.outputs),
            .residual = matrix_of(residual.data(), s.tokens, s.outputs),
            .out = matrix_of(out.data(), s.tokens, s.outputs)});
    synchronize();
    std::vector<float> expected;
    for (std::int64_t t = 0; t < s.tokens; ++t) {
      for (std::int64_t o = 0; o < s.outputs; ++o) {
        const float sum =
            int8_sum(wide_x.data() + t * s.inputs, weight.data() + o * s.inputs, s.inputs);
        const auto row = static_cast<std::size_t>(o);
        expected.push_back(sum * scale[row] + bias[row] + residual[expected.size()]);
      }
    }
    EXPECT_TRUE(same_bits(out, expected)) << s.tokens << " x " << s.outputs << " x " << s.inputs;
  }
}

TEST_F(LinearTest, Int8SumsAreExactWhereAllNumbersAreTheLargest) {
  constexpr std::int64_t kInputs = 9000;
  constexpr std::int64_t kOutputs = 35;
  constexpr float kLargest = 255.0F / 128.0F;
  for (const std::int64_t tokens : {1, 8, 40}) {
    const auto half_x =
        rounded(std::vector<float>(static_cast<std::size_t>(tokens * kInputs), kLargest));
    for (const int weight : {127, -127}) {
      const std::vector<std::int8_t> weights(static_cast<std::size_t>(kOutputs * kInputs),
                                             static_cast<std::int8_t>(weight));
      const std::vector<float> scale(kOutputs, 1.0F);
      std::vector<float> out(static_cast<std::size_t>(tokens * kOutputs));
      linear(
          context_,
          {.x = bf16_matrix(half_x, tokens, kInputs),
           .weight = tensor_2d(
               reinterpret_cast<const std::byte*>(weights.data()), DType::kI8, kOutputs, kInputs),
           .scale = vector_of(scale.data(), kOutputs),
           .out = matrix_of(out.data(), tokens, kOutputs)});
      synchronize();
      const auto expected =
          static_cast<float>(static_cast<double>(kLargest) * weight * static_cast<double>(kInputs));
      EXPECT_THAT(out, testing::Each(expected)) << tokens << " tokens, weights " << weight;
    }
  }
}

TEST_F(LinearTest, Int8KeepsTokensOfNothingAndWhatIsNotANumber) {
  for (const std::int64_t inputs : {40, 64}) {
    std::vector<float> x(static_cast<std::size_t>(3 * inputs));
    x[static_cast<std::size_t>(inputs)] = std::numeric_limits<float>::quiet_NaN();
    x[static_cast<std::size_t>(2 * inputs)] = std::numeric_limits<float>::infinity();
    const auto half_x = rounded(x);
    const std::vector<std::int8_t> weight(static_cast<std::size_t>(2 * inputs), std::int8_t{3});
    const std::vector<float> scale{1.0F, 0.5F};
    std::vector<float> out(6, 7.0F);
    linear(context_,
           {.x = bf16_matrix(half_x, 3, inputs),
            .weight =
                tensor_2d(reinterpret_cast<const std::byte*>(weight.data()), DType::kI8, 2, inputs),
            .scale = vector_of(scale.data(), 2),
            .out = matrix_of(out.data(), 3, 2)});
    synchronize();
    EXPECT_EQ(out[0], 0.0F);
    EXPECT_EQ(out[1], 0.0F);
    for (std::size_t i = 2; i < out.size(); ++i) {
      EXPECT_FALSE(std::isfinite(out[i]));
    }
  }
}

}  // namespace
}  // namespace heddle::ops
