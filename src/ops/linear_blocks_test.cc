// Products with weights in blocks.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/half.h"
#include "ops/fused.h"
#include "ops/gather_rows.h"
#include "ops/linear.h"
#include "ops/op_test.h"
#include "ops/rms_norm.h"
#include "ops/silu_mul.h"
#include "spec/block_panels.h"

namespace heddle::ops {
namespace {

constexpr DType kBlockTypes[] = {DType::kQ80,
                                 DType::kQ40,
                                 DType::kQ41,
                                 DType::kQ50,
                                 DType::kQ51,
                                 DType::kQ4K,
                                 DType::kQ5K,
                                 DType::kQ6K,
                                 DType::kF8,
                                 DType::kMxfp4};

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

/// A matrix of random blocks: as an image has it, and decoded.
struct BlockMatrix {
  DType dtype;
  std::int64_t rows;
  std::int64_t columns;
  std::vector<std::byte> panels{};
  std::vector<float> decoded{};
  std::vector<float> minima{};  ///< What is added to each number of a block.
  [[nodiscard]] ConstTensorRef tensor() const {
    return tensor_2d(panels.data(), dtype, rows, columns);
  }
};

class LinearBlocksTest : public OpTest {
 protected:
  /// Random bits, with float16 scales of 2^-10 to 2^-6 with either sign; of FP8 with float32 ones
  /// and no NaN.
  BlockMatrix make(DType dtype, std::int64_t rows, std::int64_t columns) {
    BlockMatrix m{.dtype = dtype, .rows = rows, .columns = columns};
    const auto row_bytes = at(spec::row_bytes(dtype, columns));
    const auto block_bytes = at(spec::block_size(dtype).bytes);
    std::vector<std::byte> file(at(rows) * row_bytes);
    for (std::byte& byte : file) {
      byte = static_cast<std::byte>(rng_.below(256));
      if (dtype == DType::kF8 && (byte & std::byte{0x7F}) == std::byte{0x7F}) {
        byte = std::byte{0x80};
      }
    }
    for (std::size_t block = 0; dtype == DType::kF8 && block < file.size(); block += block_bytes) {
      const float scale =
          static_cast<float>(1 + rng_.below(4095)) * (rng_.below(2) ? 1e-6F : -1e-6F);
      std::memcpy(file.data() + block, &scale, sizeof(scale));
    }
    const std::size_t scale_at = dtype == DType::kQ6K ? 208 : 0;
    const bool minimum = dtype == DType::kQ41 || dtype == DType::kQ51 || dtype == DType::kQ4K ||
                         dtype == DType::kQ5K;
    for (std::size_t block = 0; dtype != DType::kF8 && block < file.size(); block += block_bytes) {
      if (dtype == DType::kMxfp4) {  // A power of two in a byte.
        file[block] = static_cast<std::byte>(118 + rng_.below(4));
        continue;
      }
      for (std::size_t i = 0; i < (minimum ? 2U : 1U); ++i) {
        const auto half = static_cast<std::uint16_t>((5 + rng_.below(4)) << 10U | rng_.below(1024) |
                                                     rng_.below(2) << 15U);
        std::memcpy(file.data() + block + scale_at + 2 * i, &half, sizeof(half));
      }
    }
    m.panels.resize(at(static_cast<std::int64_t>(spec::matrix_bytes(dtype, rows, columns))));
    m.decoded = decode(dtype, rows, columns, file, m.panels.data());
    // Numbers of 0 leave the minima.
    std::vector<std::byte> emptied = file;
    const std::size_t head = dtype == DType::kQ4K || dtype == DType::kQ5K ? 16 : 4;
    for (std::size_t block = 0; minimum && block < file.size(); block += block_bytes) {
      std::fill_n(emptied.begin() + static_cast<std::ptrdiff_t>(block + head),
                  block_bytes - head,
                  std::byte{});
    }
    std::vector<std::byte> panels(m.panels.size());
    m.minima = minimum ? decode(dtype, rows, columns, emptied, panels.data())
                       : std::vector<float>(m.decoded.size());
    return m;
  }

