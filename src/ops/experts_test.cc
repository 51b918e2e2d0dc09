#include "ops/experts.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <vector>

#include "ops/linear.h"
#include "ops/op_test.h"
#include "spec/block_panels.h"

namespace heddle::ops {
namespace {

constexpr std::int64_t kHidden = 48;
constexpr std::int64_t kWidth = 32;
constexpr std::int64_t kExperts = 5;
constexpr std::int64_t kActive = 2;

std::size_t at(std::int64_t row, std::int64_t column, std::int64_t columns) {
  return static_cast<std::size_t>(row * columns + column);
}

class ChooseExpertsTest : public OpTest {
 protected:
  void choose(std::vector<float> logits,
              std::int64_t active,
              bool normalised,
              const std::vector<float>& scale = {}) {
    const auto experts = static_cast<std::int64_t>(logits.size());
    chosen_.assign(static_cast<std::size_t>(active), -1);
    weights_.assign(static_cast<std::size_t>(active), -1);
    choose_experts(
        context_,
        {.logits = matrix_of(logits.data(), 1, experts),
         .normalised = normalised,
         .scale = scale.empty() ? ConstTensorRef{} : vector_of(scale.data(), experts),
         .chosen = tensor_2d(reinterpret_cast<std::byte*>(chosen_.data()), DType::kI32, 1, active),
         .weights = matrix_of(weights_.data(), 1, active)});
    synchronize();
  }
  std::vector<std::int32_t> chosen_{};
  std::vector<float> weights_{};
};

TEST_F(ChooseExpertsTest, TakesTheLargestAndNumbersThemUpwards) {
  choose({1.0F, 3.0F, -2.0F, 2.0F}, 2, false);
  EXPECT_EQ(chosen_, (std::vector<std::int32_t>{1, 3}));
  const double all = std::exp(-2.0) + 1.0 + std::exp(-5.0) + std::exp(-1.0);
  EXPECT_NEAR(weights_[0], 1.0 / all, 1e-6);
  EXPECT_NEAR(weights_[1], std::exp(-1.0) / all, 1e-6);
}

TEST_F(ChooseExpertsTest, NormalisedWeightsAddUpToOne) {
  choose({1.0F, 3.0F, -2.0F, 2.0F}, 2, true);
  EXPECT_NEAR(weights_[0], 1.0 / (1.0 + std::exp(-1.0)), 1e-6);
  EXPECT_NEAR(weights_[0] + weights_[1], 1.0, 1e-6);
}

TEST_F(ChooseExpertsTest, WeightsAreScaledByExpert) {
  if (backend_->kind() != device::Kind::kCpu) {
    GTEST_SKIP() << "scales of experts are for CPUs";
  }
  choose({1.0F, 3.0F, -2.0F, 2.0F}, 2, true, {9.0F, 0.5F, 9.0F, 2.0F});
  EXPECT_EQ(chosen_, (std::vector<std::int32_t>{1, 3}));
  EXPECT_NEAR(weights_[0], 0.5 / (1.0 + std::exp(-1.0)), 1e-6);
  EXPECT_NEAR(weights_[1], 2.0 / (1.0 + std::exp(1.0)), 1e-6);
}

TEST_F(ChooseExpertsTest, OfEqualOnesTheLowerNumberIsTaken) {
  choose({0.0F, 1.0F, 1.0F, 1.0F}, 2, true);
  EXPECT_EQ(chosen_, (std::vector<std::int32_t>{1, 2}));
  choose({7.0F, 7.0F, 7.0F}, 3, true);
  EXPECT_EQ(chosen_, (std::vector<std::int32_t>{0, 1, 2}));
}

TEST_F(ChooseExpertsTest, LargeLogitsDoNotOverflowAndWhatIsNoNumberShows) {
  choose({200.0F, 300.0F, -300.0F}, 2, true);
  EXPECT_NEAR(weights_[1], 1.0, 1e-6);
  choose({1.0F, std::numeric_limits<float>::quiet_NaN(), 2.0F}, 2, true);
  EXPECT_EQ(chosen_, (std::vector<std::int32_t>{1, 2}));
  EXPECT_TRUE(std::isnan(weights_[0]) && std::isnan(weights_[1]));
}

/// Some tokens and the weights of experts, as float32.
class ExpertsTest : public OpTest {
 protected:
  explicit ExpertsTest(std::int64_t tokens = 7) : tokens_(tokens) {
    for (std::int64_t t = 0; t < tokens; ++t) {
      const auto first = static_cast<std::int32_t>(rng_.below(kExperts - 2));  // Never the last.
      chosen_.push_back(first);
      chosen_.push_back(first + 1);
    }
  }

