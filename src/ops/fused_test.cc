#include "ops/fused.h"

#include <optional>
#include <utility>

#include "ops/attention.h"
#include "ops/op_test.h"
#include "ops/paged_kv_test.h"
#include "ops/rope_append.h"
#include "ops/silu_mul.h"

namespace heddle::ops {
namespace {

/// A product of some type, with all that belongs to it.
struct Product {
  DType weight_type = DType::kBf16;
  std::int64_t tokens = 1;
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  bool bias = false;
};

class FusedTest : public OpTest {
 protected:
  /// Numbers of a product, kept.
  struct Numbers {
    std::vector<float> x{};
    std::vector<std::uint16_t> half_x{};
    std::vector<float> weight{};
    std::vector<std::uint16_t> half_weight{};
    std::vector<std::int8_t> int8{};
    std::vector<float> scale{};
    std::vector<float> bias{};
    std::vector<float> residual{};
    std::vector<float> out{};
  };

  Numbers numbers_of(const Product& p) {
    Numbers n{.x = random(p.tokens * p.inputs), .weight = random(p.outputs * p.inputs, 0.1F)};
    n.half_x = rounded(n.x);
    n.half_weight = rounded(n.weight);
    for (std::int64_t i = 0; i < p.outputs * p.inputs; ++i) {
      n.int8.push_back(static_cast<std::int8_t>(static_cast<int>(rng_.below(255)) - 127));
    }
    n.scale = std::vector<float>(static_cast<std::size_t>(p.outputs), 0.01F);
    n.bias = random(p.outputs);
    n.residual = random(p.tokens * p.outputs);
    n.out = std::vector<float>(static_cast<std::size_t>(p.tokens * p.outputs));
    return n;
  }

  static LinearArgs linear_of(const Product& p, Numbers& n) {
    LinearArgs args{.out = matrix_of(n.out.data(), p.tokens, p.outputs)};
    if (p.weight_type == DType::kF32) {
      args.x = matrix_of(std::as_const(n.x).data(), p.tokens, p.inputs);
      args.weight = matrix_of(std::as_const(n.weight).data(), p.outputs, p.inputs);
    } else {
      args.x = bf16_matrix(n.half_x, p.tokens, p.inputs);
      args.weight = bf16_matrix(n.half_weight, p.outputs, p.inputs);
    }
    if (p.weight_type == DType::kI8) {
      args.weight = tensor_2d(
          reinterpret_cast<const std::byte*>(n.int8.data()), DType::kI8, p.outputs, p.inputs);
      args.scale = vector_of(std::as_const(n.scale).data(), p.outputs);
    }
    if (p.bias) {
      args.bias = vector_of(std::as_const(n.bias).data(), p.outputs);
    }
    return args;
  }

  static std::string name_of(const Product& p) {
    return std::string(spec::dtype_name(p.weight_type)) + ", " + std::to_string(p.tokens) + " x " +
           std::to_string(p.inputs) + " to " + std::to_string(p.outputs);
  }