  /// Makes panels of a file's blocks, and numbers of the panels.
  static std::vector<float> decode(DType dtype,
                                   std::int64_t rows,
                                   std::int64_t columns,
                                   const std::vector<std::byte>& file,
                                   std::byte* panels) {
    const auto row_bytes = at(spec::row_bytes(dtype, columns));
    std::vector<float> decoded(at(rows * columns));
    for (std::int64_t row = 0; row < rows; row += spec::kPanelRows) {
      std::vector<const std::byte*> from;
      for (std::int64_t r = row; r < std::min(row + spec::kPanelRows, rows); ++r) {
        from.push_back(file.data() + at(r) * row_bytes);
      }
      std::byte* const panel = panels + at(row) * row_bytes;
      spec::interleave_rows(dtype, from, columns, panel);
      for (std::int64_t r = 0; r < std::ssize(from); ++r) {
        spec::read_panel_row(dtype, panel, r, columns, &decoded[at((row + r) * columns)]);
      }
    }
    return decoded;
  }

  std::vector<float> product(const BlockMatrix& m,
                             const std::uint16_t* x,
                             std::int64_t tokens,
                             const std::vector<float>& bias = {}) {
    std::vector<float> out(at(tokens * m.rows));
    linear(context_,
           {.x = tensor_2d(reinterpret_cast<const std::byte*>(x), DType::kBf16, tokens, m.columns),
            .weight = m.tensor(),
            .bias = bias.empty() ? ConstTensorRef{} : vector_of(bias.data(), m.rows),
            .out = matrix_of(out.data(), tokens, m.rows)});
    synchronize();
    return out;
  }
};

/// A product in float64, and how far from it linear.h lets one be.
struct Expected {
  double value = 0.0;
  double bound = 0.0;
};

Expected expected_of(const float* x, const float* w, std::int64_t inputs) {
  Expected e;
  double products = 0.0;  // As large as those of integers can be, with their minima.
  for (std::int64_t begin = 0; begin < inputs; begin += 32) {
    double largest = 0.0;
    double sum = 0.0;
    double most = 0.0;
    for (std::int64_t i = begin; i < begin + 32; ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(x[i])));
      sum += std::abs(static_cast<double>(w[i]));
      most = std::max(most, std::abs(static_cast<double>(w[i])));
      e.value += static_cast<double>(x[i]) * static_cast<double>(w[i]);
    }
    e.bound += largest / 127.0 / 2.0 * (1.0 + 0x1p-14) * sum;
    // |d v| and |m| are each at most 64 times the largest weight of a block that has one at all;
    // random blocks have.
    products += 32.0 * largest * 64.0 * most;
  }
  // Two more: the weights are decoded ones, which have been rounded.
  e.bound += (static_cast<double>(inputs) / 16.0 + 6.0) * 0x1p-24 * products;
  return e;
}

/// The same on CUDA, where numbers of a token are not rounded. With `unpacked`, weights are.
Expected cuda_expected_of(
    const float* x, const float* w, const float* minima, std::int64_t inputs, bool unpacked) {
  Expected e;
  for (std::int64_t i = 0; i < inputs; ++i) {
    const double each = static_cast<double>(x[i]) * static_cast<double>(w[i]);
    const double minimum = static_cast<double>(x[i]) * static_cast<double>(minima[i]);
    e.value += each;
    // The weights are decoded ones, which have been rounded.
    e.bound += (static_cast<double>(inputs) + 2.0) * 0x1p-24 *
               (std::abs(each - minimum) + std::abs(minimum));
    e.bound += unpacked ? 0x1p-8 * std::abs(each) : 0.0;
  }
  return e;
}