  void SetUp() override {
    if (backend_->kind() != device::Kind::kCpu) {
      GTEST_SKIP() << "experts in float32 are for CPUs";
    }
  }

  /// What `tokens` of them, from `first` on, get, added to `out`.
  std::vector<float> run(std::int64_t first, std::int64_t tokens, bool residual) {
    const auto bias = [](const std::vector<float>& numbers) {
      return numbers.empty() ? ConstTensorRef{} : vector_of(numbers.data(), std::ssize(numbers));
    };
    std::vector<float> rows(at(tokens, 0, kHidden));
    std::vector<float> in(at(tokens, 0, 2 * kWidth));
    std::vector<float> gated(at(tokens, 0, kWidth));
    std::vector<float> product(at(tokens, 0, kHidden));
    std::vector<float> out(hidden_.begin() + first * kHidden,
                           hidden_.begin() + (first + tokens) * kHidden);
    const auto out_rows = matrix_of(out.data(), tokens, kHidden);
    experts(context_,
            {.x = matrix_of(x_.data() + first * kHidden, tokens, kHidden),
             .chosen = tensor_2d(reinterpret_cast<std::byte*>(chosen_.data() + first * kActive),
                                 DType::kI32,
                                 tokens,
                                 kActive),
             .weights = matrix_of(weights_.data() + first * kActive, tokens, kActive),
             .gate_up = matrix_of(gate_up_.data(), kExperts * 2 * kWidth, kHidden),
             .down = matrix_of(down_.data(), kExperts * kHidden, kWidth),
             .gate_up_bias = bias(gate_up_bias_),
             .down_bias = bias(down_bias_),
             .gelu = gelu_,
             .limit = limit_,
             .gain = gain_,
             .residual = residual ? ConstTensorRef(out_rows) : ConstTensorRef{},
             .rows = matrix_of(rows.data(), tokens, kHidden),
             .in = matrix_of(in.data(), tokens, 2 * kWidth),
             .gated = matrix_of(gated.data(), tokens, kWidth),
             .product = matrix_of(product.data(), tokens, kHidden),
             .out = out_rows});
    synchronize();
    return out;
  }

  /// The same in double.
  double expected(std::int64_t token, std::int64_t column) const {
    double sum = 0;
    for (std::int64_t k = 0; k < kActive; ++k) {
      const std::int64_t expert = chosen_[at(token, k, kActive)];
      double gives = 0;
      for (std::int64_t i = 0; i < kWidth; ++i) {
        double gate = 0;
        double up = 0;
        for (std::int64_t c = 0; c < kHidden; ++c) {
          const double x = x_[at(token, c, kHidden)];
          gate += x * gate_up_[at(expert * 2 * kWidth + i, c, kHidden)];
          up += x * gate_up_[at(expert * 2 * kWidth + kWidth + i, c, kHidden)];
        }
        gives += gated(gate + bias_of(gate_up_bias_, expert * 2 * kWidth + i),
                       up + bias_of(gate_up_bias_, (expert * 2 + 1) * kWidth + i)) *
                 down_[at(expert * kHidden + column, i, kWidth)];
      }
      gives += bias_of(down_bias_, expert * kHidden + column);
      sum += weights_[at(token, k, kActive)] * gives;
    }
    return sum;
  }

  static double bias_of(const std::vector<float>& biases, std::int64_t row) {
    return biases.empty() ? 0.0 : static_cast<double>(biases[static_cast<std::size_t>(row)]);
  }
  [[nodiscard]] double gated(double gate, double up) const {
    if (gelu_) {
      const double inner = std::sqrt(2 / std::numbers::pi) * (gate + 0.044715 * gate * gate * gate);
      return gate / 2 * (1 + std::tanh(inner)) * up;
    }
    if (limit_ == 0) {
      return gate / (1 + std::exp(-gate)) * up;
    }
    const double most = limit_;
    gate = std::min(gate, most);
    return gate / (1 + std::exp(-gain_ * gate)) * (std::clamp(up, -most, most) + 1);
  }

