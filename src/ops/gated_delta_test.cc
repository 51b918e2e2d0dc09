#include "ops/gated_delta.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "ops/op_test.h"

namespace heddle::ops {
namespace {

using spec::LinearAttention;

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

/// A layer and the inputs of one sequence.
struct DeltaLayer {
  LinearAttention shape{};
  std::int64_t tokens = 0;
  std::vector<float> in{};
  std::vector<float> rates{};
  std::vector<float> conv{};
  std::vector<float> heads{};  ///< A, then dt_bias.
  std::vector<float> norm{};

  [[nodiscard]] std::int64_t width() const { return shape.channels() + shape.values(); }
};

double silu_of(double x) {
  return x / (1.0 + std::exp(-x));
}

/// A channel of a token behind the convolution.
double convolved(const DeltaLayer& layer, std::int64_t t, std::int64_t channel) {
  const std::int64_t kernel = layer.shape.kernel;
  double sum = 0.0;
  for (std::int64_t k = 0; k < kernel; ++k) {
    const std::int64_t from = t - kernel + 1 + k;
    sum += from < 0 ? 0.0
                    : static_cast<double>(layer.conv[at(channel * kernel + k)]) *
                          static_cast<double>(layer.in[at(from * layer.width() + channel)]);
  }
  return silu_of(sum);
}

/// The query or key of a token whose channels begin there, of length 1.
std::vector<double> direction(const DeltaLayer& layer, std::int64_t t, std::int64_t column) {
  std::vector<double> x;
  double squares = 0.0;
  for (std::int64_t i = 0; i < layer.shape.key_dim; ++i) {
    x.push_back(convolved(layer, t, column + i));
    squares += x.back() * x.back();
  }
  for (double& value : x) {
    value /= std::sqrt(squares + 1e-6);
  }
  return x;
}

/// What value head `h` sees at token `t`, by the equation in double; `state` goes on.
std::vector<double> seen_by(const DeltaLayer& layer,
                            std::int64_t h,
                            std::int64_t t,
                            std::vector<double>& state) {
  const LinearAttention& shape = layer.shape;
  const std::int64_t key_head =
      shape.tiled ? h % shape.key_heads : h / (shape.value_heads / shape.key_heads);
  const auto query = direction(layer, t, key_head * shape.key_dim);
  const auto key = direction(layer, t, shape.keys() + key_head * shape.key_dim);
  const float* const rate = layer.rates.data() + t * 2 * shape.value_heads;
  const double beta = 1.0 / (1.0 + std::exp(-static_cast<double>(rate[h])));
  const double step = static_cast<double>(rate[shape.value_heads + h]) +
                      static_cast<double>(layer.heads[at(shape.value_heads + h)]);
  const double alpha =
      std::exp(static_cast<double>(layer.heads[at(h)]) * std::log1p(std::exp(step)));
  std::vector<double> seen(at(shape.value_dim));
  for (std::int64_t j = 0; j < shape.value_dim; ++j) {
    double memory = 0.0;
    for (std::int64_t i = 0; i < shape.key_dim; ++i) {
      memory += alpha * state[at(i * shape.value_dim + j)] * key[at(i)];
    }
    const double value = convolved(layer, t, 2 * shape.keys() + h * shape.value_dim + j);
    for (std::int64_t i = 0; i < shape.key_dim; ++i) {
      double& place = state[at(i * shape.value_dim + j)];
      place = alpha * place + key[at(i)] * beta * (value - memory);
      seen[at(j)] += place * query[at(i)] / std::sqrt(static_cast<double>(shape.key_dim));
    }
  }
  return seen;
}

/// All of a layer, from the beginning of its sequence.
std::vector<double> by_the_equation(const DeltaLayer& layer, double eps) {
  const LinearAttention& shape = layer.shape;
  std::vector<double> out(at(layer.tokens * shape.values()));
  for (std::int64_t h = 0; h < shape.value_heads; ++h) {
    std::vector<double> state(at(shape.key_dim * shape.value_dim));
    for (std::int64_t t = 0; t < layer.tokens; ++t) {
      const std::vector<double> seen = seen_by(layer, h, t, state);
      double squares = 0.0;
      for (const double value : seen) {
        squares += value * value;
      }
      for (std::int64_t j = 0; j < shape.value_dim; ++j) {
        const std::int64_t column = h * shape.value_dim + j;
        const float z = layer.in[at(t * layer.width() + shape.channels() + column)];
        out[at(t * shape.values() + column)] =
            seen[at(j)] / std::sqrt(squares / static_cast<double>(shape.value_dim) + eps) *
            static_cast<double>(layer.norm[at(j)]) * silu_of(static_cast<double>(z));
      }
    }
  }
  return out;
}

class GatedDeltaTest : public OpTest {
 protected:
  DeltaLayer layer(const LinearAttention& shape, std::int64_t tokens) {
    DeltaLayer made{.shape = shape,
                    .tokens = tokens,
                    .in = random(tokens * (shape.channels() + shape.values())),
                    .rates = random(tokens * 2 * shape.value_heads),
                    .conv = random(shape.channels() * shape.kernel, 0.5F),
                    .heads = random(2 * shape.value_heads),
                    .norm = random(shape.value_dim)};
    for (std::int64_t head = 0; head < shape.value_heads; ++head) {
      made.heads[at(head)] = -std::exp(made.heads[at(head)]);
    }
    return made;
  }