/// What a product with `m` is to be, of so many tokens.
class Wanted {
 public:
  Wanted(const BlockMatrix& m, std::int64_t tokens, bool cpu)
      : matrix_(m),
        rounds_tokens_(cpu && m.dtype != DType::kF8),
        unpacked_(cpu || tokens > unpacked_tokens()) {}

  [[nodiscard]] Expected operator()(const float* token, std::int64_t output) const {
    const float* const weight = &matrix_.decoded[at(output * matrix_.columns)];
    const float* const minima = &matrix_.minima[at(output * matrix_.columns)];
    return rounds_tokens_ ? expected_of(token, weight, matrix_.columns)
                          : cuda_expected_of(token, weight, minima, matrix_.columns, unpacked_);
  }

 private:
  const BlockMatrix& matrix_;
  bool rounds_tokens_;
  bool unpacked_;
};

TEST_F(LinearBlocksTest, AgreesWithDoubleOverTheDecodedBlocks) {
  for (const DType dtype : kBlockTypes) {
    for (const std::int64_t tokens : {1, 2, 5, 16, 17, 40, 90, 150}) {
      const BlockMatrix m = make(dtype, tokens == 5 ? 37 : 64, tokens == 17 ? 1024 : 256);
      const auto half = rounded(random(tokens * m.columns));
      const auto x = widened(half);
      const auto bias = random(m.rows);
      const auto out = product(m, half.data(), tokens, bias);
      const Wanted wanted(m, tokens, gives_one_answer());
      for (std::int64_t t = 0; t < tokens; ++t) {
        for (std::int64_t o = 0; o < m.rows; ++o) {
          const Expected e = wanted(&x[at(t * m.columns)], o);
          ASSERT_NEAR(static_cast<double>(out[at(t * m.rows + o)]),
                      e.value + static_cast<double>(bias[at(o)]),
                      e.bound + 1e-7)
              << spec::dtype_name(dtype) << " token " << t << " of " << tokens << ", row " << o;
        }
      }
    }
  }
}

// With inputs that are whole multiples of their step nothing is rounded but sums.
TEST_F(LinearBlocksTest, IsNearlyExactForInputsOfEightBits) {
  for (const DType dtype : kBlockTypes) {
    constexpr std::int64_t kTokens = 3;
    const BlockMatrix m = make(dtype, 48, 512);
    std::vector<float> x(at(kTokens * m.columns));
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = i % 32 == 7 ? 127.0F : static_cast<float>(rng_.below(255)) - 127.0F;
    }
    const auto out = product(m, rounded(x).data(), kTokens);
    for (std::int64_t t = 0; t < kTokens; ++t) {
      for (std::int64_t o = 0; o < m.rows; ++o) {
        double value = 0.0;
        double sum = 0.0;
        for (std::int64_t i = 0; i < m.columns; ++i) {
          const double each = static_cast<double>(x[at(t * m.columns + i)]) *
                              static_cast<double>(m.decoded[at(o * m.columns + i)]);
          value += each;
          sum += std::abs(each);
        }
        const bool rounded_weights = dtype == DType::kF8 && gives_one_answer();
        EXPECT_NEAR(static_cast<double>(out[at(t * m.rows + o)]),
                    value,
                    (rounded_weights ? 0x1p-9 : 4e-6) * sum)
            << spec::dtype_name(dtype) << " token " << t << ", row " << o;
      }
    }
  }
}