  std::int64_t tokens_;
  std::vector<float> gate_up_bias_{};  ///< None, as the next.
  std::vector<float> down_bias_{};
  bool gelu_ = false;
  float limit_ = 0.0F;
  float gain_ = 1.0F;
  std::vector<std::int32_t> chosen_{};
  std::vector<float> x_ = random(tokens_ * kHidden);
  std::vector<float> hidden_ = random(tokens_ * kHidden);
  std::vector<float> weights_ = random(tokens_ * kActive);
  std::vector<float> gate_up_ = random(kExperts * 2 * kWidth * kHidden, 0.2F);
  std::vector<float> down_ = random(kExperts * kHidden * kWidth, 0.2F);
};

TEST_F(ExpertsTest, AgreesWithDouble) {
  for (const bool residual : {false, true}) {
    const std::vector<float> out = run(0, tokens_, residual);
    for (std::int64_t token = 0; token < tokens_; ++token) {
      for (std::int64_t column = 0; column < kHidden; ++column) {
        const double before = residual ? hidden_[at(token, column, kHidden)] : 0.0F;
        EXPECT_NEAR(out[at(token, column, kHidden)], before + expected(token, column), 2e-5);
      }
    }
  }
}

TEST_F(ExpertsTest, WithBiasesAndALimitAgreesWithDouble) {
  gate_up_bias_ = random(kExperts * 2 * kWidth);
  down_bias_ = random(kExperts * kHidden);
  limit_ = 1.25F;
  gain_ = 1.7F;
  const std::vector<float> out = run(0, tokens_, false);
  for (std::int64_t token = 0; token < tokens_; ++token) {
    for (std::int64_t column = 0; column < kHidden; ++column) {
      EXPECT_NEAR(out[at(token, column, kHidden)], expected(token, column), 2e-5);
    }
  }
}

TEST_F(ExpertsTest, WithGeluAgreesWithDouble) {
  gelu_ = true;
  const std::vector<float> out = run(0, tokens_, false);
  for (std::int64_t token = 0; token < tokens_; ++token) {
    for (std::int64_t column = 0; column < kHidden; ++column) {
      EXPECT_NEAR(out[at(token, column, kHidden)], expected(token, column), 2e-5);
    }
  }
}

TEST_F(ExpertsTest, ATokensBitsDoNotDependOnTheOthers) {
  const std::vector<float> together = run(0, tokens_, true);
  for (std::int64_t token = 0; token < tokens_; ++token) {
    const std::vector<float> alone = run(token, 1, true);
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.begin() + token * kHidden))
        << token;
  }
}

TEST_F(ExpertsTest, ExpertsThatNobodyChoseAreNotRead) {
  const std::vector<float> before = run(0, tokens_, true);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::fill(gate_up_.end() - 2 * kWidth * kHidden, gate_up_.end(), nan);
  std::fill(down_.end() - kHidden * kWidth, down_.end(), nan);
  EXPECT_EQ(run(0, tokens_, true), before);
}

TEST_F(ExpertsTest, NoTokensAreNoWork) {
  EXPECT_TRUE(run(0, 0, true).empty());
}

/// Experts whose matrices are blocks, each of its own type where gates and ups are apart.
class BlockExpertsTest : public OpTest {
 protected:
  static constexpr std::int64_t kIn = 64;  // Hidden.
  static constexpr std::int64_t kBetween = 32;

  /// Random blocks of `rows` rows, in panels; what they stand for goes to `decoded`.
  std::vector<std::byte> blocks(DType dtype,
                                std::int64_t rows,
                                std::int64_t columns,
                                std::vector<float>& decoded) {
    const auto bytes = static_cast<std::size_t>(spec::row_bytes(dtype, columns));
    const auto block = static_cast<std::size_t>(spec::block_size(dtype).bytes);
    std::vector<std::byte> panels(spec::matrix_bytes(dtype, rows, columns));
    decoded.resize(static_cast<std::size_t>(rows * columns));
    for (std::int64_t row = 0; row < rows; row += spec::kPanelRows) {
      std::vector<std::byte> file(bytes * spec::kPanelRows);
      for (std::byte& byte : file) {
        byte = static_cast<std::byte>(rng_.below(256));
      }
      for (std::size_t at = 0; at < file.size(); at += block) {
        const std::uint16_t scale = 0x2400;  // 2^-6.
        std::memcpy(file.data() + at, &scale, sizeof(scale));
      }
      std::vector<const std::byte*> rows_of_panel;
      for (std::size_t r = 0; r < spec::kPanelRows; ++r) {
        rows_of_panel.push_back(file.data() + r * bytes);
      }
      std::byte* const panel = panels.data() + static_cast<std::size_t>(row) * bytes;
      spec::interleave_rows(dtype, rows_of_panel, columns, panel);
      for (std::int64_t r = 0; r < spec::kPanelRows; ++r) {
        spec::read_panel_row(dtype, panel, r, columns, &decoded[at(row + r, 0, columns)]);
      }
    }
    return panels;
  }

