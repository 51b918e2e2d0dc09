// Experts in bfloat16 and in blocks, of few and of many tokens.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "ops/experts.h"
#include "ops/op_test.h"
#include "spec/block_panels.h"

namespace heddle::ops {
namespace {

/// Matrices of experts, one below the other: as an image has them, and as numbers.
struct ExpertMatrix {
  DType dtype = DType::kBf16;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<std::byte> bytes{};
  std::vector<float> numbers{};
  [[nodiscard]] ConstTensorRef tensor() const {
    return tensor_2d(bytes.data(), dtype, rows, columns);
  }
};

struct Shape {
  std::int64_t experts = 0;
  std::int64_t active = 0;
  std::int64_t hidden = 0;
  std::int64_t width = 0;
};

std::size_t place(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

class GroupedExpertsTest : public OpTest {
 protected:
  ExpertMatrix matrix(DType dtype, std::int64_t rows, std::int64_t columns) {
    ExpertMatrix m{.dtype = dtype, .rows = rows, .columns = columns};
    m.numbers.resize(place(rows * columns));
    m.bytes.resize(static_cast<std::size_t>(spec::matrix_bytes(dtype, rows, columns)));
    if (!spec::is_blocks(dtype)) {
      const auto half = rounded(random(rows * columns, 0.2F));
      std::memcpy(m.bytes.data(), half.data(), m.bytes.size());
      m.numbers = widened(half);
      return m;
    }
    const auto bytes = place(spec::row_bytes(dtype, columns));
    std::vector<std::byte> file(m.bytes.size());
    for (std::byte& byte : file) {
      byte = static_cast<std::byte>(rng_.below(256));
    }
    const std::size_t scale_at = dtype == DType::kQ6K ? 208 : 0;
    for (std::size_t at = 0; at < file.size(); at += place(spec::block_size(dtype).bytes)) {
      const std::uint16_t scales[2] = {0x1400, 0x1000};  // 2^-10, 2^-11.
      if (dtype == DType::kMxfp4) {
        file[at] = static_cast<std::byte>(122 + rng_.below(4));  // Powers of two.
        continue;
      }
      std::memcpy(file.data() + at + scale_at, scales, scale_at > 0 ? 2 : 4);
      if (dtype == DType::kQ40 || dtype == DType::kQ80) {
        const std::uint16_t scale = 0x1c00;  // 2^-8.
        std::memcpy(file.data() + at, &scale, 2);
      }
    }
    for (std::int64_t row = 0; row < rows; row += spec::kPanelRows) {
      std::vector<const std::byte*> of_panel;
      for (std::int64_t r = row; r < row + spec::kPanelRows; ++r) {
        of_panel.push_back(file.data() + place(r) * bytes);
      }
      std::byte* const panel = m.bytes.data() + place(row) * bytes;
      spec::interleave_rows(dtype, of_panel, columns, panel);
      for (std::int64_t r = 0; r < spec::kPanelRows; ++r) {
        spec::read_panel_row(dtype, panel, r, columns, &m.numbers[place((row + r) * columns)]);
      }
    }
    return m;
  }

  /// Gives every token different experts, upwards; never the last.
  void choose(const Shape& shape, std::int64_t tokens) {
    chosen_.clear();
    for (std::int64_t token = 0; token < tokens; ++token) {
      std::vector<std::int32_t> all(place(shape.experts - 1));
      std::iota(all.begin(), all.end(), 0);
      for (std::size_t i = 0; i < place(shape.active); ++i) {
        std::swap(all[i], all[i + rng_.below(all.size() - i)]);
      }
      std::sort(all.begin(), all.begin() + shape.active);
      chosen_.insert(chosen_.end(), all.begin(), all.begin() + shape.active);
    }
    weights_ = random(tokens * shape.active);
    half_x_ = rounded(random(tokens * shape.hidden));
    residual_ = random(tokens * shape.hidden);
  }

  std::vector<float> run(const Shape& shape,
                         const ExpertMatrix& gate_up,
                         const ExpertMatrix* up,
                         const ExpertMatrix& down) {
    const std::int64_t tokens = std::ssize(half_x_) / shape.hidden;
    std::vector<std::uint16_t> rows(half_x_.size());
    std::vector<float> in(place(tokens * 2 * shape.width));
    std::vector<std::uint16_t> gated(place(tokens * shape.width));
    std::vector<float> product(half_x_.size());
    std::vector<float> out(half_x_.size());
    const auto bias = [](const std::vector<float>& numbers) {
      return numbers.empty() ? ConstTensorRef{} : vector_of(numbers.data(), std::ssize(numbers));
    };
    const auto half = [&](std::vector<std::uint16_t>& numbers, std::int64_t columns) {
      return tensor_2d(reinterpret_cast<std::byte*>(numbers.data()), DType::kBf16, tokens, columns);
    };
    experts(context_,
            {.x = half(half_x_, shape.hidden),
             .chosen = tensor_2d(
                 reinterpret_cast<std::byte*>(chosen_.data()), DType::kI32, tokens, shape.active),
             .weights = matrix_of(weights_.data(), tokens, shape.active),
             .gate_up = gate_up.tensor(),
             .up = up != nullptr ? up->tensor() : ConstTensorRef{},
             .down = down.tensor(),
             .gate_up_bias = bias(gate_up_bias_),
             .down_bias = bias(down_bias_),
             .limit = limit_,
             .gain = gain_,
             .residual = matrix_of(std::as_const(residual_).data(), tokens, shape.hidden),
             .rows = half(rows, shape.hidden),
             .in = matrix_of(in.data(), tokens, 2 * shape.width),
             .gated = half(gated, shape.width),
             .product = matrix_of(product.data(), tokens, shape.hidden),
             .out = matrix_of(out.data(), tokens, shape.hidden)});
    synchronize();
    return out;
  }

  /// What a token's gates and ups become for one expert.
  [[nodiscard]] std::vector<double> gated_of(const Shape& shape,
                                             std::int64_t expert,
                                             const float* x,
                                             const float* gates,
                                             const float* ups) const {
    std::vector<double> gated;
    for (std::int64_t i = 0; i < shape.width; ++i) {
      double g = 0;
      double u = 0;
      for (std::int64_t c = 0; c < shape.hidden; ++c) {
        g += static_cast<double>(x[c]) * static_cast<double>(gates[i * shape.hidden + c]);
        u += static_cast<double>(x[c]) * static_cast<double>(ups[i * shape.hidden + c]);
      }
      g += bias_of(gate_up_bias_, expert * 2 * shape.width + i);
      u += bias_of(gate_up_bias_, (expert * 2 + 1) * shape.width + i);
      if (limit_ > 0) {
        const double most = limit_;
        g = std::min(g, most);
        u = std::clamp(u, -most, most) + 1;
        gated.push_back(g / (1 + std::exp(-static_cast<double>(gain_) * g)) * u);
      } else {
        gated.push_back(g / (1 + std::exp(-g)) * u);
      }
    }
    return gated;
  }

  static double bias_of(const std::vector<float>& biases, std::int64_t row) {
    return biases.empty() ? 0.0 : static_cast<double>(biases[place(row)]);
  }

  /// Compares with float64: gates meet two roundings to bfloat16 (of themselves and, on a CPU with
  /// blocks, of what goes in, to eight bits).
  void expect_near(const Shape& shape,
                   const ExpertMatrix& gate_up,
                   const ExpertMatrix* up,
                   const ExpertMatrix& down,
                   const std::vector<float>& out) {
    const bool eight_bits = gives_one_answer() && spec::is_blocks(down.dtype);
    const double rough = eight_bits ? 0.06 : 0x1p-8;
    const std::vector<float> x = widened(half_x_);
    const std::int64_t tokens = std::ssize(x) / shape.hidden;
    const std::int64_t in = up != nullptr ? shape.width : 2 * shape.width;
    const float* const ups =
        up != nullptr ? up->numbers.data() : gate_up.numbers.data() + shape.width * shape.hidden;
    for (std::int64_t token = 0; token < tokens; ++token) {
      std::vector<double> sum(place(shape.hidden));
      std::vector<double> most(sum.size());
      for (std::int64_t k = 0; k < shape.active; ++k) {
        const std::int64_t expert = chosen_[place(token * shape.active + k)];
        const auto weight = static_cast<double>(weights_[place(token * shape.active + k)]);
        const auto gated = gated_of(shape,
                                    expert,
                                    &x[place(token * shape.hidden)],
                                    &gate_up.numbers[place(expert * in * shape.hidden)],
                                    ups + expert * in * shape.hidden);
        for (std::int64_t c = 0; c < shape.hidden; ++c) {
          const float* const row = &down.numbers[place((expert * shape.hidden + c) * shape.width)];
          sum[place(c)] += weight * bias_of(down_bias_, expert * shape.hidden + c);
          for (std::int64_t i = 0; i < shape.width; ++i) {
            const double term = weight * gated[place(i)] * static_cast<double>(row[i]);
            sum[place(c)] += term;
            most[place(c)] += std::abs(term);
          }
        }
      }
      for (std::int64_t c = 0; c < shape.hidden; ++c) {
        const std::size_t at = place(token * shape.hidden + c);
        ASSERT_NEAR(static_cast<double>(out[at]),
                    static_cast<double>(residual_[at]) + sum[place(c)],
                    rough * most[place(c)] + 1e-5)
            << spec::dtype_name(down.dtype) << " token " << token << " of " << tokens << ", " << c;
      }
    }
  }

  std::vector<std::int32_t> chosen_{};
  std::vector<float> weights_{};
  std::vector<std::uint16_t> half_x_{};
  std::vector<float> residual_{};
  std::vector<float> gate_up_bias_{};  ///< None, as the next.
  std::vector<float> down_bias_{};
  float limit_ = 0.0F;
  float gain_ = 1.0F;
};

TEST_F(GroupedExpertsTest, GiveWhatTheirNumbersGive) {
  const Shape plain{.experts = 9, .active = 3, .hidden = 72, .width = 40};
  const Shape whole{.experts = 6, .active = 2, .hidden = 256, .width = 256};
  for (const auto& [dtype, shape] : {std::pair(DType::kBf16, plain),
                                     std::pair(DType::kQ40, whole),
                                     std::pair(DType::kQ41, whole),
                                     std::pair(DType::kQ80, whole),
                                     std::pair(DType::kMxfp4, whole),
                                     std::pair(DType::kQ4K, whole),
                                     std::pair(DType::kQ6K, whole)}) {
    const auto gate_up = matrix(dtype, shape.experts * 2 * shape.width, shape.hidden);
    const auto down = matrix(dtype, shape.experts * shape.hidden, shape.width);
    for (const std::int64_t tokens : {1, 2, 8, 9, 33, 70}) {
      choose(shape, tokens);
      expect_near(shape, gate_up, nullptr, down, run(shape, gate_up, nullptr, down));
    }
  }
}

TEST_F(GroupedExpertsTest, TakeGatesAndUpsThatAreApart) {
  const Shape shape{.experts = 5, .active = 2, .hidden = 256, .width = 64};
  const auto gate = matrix(DType::kQ4K, shape.experts * shape.width, shape.hidden);
  const auto up = matrix(DType::kQ80, shape.experts * shape.width, shape.hidden);
  const auto down = matrix(DType::kQ40, shape.experts * shape.hidden, shape.width);
  for (const std::int64_t tokens : {1, 12, 40}) {
    choose(shape, tokens);
    expect_near(shape, gate, &up, down, run(shape, gate, &up, down));
  }
}

TEST_F(GroupedExpertsTest, AddBiasesAndKeepGatesAndUpsWithinALimit) {
  const Shape shape{.experts = 5, .active = 2, .hidden = 256, .width = 64};
  gate_up_bias_ = random(shape.experts * 2 * shape.width, 2.0F);
  down_bias_ = random(shape.experts * shape.hidden);
  limit_ = 1.25F;
  gain_ = 1.7F;
  const auto gate_up = matrix(DType::kMxfp4, shape.experts * 2 * shape.width, shape.hidden);
  const auto gate = matrix(DType::kBf16, shape.experts * shape.width, shape.hidden);
  const auto up = matrix(DType::kBf16, shape.experts * shape.width, shape.hidden);
  const auto down = matrix(DType::kMxfp4, shape.experts * shape.hidden, shape.width);
  const auto plain_down = matrix(DType::kBf16, shape.experts * shape.hidden, shape.width);
  for (const std::int64_t tokens : {1, 12, 40}) {
    choose(shape, tokens);
    expect_near(shape, gate_up, nullptr, down, run(shape, gate_up, nullptr, down));
    expect_near(shape, gate, &up, plain_down, run(shape, gate, &up, plain_down));
  }
}

TEST_F(GroupedExpertsTest, TokensThatAllTakeTheSameExpertsFillSeveralTiles) {
  const Shape shape{.experts = 3, .active = 2, .hidden = 64, .width = 32};
  const auto gate_up = matrix(DType::kBf16, shape.experts * 2 * shape.width, shape.hidden);
  const auto down = matrix(DType::kBf16, shape.experts * shape.hidden, shape.width);
  choose(shape, 150);
  expect_near(shape, gate_up, nullptr, down, run(shape, gate_up, nullptr, down));
}

TEST_F(GroupedExpertsTest, AgainGiveTheSameBitsAndReadNoOthersWeights) {
  const Shape shape{.experts = 9, .active = 3, .hidden = 72, .width = 40};
  auto gate_up = matrix(DType::kBf16, shape.experts * 2 * shape.width, shape.hidden);
  auto down = matrix(DType::kBf16, shape.experts * shape.hidden, shape.width);
  for (const std::int64_t tokens : {5, 70}) {
    choose(shape, tokens);
    const auto before = run(shape, gate_up, nullptr, down);
    std::fill(gate_up.bytes.end() - 2 * shape.width * shape.hidden * 2,
              gate_up.bytes.end(),
              std::byte{0xff});
    std::fill(down.bytes.end() - shape.hidden * shape.width * 2, down.bytes.end(), std::byte{0xff});
    EXPECT_TRUE(same_bits(run(shape, gate_up, nullptr, down), before)) << tokens;
  }
}

TEST_F(GroupedExpertsTest, RoutersOfManyExpertsChooseTheLargest) {
  constexpr std::int64_t kTokens = 11;
  for (const auto& [count, active] : {std::pair<std::int64_t, std::int64_t>(128, 8),
                                      std::pair<std::int64_t, std::int64_t>(60, 4),
                                      std::pair<std::int64_t, std::int64_t>(32, 32)}) {
    std::vector<float> logits = random(kTokens * count);
    std::vector<std::int32_t> chosen(place(kTokens * active), -1);
    std::vector<float> weights(chosen.size());
    choose_experts(context_,
                   {.logits = matrix_of(logits.data(), kTokens, count),
                    .normalised = false,
                    .chosen = tensor_2d(
                        reinterpret_cast<std::byte*>(chosen.data()), DType::kI32, kTokens, active),
                    .weights = matrix_of(weights.data(), kTokens, active)});
    synchronize();
    for (std::int64_t token = 0; token < kTokens; ++token) {
      const auto row = logits.begin() + token * count;
      std::vector<std::int32_t> order(place(count));
      std::iota(order.begin(), order.end(), 0);
      std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
        return row[a] > row[b];
      });
      std::sort(order.begin(), order.begin() + active);
      double all = 0;
      for (std::int64_t i = 0; i < count; ++i) {
        all += std::exp(static_cast<double>(row[i]));
      }
      for (std::int64_t k = 0; k < active; ++k) {
        const std::size_t at = place(token * active + k);
        EXPECT_EQ(chosen[at], order[place(k)]);
        EXPECT_NEAR(weights[at], std::exp(static_cast<double>(row[chosen[at]])) / all, 1e-6);
      }
    }
  }
}

}  // namespace
}  // namespace heddle::ops