// On CPUs, to the bit: whoever knows a model by its answers in bfloat16 gets the same.
TEST_F(LinearBlocksTest, Fp8GivesWhatItsNumbersGiveInBfloat16) {
  for (const std::int64_t tokens : {1, 3, 33, 70}) {
    const BlockMatrix m = make(DType::kF8, 101, 640);
    const auto x = rounded(random(tokens * m.columns));
    const auto rows = rounded(m.decoded);
    std::vector<float> wanted(at(tokens * m.rows));
    linear(context_,
           {.x = bf16_matrix(x, tokens, m.columns),
            .weight = bf16_matrix(rows, m.rows, m.columns),
            .out = matrix_of(wanted.data(), tokens, m.rows)});
    synchronize();
    const auto out = product(m, x.data(), tokens);
    BlockMatrix both = m;  // Of few tokens, and on CPUs, nothing differs.
    both.dtype = DType::kF8Both;
    EXPECT_TRUE(same_bits(product(both, x.data(), tokens), out)) << tokens;
    if (gives_one_answer()) {
      EXPECT_TRUE(same_bits(out, wanted)) << tokens;
      continue;
    }
    for (std::size_t i = 0; i < out.size(); ++i) {
      EXPECT_NEAR(out[i], wanted[i], 0.05F) << tokens << " at " << i;
    }
  }
}

TEST_F(LinearBlocksTest, GivesATokenTheSameBitsAloneAndInABatch) {
  if (!gives_one_answer()) {
    GTEST_SKIP() << "how sums are cut follows shapes here";
  }
  for (const DType dtype : kBlockTypes) {
    constexpr std::int64_t kTokens = 70;
    const BlockMatrix m = make(dtype, 53, 1280);
    const auto x = rounded(random(kTokens * m.columns));
    const auto together = product(m, x.data(), kTokens);
    std::vector<float> alone;
    std::vector<float> some;
    for (std::int64_t t = 0; t < kTokens; ++t) {
      const auto one = product(m, x.data() + t * m.columns, 1);
      alone.insert(alone.end(), one.begin(), one.end());
    }
    for (std::int64_t t = 0; t < kTokens; t += 7) {
      const auto seven = product(m, x.data() + t * m.columns, 7);
      some.insert(some.end(), seven.begin(), seven.end());
    }
    EXPECT_TRUE(same_bits(together, alone)) << spec::dtype_name(dtype);
    EXPECT_TRUE(same_bits(together, some)) << spec::dtype_name(dtype);
  }
}

TEST_F(LinearBlocksTest, GivesNothingOfWhatIsNotFinite) {
  for (const DType dtype : kBlockTypes) {
    for (const float bad : {INFINITY, -INFINITY, NAN}) {
      const BlockMatrix m = make(dtype, 16, 256);
      auto x = random(2 * m.columns);
      x[99] = bad;
      const auto out = product(m, rounded(x).data(), 2);
      for (std::int64_t o = 0; o < m.rows; ++o) {
        EXPECT_FALSE(std::isfinite(out[at(o)]));
        EXPECT_TRUE(std::isfinite(out[at(m.rows + o)]));
      }
    }
  }
}

TEST_F(LinearBlocksTest, TakesZerosAndWhatIsTooSmallForZero) {
  const BlockMatrix m = make(DType::kQ4K, 16, 256);
  std::vector<float> x(at(2 * m.columns), 0.0F);
  std::fill(x.begin() + m.columns, x.end(), 1e-31F);
  for (const float value : product(m, rounded(x).data(), 2)) {
    EXPECT_NEAR(value, 0.0F, gives_one_answer() ? 0.0F : 1e-26F);
  }
}

