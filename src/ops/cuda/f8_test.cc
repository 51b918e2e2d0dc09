// Products of FP8 with FP8: what they give, and when there are any.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "base/driver_library.h"
#include "base/test_places.h"
#include "ops/cuda/kernels.h"
#include "ops/fused.h"
#include "ops/linear.h"
#include "ops/op_test.h"
#include "spec/block_panels.h"
#include "spec/f8_panels.h"

namespace heddle::ops::cuda {
namespace {

std::size_t place(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

/// A matrix of FP8 whose rows have one scale each, and what its numbers stand for.
struct F8Matrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<std::byte> panels{};
  std::vector<float> decoded{};

  [[nodiscard]] ConstTensorRef tensor(DType dtype) const {
    return tensor_2d(panels.data(), dtype, rows, columns);
  }
};

class F8Test : public OpTest {
 protected:
  F8Matrix make(std::int64_t rows, std::int64_t columns) {
    F8Matrix m{.rows = rows, .columns = columns};
    const std::int64_t row_bytes = spec::row_bytes(DType::kF8Both, columns);
    std::vector<std::byte> file(place(rows * row_bytes));
    for (std::int64_t row = 0; row < rows; ++row) {
      const float scale = static_cast<float>(1 + rng_.below(4095)) * 1e-6F;
      for (std::int64_t block = 0; block < columns / spec::kF8Inputs; ++block) {
        std::byte* const to = file.data() + row * row_bytes + block * spec::kF8Bytes;
        std::memcpy(to, &scale, sizeof(scale));
        for (std::size_t i = 4; i < place(spec::kF8Bytes); ++i) {
          const auto code = static_cast<std::byte>(rng_.below(256));
          to[i] = (code & std::byte{0x7F}) == std::byte{0x7F} ? std::byte{0x81} : code;
        }
      }
    }
    m.panels.resize(spec::matrix_bytes(DType::kF8Both, rows, columns));
    m.decoded.resize(place(rows * columns));
    for (std::int64_t row = 0; row < rows; row += spec::kPanelRows) {
      std::vector<const std::byte*> from;
      for (std::int64_t r = row; r < std::min(row + spec::kPanelRows, rows); ++r) {
        from.push_back(file.data() + r * row_bytes);
      }
      std::byte* const panel = m.panels.data() + row * row_bytes;
      spec::interleave_rows(DType::kF8Both, from, columns, panel);
      for (std::int64_t r = 0; r < std::ssize(from); ++r) {
        spec::read_panel_row(
            DType::kF8Both, panel, r, columns, &m.decoded[place((row + r) * columns)]);
      }
    }
    return m;
  }

  /// Tokens of very different sizes, each of numbers of very different sizes.
  std::vector<std::uint16_t> tokens_of(std::int64_t tokens, std::int64_t columns) {
    std::vector<float> x = random(tokens * columns);
    for (std::int64_t t = 0; t < tokens; ++t) {
      const int own = static_cast<int>(rng_.below(40)) - 20;
      for (std::int64_t i = 0; i < columns; ++i) {
        float& value = x[place(t * columns + i)];
        value = std::ldexp(value, own - static_cast<int>(rng_.below(12)));
      }
    }
    return rounded(x);
  }

  std::vector<float> product(const F8Matrix& m,
                             const std::vector<std::uint16_t>& x,
                             DType dtype = DType::kF8Both) {
    const std::int64_t tokens = std::ssize(x) / m.columns;
    std::vector<float> out(place(tokens * m.rows));
    linear(context_,
           {.x = bf16_matrix(x, tokens, m.columns),
            .weight = m.tensor(dtype),
            .out = matrix_of(out.data(), tokens, m.rows)});
    synchronize();
    return out;
  }