  std::vector<std::uint16_t> x_ = rounded(random(3 * kIn));
  std::vector<std::int32_t> chosen_{0, 2, 1, 2, 0, 1};
  std::vector<float> weights_ = random(6);
};

TEST_F(BlockExpertsTest, GiveWhatTheirNumbersGive) {
  constexpr std::int64_t kTokens = 3;
  constexpr std::int64_t kCount = 4;
  std::vector<float> gates;
  std::vector<float> ups;
  std::vector<float> downs;
  const auto gate = blocks(DType::kQ80, kCount * kBetween, kIn, gates);
  const auto up = blocks(DType::kQ40, kCount * kBetween, kIn, ups);
  const auto down = blocks(DType::kQ50, kCount * kIn, kBetween, downs);
  std::vector<std::uint16_t> rows(kTokens * kIn);
  std::vector<float> in(kTokens * 2 * kBetween);
  std::vector<std::uint16_t> gated(kTokens * kBetween);
  std::vector<float> product(kTokens * kIn);
  std::vector<float> out(kTokens * kIn);
  const auto half = [](std::vector<std::uint16_t>& numbers, std::int64_t columns) {
    return tensor_2d(reinterpret_cast<std::byte*>(numbers.data()), DType::kBf16, kTokens, columns);
  };
  experts(context_,
          {.x = half(x_, kIn),
           .chosen = tensor_2d(
               reinterpret_cast<std::byte*>(chosen_.data()), DType::kI32, kTokens, kActive),
           .weights = matrix_of(weights_.data(), kTokens, kActive),
           .gate_up = tensor_2d(gate.data(), DType::kQ80, kCount * kBetween, kIn),
           .up = tensor_2d(up.data(), DType::kQ40, kCount * kBetween, kIn),
           .down = tensor_2d(down.data(), DType::kQ50, kCount * kIn, kBetween),
           .rows = half(rows, kIn),
           .in = matrix_of(in.data(), kTokens, 2 * kBetween),
           .gated = half(gated, kBetween),
           .product = matrix_of(product.data(), kTokens, kIn),
           .out = matrix_of(out.data(), kTokens, kIn)});
  synchronize();
  const std::vector<float> x = widened(x_);
  for (std::int64_t token = 0; token < kTokens; ++token) {
    for (std::int64_t column = 0; column < kIn; ++column) {
      double sum = 0;
      double most = 0;
      for (std::int64_t k = 0; k < kActive; ++k) {
        const std::int64_t expert = chosen_[at(token, k, kActive)];
        for (std::int64_t i = 0; i < kBetween; ++i) {
          double g = 0;
          double u = 0;
          for (std::int64_t c = 0; c < kIn; ++c) {
            g += static_cast<double>(x[at(token, c, kIn)] *
                                     gates[at(expert * kBetween + i, c, kIn)]);
            u += static_cast<double>(x[at(token, c, kIn)] * ups[at(expert * kBetween + i, c, kIn)]);
          }
          const double term = g / (1 + std::exp(-g)) * u *
                              static_cast<double>(weights_[at(token, k, kActive)] *
                                                  downs[at(expert * kIn + column, i, kBetween)]);
          sum += term;
          most += std::abs(term);
        }
      }
      EXPECT_NEAR(out[at(token, column, kIn)], sum, 0.03 * most) << token << " " << column;
    }
  }
}

class ShareRowsTest : public OpTest {};

TEST_F(ShareRowsTest, ScalesEachRowByTheSigmoidOfItsGate) {
  std::vector<float> gate{0.0F, 2.0F, -100.0F};
  std::vector<float> rows = random(3 * 5);
  const std::vector<float> before = rows;
  share_rows(context_,
             {.gate = matrix_of(gate.data(), 3, 1), .rows = matrix_of(rows.data(), 3, 5)});
  synchronize();
  for (std::int64_t t = 0; t < 3; ++t) {
    for (std::int64_t i = 0; i < 5; ++i) {
      const double share = 1 / (1 + std::exp(-gate[static_cast<std::size_t>(t)]));
      EXPECT_NEAR(rows[at(t, i, 5)], before[at(t, i, 5)] * share, 1e-6);
    }
  }
}

}  // namespace
}  // namespace heddle::ops