// Rows of tokens and of results with gaps, at odd places; bias and residual; an odd number of
// panels, the last of which is not whole.
TEST_F(LinearBlocksTest, TakesRowsThatLieAnywhere) {
  for (const DType dtype : kBlockTypes) {
    for (const std::int64_t tokens : {3, 21, 70}) {
      const BlockMatrix m = make(dtype, 41, 256);
      const std::int64_t pitch = m.columns + 3;
      const auto half = rounded(random(tokens * pitch + 1));
      const auto x = widened(half);
      const auto bias = random(m.rows);
      const auto residual = random(tokens * m.rows);
      std::vector<float> out(at(tokens * (m.rows + 2)), 7.0F);
      LinearArgs args{
          .x = tensor_2d(
              reinterpret_cast<const std::byte*>(half.data() + 1), DType::kBf16, tokens, m.columns),
          .weight = m.tensor(),
          .bias = vector_of(bias.data(), m.rows),
          .residual = matrix_of(residual.data(), tokens, m.rows),
          .out = matrix_of(out.data(), tokens, m.rows)};
      args.x.stride[0] = pitch;
      args.out.stride[0] = m.rows + 2;
      linear(context_, args);
      synchronize();
      const Wanted wanted(m, tokens, gives_one_answer());
      for (std::int64_t t = 0; t < tokens; ++t) {
        for (std::int64_t o = 0; o < m.rows; ++o) {
          const Expected e = wanted(&x[at(t * pitch + 1)], o);
          ASSERT_NEAR(static_cast<double>(out[at(t * (m.rows + 2) + o)]),
                      e.value + static_cast<double>(bias[at(o)]) +
                          static_cast<double>(residual[at(t * m.rows + o)]),
                      e.bound + 1e-6)
              << spec::dtype_name(dtype) << " token " << t << " of " << tokens << ", row " << o;
        }
        EXPECT_EQ(out[at(t * (m.rows + 2) + m.rows)], 7.0F);
      }
    }
  }
}

// Gates and ups in one launch or in two, a norm behind a product or in it.
TEST_F(LinearBlocksTest, GivesWithWhatFollowsWhatTheyGiveOneByOne) {
  for (const DType dtype : kBlockTypes) {
    for (const std::int64_t tokens : {1, 2, 8, 9, 33}) {
      const BlockMatrix m = make(dtype, 96, 256);
      const auto half = rounded(random(tokens * m.columns));
      const auto scale = random(m.rows);
      std::vector<float> sums(at(tokens * m.rows));
      std::vector<float> normed(sums.size());
      std::vector<float> gated(sums.size() / 2);
      const LinearArgs product{.x = bf16_matrix(half, tokens, m.columns),
                               .weight = m.tensor(),
                               .out = matrix_of(sums.data(), tokens, m.rows)};
      const RmsNormArgs norm{.x = product.out,
                             .weight = vector_of(scale.data(), m.rows),
                             .out = matrix_of(normed.data(), tokens, m.rows)};
      const TensorRef gates = matrix_of(gated.data(), tokens, m.rows / 2);
      linear(context_, product);
      rms_norm(context_, norm);
      silu_mul(context_, {.gate_up = product.out, .out = gates});
      synchronize();
      const auto one_by_one = sums;
      const auto normed_after = normed;
      const auto gated_after = gated;
      linear_norm(context_, {.linear = product, .norm = norm});
      synchronize();
      EXPECT_TRUE(same_bits(sums, one_by_one)) << spec::dtype_name(dtype) << " " << tokens;
      EXPECT_TRUE(same_bits(normed, normed_after)) << spec::dtype_name(dtype) << " " << tokens;
      linear_silu(context_, {.linear = product, .out = gates});
      synchronize();
      EXPECT_TRUE(same_bits(gated, gated_after)) << spec::dtype_name(dtype) << " " << tokens;
    }
  }
}

TEST_F(LinearBlocksTest, GathersRowsOutOfPanels) {
  for (const DType dtype : kBlockTypes) {
    const BlockMatrix m = make(dtype, 40, 256);
    const std::vector<std::int32_t> rows{7 + 39, 7 + 0, 7 + 17, 3};
    std::vector<float> out(rows.size() * at(m.columns), 7.0F);
    gather_rows(context_,
                {.table = m.tensor(),
                 .rows = vector_of(rows.data(), std::ssize(rows)),
                 .first = 7,
                 .out = matrix_of(out.data(), std::ssize(rows), m.columns)});
    synchronize();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      for (std::int64_t c = 0; c < m.columns; ++c) {
        const float wanted = rows[i] < 7 ? 0.0F : m.decoded[at((rows[i] - 7) * m.columns + c)];
        ASSERT_EQ(out[i * at(m.columns) + at(c)], wanted) << spec::dtype_name(dtype) << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace heddle::ops