  static std::vector<Product> products() {
    std::vector<Product> all;
    for (const DType type : {DType::kF32, DType::kBf16, DType::kI8}) {
      for (const std::int64_t tokens : {1, 2, 3, 8, 9, 40}) {
        all.push_back({.weight_type = type, .tokens = tokens, .inputs = 96, .outputs = 40});
      }
      all.push_back({.weight_type = type, .tokens = 1, .inputs = 70, .outputs = 54, .bias = true});
      all.push_back({.weight_type = type, .tokens = 2, .inputs = 64, .outputs = 1096});
    }
    return all;
  }
};

TEST_F(FusedTest, AProductAndItsNormAreThoseOneByOneToTheBit) {
  for (const Product& p : products()) {
    SCOPED_TRACE(name_of(p));
    Numbers n = numbers_of(p);
    const std::vector<float> weight = random(p.outputs);
    LinearArgs args = linear_of(p, n);
    args.residual = matrix_of(std::as_const(n.residual).data(), p.tokens, p.outputs);
    std::vector<std::uint16_t> normed(n.out.size());
    const RmsNormArgs norm{
        .x = args.out,
        .weight = vector_of(weight.data(), p.outputs),
        .out = tensor_2d(
            reinterpret_cast<std::byte*>(normed.data()), DType::kBf16, p.tokens, p.outputs)};
    linear(context_, args);
    rms_norm(context_, norm);
    synchronize();
    const auto expected_normed = std::exchange(normed, std::vector<std::uint16_t>(normed.size()));
    const auto expected = n.out;
    std::fill(n.out.begin(), n.out.end(), 0.0F);
    RmsNormArgs again = norm;
    again.out.data = reinterpret_cast<std::byte*>(normed.data());
    for (int turn = 0; turn < 2; ++turn) {  // What counts blocks is as it was before.
      linear_norm(context_, {.linear = args, .norm = again});
      synchronize();
      EXPECT_TRUE(same_bits(n.out, expected));
      EXPECT_EQ(normed, expected_normed);
    }
  }
}

TEST_F(FusedTest, AProductOfGatesAndUpsIsThatAndSiluMul) {
  for (const Product& p : products()) {
    SCOPED_TRACE(name_of(p));
    Numbers n = numbers_of(p);
    const LinearArgs args = linear_of(p, n);
    const std::int64_t half = p.outputs / 2;
    std::vector<float> out(static_cast<std::size_t>(p.tokens * half));
    std::vector<std::uint16_t> narrow(out.size());
    linear(context_, args);
    silu_mul(context_, {.gate_up = args.out, .out = matrix_of(out.data(), p.tokens, half)});
    synchronize();
    const std::vector<float> expected = std::exchange(out, std::vector<float>(out.size()));
    linear_silu(context_, {.linear = args, .out = matrix_of(out.data(), p.tokens, half)});
    linear_silu(context_,
                {.linear = args,
                 .out = tensor_2d(
                     reinterpret_cast<std::byte*>(narrow.data()), DType::kBf16, p.tokens, half)});
    synchronize();
    EXPECT_TRUE(same_bits(out, expected));
    EXPECT_EQ(narrow, rounded(expected));
  }
}

/// What is handed on in bfloat16, where a backend can.
class NarrowTest : public FusedTest {
 protected:
  void SetUp() override {
    if (context_.kernels.narrow_from == 0) {
      GTEST_SKIP() << "projections are float32 here";
    }
  }
};

TEST_F(NarrowTest, ProductsAreRoundedOnce) {
  for (const DType type : {DType::kBf16, DType::kI8}) {
    for (const std::int64_t tokens : {1, 9, 40, 70}) {
      for (const bool bias : {false, true}) {
        const Product p{
            .weight_type = type, .tokens = tokens, .inputs = 96, .outputs = 40, .bias = bias};
        SCOPED_TRACE(name_of(p));
        Numbers n = numbers_of(p);
        LinearArgs args = linear_of(p, n);
        linear(context_, args);
        std::vector<std::uint16_t> narrow(n.out.size());
        args.out = tensor_2d(
            reinterpret_cast<std::byte*>(narrow.data()), DType::kBf16, p.tokens, p.outputs);
        linear(context_, args);
        synchronize();
        for (std::size_t i = 0; i < narrow.size(); ++i) {
          // Another kernel may have summed in another order.
          EXPECT_NEAR(from_bf16(narrow[i]), n.out[i], 0x1p-8F * std::abs(n.out[i]) + 1e-5F);
        }
      }
    }
  }
}

TEST_F(NarrowTest, SiluMulTakesThem) {
  const std::vector<std::uint16_t> gate_up = rounded(random(3 * 2 * 20, 3.0F));
  const std::vector<float> wide = widened(gate_up);
  std::vector<float> exact(3 * 20);
  std::vector<std::uint16_t> out(3 * 20);
  silu_mul(context_,
           {.gate_up = matrix_of(wide.data(), 3, 40), .out = matrix_of(exact.data(), 3, 20)});
  silu_mul(context_,
           {.gate_up = bf16_matrix(gate_up, 3, 40),
            .out = tensor_2d(reinterpret_cast<std::byte*>(out.data()), DType::kBf16, 3, 20)});
  synchronize();
  EXPECT_EQ(out, rounded(exact));
}

/// Heads of two sequences, one of many rows of queries and one of few, through rope_append and
/// attention, with their queries, keys and values in either type, and normalised on the way or
/// before.
class NarrowHeadsTest : public NarrowTest {
 protected:
  static constexpr std::int64_t kTokens = 13;
  static constexpr std::int64_t kHeads = 4;
  static constexpr std::int64_t kKvHeads = 2;