  /// What a product is in float64 and how far from it linear.h lets one be.
  static void expect_near(const F8Matrix& m,
                          const std::vector<std::uint16_t>& half,
                          const std::vector<float>& out) {
    const std::vector<float> x = widened(half);
    for (std::int64_t t = 0; t < std::ssize(x) / m.columns; ++t) {
      const float* const token = &x[place(t * m.columns)];
      double largest = 0.0;
      for (std::int64_t i = 0; i < m.columns; ++i) {
        largest = std::max(largest, std::abs(static_cast<double>(token[i])));
      }
      for (std::int64_t o = 0; o < m.rows; ++o) {
        double value = 0.0;
        double bound = 0.0;
        for (std::int64_t i = 0; i < m.columns; ++i) {
          const auto number = static_cast<double>(token[i]);
          const auto weight = static_cast<double>(m.decoded[place(o * m.columns + i)]);
          value += number * weight;
          bound += std::abs(weight) * std::max(0x1p-4 * std::abs(number), largest / 448 * 0x1p-10);
          bound += 0x1p-12 * std::abs(weight * number);  // How sums are made.
        }
        ASSERT_NEAR(static_cast<double>(out[place(t * m.rows + o)]), value, bound)
            << "token " << t << ", row " << o;
      }
    }
  }
};

TEST_F(F8Test, IsAsNearToFloat64AsEightBitsAllow) {
  // Fewer outputs than a panel, whole panels and a part of one; one block of inputs and several.
  for (const std::int64_t rows : {7, 48, 301}) {
    const F8Matrix m = make(rows, rows == 48 ? 512 : 128);
    const auto x = tokens_of(131, m.columns);
    expect_near(m, x, product(m, x));
  }
}

TEST_F(F8Test, RoundsInputsOfManyTokensAndOfThemAlone) {
  const F8Matrix m = make(32, 256);
  const auto few = tokens_of(unpacked_tokens(), m.columns);
  EXPECT_TRUE(same_bits(product(m, few), product(m, few, DType::kF8)));
  const auto many = tokens_of(unpacked_tokens() + 1, m.columns);
  const auto both = product(m, many);
  EXPECT_FALSE(same_bits(both, product(m, many, DType::kF8)));
  EXPECT_TRUE(same_bits(both, product(m, many))) << "the same again";
}

// Numbers that E4M3 has exactly, with 448 among them, lose nothing.
TEST_F(F8Test, IsExactForInputsThatAreFp8) {
  const F8Matrix m = make(16, 128);
  constexpr std::int64_t kTokens = 140;
  std::vector<float> x(place(kTokens * m.columns));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto code = static_cast<std::uint8_t>(rng_.below(256));
    x[i] = i % 128 == 5 ? -448.0F : spec::f32_of_e4m3((code & 0x7F) == 0x7F ? 0 : code);
  }
  const auto out = product(m, rounded(x));
  for (std::int64_t t = 0; t < kTokens; ++t) {
    for (std::int64_t o = 0; o < m.rows; ++o) {
      double value = 0.0;
      double sum = 0.0;
      for (std::int64_t i = 0; i < m.columns; ++i) {
        const double each = static_cast<double>(x[place(t * m.columns + i)]) *
                            static_cast<double>(m.decoded[place(o * m.columns + i)]);
        value += each;
        sum += std::abs(each);
      }
      ASSERT_NEAR(static_cast<double>(out[place(t * m.rows + o)]), value, 0x1p-12 * sum)
          << "token " << t << ", row " << o;
    }
  }
}

TEST_F(F8Test, ATokenOfZerosIsZeroAndOneThatIsNotFiniteIsNone) {
  const F8Matrix m = make(16, 128);
  auto x = tokens_of(140, m.columns);
  const std::vector<std::uint16_t> ends{to_bf16(INFINITY), to_bf16(-INFINITY), to_bf16(NAN)};
  std::fill_n(x.begin(), m.columns, to_bf16(0.0F));
  std::fill_n(x.begin() + m.columns, m.columns, to_bf16(-1e-31F));
  for (std::size_t i = 0; i < ends.size(); ++i) {
    x[(2 + i) * place(m.columns) + 99] = ends[i];
  }
  const auto out = product(m, x);
  for (std::int64_t o = 0; o < m.rows; ++o) {
    EXPECT_EQ(out[place(o)], 0.0F);
    EXPECT_EQ(out[place(m.rows + o)], 0.0F);
    for (std::int64_t t = 2; t < 5; ++t) {
      EXPECT_FALSE(std::isfinite(out[place(t * m.rows + o)])) << t;
    }
    EXPECT_TRUE(std::isfinite(out[place(5 * m.rows + o)]));
  }
}

// Bias and a residual in place, results in bfloat16, and little scratch, which makes slices.
TEST_F(F8Test, AddsWhatIsToBeAddedInSlicesAsWell) {
  const F8Matrix m = make(530, 128);
  constexpr std::int64_t kTokens = 130;
  const auto x = rounded(random(kTokens * m.columns));
  const auto plain = product(m, x);
  const auto bias = random(m.rows);
  const auto residual = random(kTokens * m.rows);
  for (const bool sliced : {false, true}) {
    std::vector<std::byte> scratch(sliced ? 250000 : 0);
    auto* const aligned = reinterpret_cast<std::byte*>(
        (reinterpret_cast<std::uintptr_t>(scratch.data()) + 255) / 256 * 256);
    stream_.lend_scratch(aligned, sliced ? scratch.size() - 256 : 0);
    std::vector<float> sums = residual;
    std::vector<std::uint16_t> narrow(sums.size());
    linear(context_,
           {.x = bf16_matrix(x, kTokens, m.columns),
            .weight = m.tensor(DType::kF8Both),
            .bias = vector_of(bias.data(), m.rows),
            .residual = matrix_of(sums.data(), kTokens, m.rows),
            .out = matrix_of(sums.data(), kTokens, m.rows)});
    linear(context_,
           {.x = bf16_matrix(x, kTokens, m.columns),
            .weight = m.tensor(DType::kF8Both),
            .out = tensor_2d(
                reinterpret_cast<std::byte*>(narrow.data()), DType::kBf16, kTokens, m.rows)});
    synchronize();
    stream_.lend_scratch(nullptr, 0);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const float added = bias[i % place(m.rows)] + residual[i];
      ASSERT_NEAR(sums[i], plain[i] + added, 1e-3F) << sliced << " at " << i;
      ASSERT_NEAR(from_bf16(narrow[i]), plain[i], 0x1p-8F * std::abs(plain[i]) + 1e-3F)
          << sliced << " at " << i;
    }
  }
}