  /// What a layer says of itself, whoever runs it.
  static GatedDeltaArgs args_of(const DeltaLayer& layer) {
    const LinearAttention& shape = layer.shape;
    return {.shape = shape,
            .conv = matrix_of(layer.conv.data(), shape.channels(), shape.kernel),
            .fading = vector_of(layer.heads.data(), shape.value_heads),
            .step_bias = vector_of(layer.heads.data() + shape.value_heads, shape.value_heads),
            .norm = vector_of(layer.norm.data(), shape.value_dim),
            .eps = 1e-5F};
  }

  /// Blocks of a sequence: each of `heads_of_block` key heads, behind some bytes of others.
  static constexpr std::int64_t kBefore = 64;

  /// Runs tokens [first, first + count) of a layer over blocks that hold the state, of which each
  /// part has its own, with blocks in the order of `table`. The state behind `copy_behind` tokens,
  /// where that is not 0, goes to the first block of each part.
  std::vector<float> run(const DeltaLayer& layer,
                         std::int64_t first,
                         std::int64_t count,
                         std::vector<std::vector<std::byte>>& blocks,
                         std::int64_t heads_of_block,
                         std::int32_t copy_behind = 0) {
    const std::int64_t parts = std::ssize(blocks);
    const std::vector<std::int32_t> table{1};
    const std::vector<std::int32_t> copies{-1, 0};
    const std::vector<std::int32_t> behind{0, copy_behind};
    const std::vector<std::int32_t> begin{0, static_cast<std::int32_t>(count)};
    const std::vector<std::int32_t> position{static_cast<std::int32_t>(first)};
    const LinearAttention& shape = layer.shape;
    auto rates = std::vector<float>(layer.rates.begin() + first * 2 * shape.value_heads,
                                    layer.rates.begin() + (first + count) * 2 * shape.value_heads);
    std::vector<float> out(at(count * shape.values()));
    GatedDeltaArgs args = args_of(layer);
    args.rows = {.begin = vector_of(begin.data(), 2),
                 .first_position = vector_of(position.data(), 1)};
    args.in = matrix_of(layer.in.data() + first * layer.width(), count, layer.width());
    args.rates = matrix_of(rates.data(), count, 2 * shape.value_heads);
    args.out = matrix_of(out.data(), count, shape.values());
    for (std::int64_t i = 0; i < parts; ++i) {
      args.parts.push_back({.heads = std::min(heads_of_block, shape.key_heads - i * heads_of_block),
                            .base = blocks[at(i)].data(),
                            .block_bytes = std::ssize(blocks[at(i)]) / 2,
                            .offset = kBefore,
                            .table = matrix_of(table.data(), 1, 1)});
      if (copy_behind > 0) {
        args.copy_behind = matrix_of(behind.data(), 1, 2);
        args.parts.back().copies = matrix_of(copies.data(), 1, 2);
      }
    }
    gated_delta(context_, args);
    synchronize();
    return out;
  }

  /// Two blocks for each part, of which the second is the sequence's. They hold what others left.
  static std::vector<std::vector<std::byte>> blocks(const LinearAttention& shape,
                                                    std::int64_t heads_of_block) {
    const std::int64_t bytes = kBefore + heads_of_block * DeltaHeadLayout(shape).bytes();
    const auto parts = (shape.key_heads + heads_of_block - 1) / heads_of_block;
    std::vector<std::vector<std::byte>> made(at(parts), std::vector<std::byte>(at(2 * bytes)));
    for (auto& block : made) {
      std::fill(block.begin(), block.end(), std::byte{0xFF});  // No numbers.
    }
    return made;
  }