  struct Outcome {
    std::vector<float> queries{};
    std::vector<float> attended{};
  };

  /// What is done where.
  struct Way {
    bool narrow = false;
    bool normed = true;
    bool norm_inside = true;
    bool turn_late = false;  ///< Queries by attention.
  };

  Outcome run(std::int64_t head_dim, const Way& way) {
    const bool narrow = way.narrow;
    const std::int64_t width = (kHeads + 2 * kKvHeads) * head_dim;
    std::vector<std::uint16_t> half = half_;
    std::vector<float> rows = widened(half_);
    PagedKvFixture cache(
        {.kv_heads = kKvHeads, .head_dim = head_dim, .dtype = DType::kBf16}, {14, 3}, rng_);
    const TensorRef all =
        narrow ? tensor_2d(reinterpret_cast<std::byte*>(half.data()), DType::kBf16, kTokens, width)
               : matrix_of(rows.data(), kTokens, width);
    const auto part = [&](std::int64_t first, std::int64_t heads) {
      return heads_of(all, first * head_dim, heads, head_dim);
    };
    RopeAppendArgs rope{.rows = {.begin = vector_of(begin_.data(), 3),
                                 .first_position = vector_of(first_.data(), 2)},
                        .cos_sin = matrix_of(turns_.data(), kTokens, head_dim),
                        .query = part(0, kHeads),
                        .key = part(kHeads, kKvHeads),
                        .value = part(kHeads + kKvHeads, kKvHeads),
                        .kv = cache.kv()};
    const auto query_norm = vector_of(std::as_const(query_norm_).data(), head_dim);
    const auto key_norm = vector_of(std::as_const(key_norm_).data(), head_dim);
    if (way.norm_inside && way.normed) {
      rope.query_norm = query_norm;
      rope.key_norm = key_norm;
    } else if (way.normed) {
      const TensorRef key = part(kHeads, kKvHeads);
      rms_norm(context_, {.x = rope.query, .weight = query_norm, .out = rope.query});
      rms_norm(context_, {.x = key, .weight = key_norm, .out = key});
    }
    Outcome outcome{.attended =
                        std::vector<float>(static_cast<std::size_t>(kTokens * kHeads * head_dim))};
    AttentionArgs attended{
        .rows = rope.rows,
        .query = rope.query,
        .kv = rope.kv,
        .scale = 0.3F,
        .out = heads_of(
            matrix_of(outcome.attended.data(), kTokens, kHeads * head_dim), 0, kHeads, head_dim)};
    if (way.turn_late) {
      attended.turn = {.cos_sin = rope.cos_sin, .norm = rope.query_norm, .eps = rope.eps};
      EXPECT_TRUE(attention_turns(context_, attended));
      rope.query = {};
      rope.query_norm = {};
    }
    rope_append(context_, rope);
    attention(context_, attended);
    synchronize();
    outcome.queries = narrow ? widened(half) : rows;
    for (std::int64_t token = kTokens; token-- > 0;) {  // The queries alone.
      const auto begin = outcome.queries.begin() + token * width;
      outcome.queries.erase(begin + kHeads * head_dim, begin + width);
    }
    return outcome;
  }

  void prepare(std::int64_t head_dim) {
    half_ = rounded(random(kTokens * (kHeads + 2 * kKvHeads) * head_dim));
    turns_ = random(kTokens * head_dim);
    query_norm_ = random(head_dim);
    key_norm_ = random(head_dim);
  }