TEST_F(F8Test, TokensThatBeginAnywhereAreTakenAsTheyAre) {
  const F8Matrix m = make(16, 128);
  constexpr std::int64_t kTokens = 130;
  const auto x = rounded(random(kTokens * (m.columns + 1)));
  const auto given = [&](DType dtype) {
    std::vector<float> out(place(kTokens * m.rows));
    LinearArgs args{.x = bf16_matrix(x, kTokens, m.columns),
                    .weight = m.tensor(dtype),
                    .out = matrix_of(out.data(), kTokens, m.rows)};
    args.x.stride[0] = m.columns + 1;
    linear(context_, args);
    synchronize();
    return out;
  };
  EXPECT_TRUE(same_bits(given(DType::kF8Both), given(DType::kF8)));
}

// Where the library has no such product, inputs are taken as they are.
TEST_F(F8Test, WithoutALibraryItIsTheProductOfPlainInputs) {
  const F8Matrix m = make(32, 128);
  const auto x = tokens_of(140, m.columns);
  // NOLINTBEGIN(concurrency-mt-unsafe)
  const char* named = std::getenv("HEDDLE_CUBLASLT");
  const std::optional<std::string> before =
      named == nullptr ? std::nullopt : std::optional<std::string>(named);
  ::setenv("HEDDLE_CUBLASLT", "none", 1);
  EXPECT_TRUE(same_bits(product(m, x), product(m, x, DType::kF8)));
  if (before) {
    ::setenv("HEDDLE_CUBLASLT", before->c_str(), 1);
  } else {
    ::unsetenv("HEDDLE_CUBLASLT");
  }
  // NOLINTEND(concurrency-mt-unsafe)
}

}  // namespace
}  // namespace heddle::ops::cuda