  static constexpr LinearAttention kShapes[] = {
      {.key_heads = 1, .value_heads = 1, .key_dim = 1, .value_dim = 1, .kernel = 2},
      {.key_heads = 2, .value_heads = 4, .key_dim = 8, .value_dim = 12, .kernel = 4},
      {.key_heads = 3, .value_heads = 3, .key_dim = 17, .value_dim = 33, .kernel = 3},
      {.key_heads = 2, .value_heads = 6, .key_dim = 32, .value_dim = 48, .kernel = 8},
      {.key_heads = 2,
       .value_heads = 6,
       .key_dim = 24,
       .value_dim = 20,
       .kernel = 4,
       .tiled = true},
      {.key_heads = 1, .value_heads = 2, .key_dim = 256, .value_dim = 256, .kernel = 4},
  };
};

TEST_F(GatedDeltaTest, AgreesWithTheEquationInDouble) {
  for (const LinearAttention& shape : kShapes) {
    const DeltaLayer all = layer(shape, 37);
    auto memory = blocks(shape, shape.key_heads);
    const auto out = run(all, 0, all.tokens, memory, shape.key_heads);
    const auto expected = by_the_equation(all, 1e-5);
    double largest = 1.0;
    for (const double value : expected) {
      largest = std::max(largest, std::abs(value));
    }
    for (std::size_t i = 0; i < out.size(); ++i) {
      ASSERT_NEAR(static_cast<double>(out[i]), expected[i], 2e-5 * largest)
          << "value_dim " << shape.value_dim << ", element " << i;
    }
  }
}

TEST_F(GatedDeltaTest, DoesNotDependOnHowASequenceIsCut) {
  for (const LinearAttention& shape : kShapes) {
    const DeltaLayer all = layer(shape, 41);
    auto memory = blocks(shape, shape.key_heads);
    const auto whole = run(all, 0, all.tokens, memory, shape.key_heads);
    auto parts_memory = blocks(shape, 1);
    std::vector<float> parts;
    for (std::int64_t first = 0, count = 1; first < all.tokens;
         first += count, count = count % 19 + 3) {
      count = std::min(count, all.tokens - first);
      const auto part = run(all, first, count, parts_memory, 1);
      parts.insert(parts.end(), part.begin(), part.end());
    }
    EXPECT_TRUE(same_bits(parts, whole)) << shape.value_dim;
  }
}

TEST_F(GatedDeltaTest, ACopyIsTheStateOfASequenceThatEndedThere) {
  for (const LinearAttention& shape : kShapes) {
    const DeltaLayer all = layer(shape, 41);
    auto memory = blocks(shape, shape.key_heads);
    const auto whole = run(all, 0, all.tokens, memory, shape.key_heads);
    for (const std::int32_t behind : {1, 16, 41}) {
      auto copied = blocks(shape, 1);
      const auto out = run(all, 0, all.tokens, copied, 1, behind);
      EXPECT_TRUE(same_bits(out, whole)) << shape.value_dim << ", behind " << behind;
      for (auto& block : copied) {  // It goes on from the copy.
        const auto half = block.begin() + std::ssize(block) / 2;
        std::copy(block.begin(), half, half);
      }
      if (behind < all.tokens) {
        const auto rest = run(all, behind, all.tokens - behind, copied, 1);
        const auto expected =
            std::vector<float>(whole.begin() + behind * shape.values(), whole.end());
        EXPECT_TRUE(same_bits(rest, expected)) << shape.value_dim << ", behind " << behind;
      }
    }
  }
}

TEST_F(GatedDeltaTest, SequencesOfABatchDoNotSeeEachOther) {
  const LinearAttention shape = kShapes[1];
  const DeltaLayer all = layer(shape, 24);
  auto memory = blocks(shape, shape.key_heads);
  const auto alone = run(all, 0, 9, memory, shape.key_heads);
  auto other_memory = blocks(shape, shape.key_heads);
  (void)run(all, 0, 9, other_memory, shape.key_heads);
  const auto other = run(all, 9, 15, other_memory, shape.key_heads);

  // The first nine tokens as a sequence of their own, and those behind as one that goes on from it.
  const std::vector<std::int32_t> begin{0, 9, 24};
  const std::vector<std::int32_t> position{0, 9};
  const std::vector<std::int32_t> table{0, 1};
  auto shared = blocks(shape, shape.key_heads);
  const std::int64_t block = std::ssize(shared[0]) / 2;
  std::vector<std::vector<std::byte>> before = blocks(shape, shape.key_heads);
  (void)run(all, 0, 9, before, shape.key_heads);
  std::memcpy(shared[0].data() + block, before[0].data() + block, at(block));
  auto rates = all.rates;
  std::vector<float> out(at(24 * shape.values()));
  GatedDeltaArgs args = args_of(all);
  args.rows = {.begin = vector_of(begin.data(), 3),
               .first_position = vector_of(position.data(), 2)};
  args.in = matrix_of(all.in.data(), 24, all.width());
  args.rates = matrix_of(rates.data(), 24, 2 * shape.value_heads);
  args.parts = {{.heads = shape.key_heads,
                 .base = shared[0].data(),
                 .block_bytes = block,
                 .offset = kBefore,
                 .table = matrix_of(table.data(), 2, 1)}};
  args.out = matrix_of(out.data(), 24, shape.values());
  gated_delta(context_, args);
  synchronize();
  const auto middle = out.begin() + 9 * shape.values();
  EXPECT_TRUE(same_bits(std::vector<float>(out.begin(), middle), alone));
  EXPECT_TRUE(same_bits(std::vector<float>(middle, out.end()), other));
}

// As recorded steps are filled up.
TEST_F(GatedDeltaTest, ASequenceThatRepeatsTheFirstChangesNoState) {
  if (backend_->kind() == device::Kind::kCpu) {
    GTEST_SKIP() << "no step is recorded on a CPU";
  }
  const LinearAttention shape = kShapes[1];
  const DeltaLayer all = layer(shape, 10);
  auto memory = blocks(shape, shape.key_heads);
  (void)run(all, 0, 9, memory, shape.key_heads);
  auto alone = memory;
  const auto expected = run(all, 9, 1, alone, shape.key_heads);
  constexpr std::int64_t kRepeated = 3;
  const std::vector<std::int32_t> begin{0, 1, 2, 3};
  const std::vector<std::int32_t> position{9, 9, 9};
  const std::vector<std::int32_t> table{1, 1, 1};
  std::vector<float> in;
  std::vector<float> rates;
  for (std::int64_t i = 0; i < kRepeated; ++i) {
    in.insert(in.end(), all.in.end() - all.width(), all.in.end());
    rates.insert(rates.end(), all.rates.end() - 2 * shape.value_heads, all.rates.end());
  }
  std::vector<float> out(at(kRepeated * shape.values()));
  GatedDeltaArgs args = args_of(all);
  args.rows = {.begin = vector_of(begin.data(), kRepeated + 1),
               .first_position = vector_of(position.data(), kRepeated)};
  args.in = matrix_of(std::as_const(in).data(), kRepeated, all.width());
  args.rates = matrix_of(rates.data(), kRepeated, 2 * shape.value_heads);
  args.parts = {{.heads = shape.key_heads,
                 .base = memory[0].data(),
                 .block_bytes = std::ssize(memory[0]) / 2,
                 .offset = kBefore,
                 .table = matrix_of(table.data(), kRepeated, 1)}};
  args.out = matrix_of(out.data(), kRepeated, shape.values());
  gated_delta(context_, args);
  synchronize();
  EXPECT_TRUE(same_bits({out.begin(), out.begin() + shape.values()}, expected));
  EXPECT_EQ(memory, alone);
}

TEST_F(GatedDeltaTest, RoundsWhatItHandsOn) {
  const LinearAttention shape = kShapes[2];
  const DeltaLayer all = layer(shape, 5);
  auto memory = blocks(shape, shape.key_heads);
  const auto exact = run(all, 0, 5, memory, shape.key_heads);
  const std::vector<std::int32_t> begin{0, 5};
  const std::vector<std::int32_t> zero{0};
  auto rates = all.rates;
  std::vector<std::uint16_t> half(exact.size());
  GatedDeltaArgs args = args_of(all);
  args.rows = {.begin = vector_of(begin.data(), 2), .first_position = vector_of(zero.data(), 1)};
  args.in = matrix_of(all.in.data(), 5, all.width());
  args.rates = matrix_of(rates.data(), 5, 2 * shape.value_heads);
  args.parts = {{.heads = shape.key_heads,
                 .base = memory[0].data(),
                 .block_bytes = std::ssize(memory[0]) / 2,
                 .offset = kBefore,
                 .table = matrix_of(zero.data(), 1, 1)}};
  args.out = tensor_2d(reinterpret_cast<std::byte*>(half.data()), DType::kBf16, 5, shape.values());
  gated_delta(context_, args);
  synchronize();
  EXPECT_EQ(half, rounded(exact));
}

}  // namespace
}  // namespace heddle::ops