  const std::vector<std::int32_t> begin_{0, 12, 13};
  const std::vector<std::int32_t> first_{0, 0};
  std::vector<std::uint16_t> half_{};
  std::vector<float> turns_{};
  std::vector<float> query_norm_{};
  std::vector<float> key_norm_{};
};

TEST_F(NarrowHeadsTest, HeadsAreNormalisedOnTheWayAsBefore) {
  for (const std::int64_t head_dim : {6, 32, 128}) {
    SCOPED_TRACE(head_dim);
    prepare(head_dim);
    const Rng before = rng_;
    const Outcome apart = run(head_dim, {.norm_inside = false});
    rng_ = before;
    const Outcome together = run(head_dim, {});
    for (std::size_t i = 0; i < apart.queries.size(); ++i) {
      EXPECT_NEAR(together.queries[i], apart.queries[i], 1e-5F) << i;
    }
    for (std::size_t i = 0; i < apart.attended.size(); ++i) {
      EXPECT_NEAR(together.attended[i], apart.attended[i], 3e-2F) << i;
    }
  }
}

TEST_F(NarrowHeadsTest, ProjectionsInBfloat16GiveWhatTheirNumbersGive) {
  for (const std::int64_t head_dim : {6, 32, 128}) {  // Which one by one, and by tensor cores.
    SCOPED_TRACE(head_dim);
    prepare(head_dim);
    const Rng before = rng_;
    const Outcome wide = run(head_dim, {});
    rng_ = before;
    const Outcome narrow = run(head_dim, {.narrow = true});
    for (std::size_t i = 0; i < wide.queries.size(); ++i) {
      EXPECT_NEAR(narrow.queries[i], wide.queries[i], 0x1p-8F * std::abs(wide.queries[i])) << i;
    }
    for (std::size_t i = 0; i < wide.attended.size(); ++i) {
      EXPECT_NEAR(narrow.attended[i], wide.attended[i], 5e-2F) << i;
    }
  }
}

TEST_F(NarrowHeadsTest, AttentionTurnsQueriesAsRopeAppendDoes) {
  for (const std::int64_t head_dim : {32, 96, 128, 256}) {
    for (const bool normed : {false, true}) {
      SCOPED_TRACE(std::to_string(head_dim) + (normed ? ", normalised" : ""));
      prepare(head_dim);
      const Rng before = rng_;
      const Outcome early = run(head_dim, {.narrow = true, .normed = normed});
      rng_ = before;
      const Outcome late = run(head_dim, {.narrow = true, .normed = normed, .turn_late = true});
      for (std::size_t i = 0; i < early.attended.size(); ++i) {
        // Without a norm to the same bits here; a GPU may contract what it multiplies and adds.
        EXPECT_NEAR(late.attended[i], early.attended[i], 2e-2F) << i;
      }
      const std::vector<std::uint16_t> projected = rounded(late.queries);
      for (std::int64_t token = 0; token < kTokens; ++token) {
        const std::int64_t width = (kHeads + 2 * kKvHeads) * head_dim;
        EXPECT_TRUE(std::equal(half_.begin() + token * width,
                               half_.begin() + token * width + kHeads * head_dim,
                               projected.begin() + token * kHeads * head_dim))
            << "they stay as they were projected";
      }
    }
  }
}

TEST_F(NarrowHeadsTest, AttentionDoesNotTurnWhatTensorCoresDoNotTake) {
  prepare(48);
  PagedKvFixture cache(
      {.kv_heads = kKvHeads, .head_dim = 48, .dtype = DType::kBf16}, {14, 3}, rng_);
  std::vector<float> out(static_cast<std::size_t>(kTokens * kHeads * 48));
  const auto queries =
      tensor_2d(reinterpret_cast<std::byte*>(half_.data()), DType::kBf16, kTokens, kHeads * 48);
  EXPECT_FALSE(
      attention_turns(context_,
                      {.query = heads_of(queries, 0, kHeads, 48),
                       .kv = cache.kv(),
                       .out = heads_of(matrix_of(out.data(), kTokens, kHeads * 48), 0, kHeads, 48),
                       .turn = {.cos_sin = matrix_of(std::as_const(turns_).data(), kTokens, 48)}}));
}

}  // namespace
}  // namespace heddle::ops
