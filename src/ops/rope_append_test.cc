#include "ops/rope_append.h"

#include "ops/paged_kv_test.h"

namespace heddle::ops {
namespace {

/// Sequences of 9 and 1 tokens: positions 3..11 of the first, over two block borders, and 6 of the
/// second.
class RopeAppendTest : public OpTest {
 protected:
  static constexpr std::int64_t kTokens = 10;
  static constexpr std::int64_t kHeads = 3;
  static constexpr std::int64_t kKvHeads = 2;

  struct Projections {
    std::int64_t head_dim = 0;
    std::int64_t rotary = 0;    ///< Elements of a head that rotate.
    std::int64_t width = 0;     ///< Queries, keys and values of a token, and more.
    std::vector<float> rows{};  ///< [kTokens, width]

    [[nodiscard]] TensorRef part(std::int64_t first, std::int64_t heads) {
      return heads_of(matrix_of(rows.data(), kTokens, width), first * head_dim, heads, head_dim);
    }
    /// Element i of a head of a token.
    [[nodiscard]] double at(std::int64_t token, std::int64_t head, std::int64_t i) const {
      return static_cast<double>(
          rows[static_cast<std::size_t>(token * width + head * head_dim + i)]);
    }
  };

  static double angle(std::int64_t token, std::int64_t i) {
    return 0.7 * static_cast<double>(token) + 0.3 * static_cast<double>(i);
  }
  static std::vector<float> cos_sin(std::int64_t head_dim) {
    std::vector<float> all;
    for (std::int64_t token = 0; token < kTokens; ++token) {
      for (int part = 0; part < 2; ++part) {
        for (std::int64_t i = 0; i < head_dim / 2; ++i) {
          const double a = angle(token, i);
          all.push_back(static_cast<float>(part == 0 ? std::cos(a) : std::sin(a)));
        }
      }
    }
    return all;
  }
  /// What element i of a head turns to, and how far off it may be.
  static std::pair<double, double> turned(const Projections& before,
                                          std::int64_t token,
                                          std::int64_t head,
                                          std::int64_t i) {
    const std::int64_t half = before.rotary / 2;
    const bool second = i >= half;
    const double own = before.at(token, head, i);
    if (i >= before.rotary) {
      return {own, 0.0};
    }
    const double other = before.at(token, head, second ? i - half : i + half);
    const double a = angle(token, i % half);
    return {own * std::cos(a) + (second ? other : -other) * std::sin(a),
            0x1p-23 * (std::abs(own) + std::abs(other))};
  }

  Projections random_projections(std::int64_t head_dim, std::int64_t more) {
    Projections made{.head_dim = head_dim,
                     .rotary = head_dim,
                     .width = (kHeads + 2 * kKvHeads) * head_dim + more};
    made.rows = random(kTokens * made.width);
    return made;
  }

  void run(Projections& projections, PagedKvFixture& cache) {
    const auto turns = cos_sin(projections.rotary);
    rope_append(context_,
                {.rows = {.begin = vector_of(begin_.data(), 3),
                          .first_position = vector_of(first_position_.data(), 2)},
                 .cos_sin = matrix_of(turns.data(), kTokens, projections.rotary),
                 .query = projections.part(0, kHeads),
                 .key = projections.part(kHeads, kKvHeads),
                 .value = projections.part(kHeads + kKvHeads, kKvHeads),
                 .kv = cache.kv()});
    synchronize();
  }

  const std::vector<std::int32_t> begin_{0, 9, 10};
  const std::vector<std::int32_t> first_position_{3, 6};
};

TEST_F(RopeAppendTest, TurnsQueriesInPlaceAndNothingElseOfTheirRows) {
  for (const std::int64_t head_dim : {6, 32}) {  // One by one, and four at a time.
    PagedKvFixture cache({.kv_heads = kKvHeads, .head_dim = head_dim}, {12, 7}, rng_);
    Projections rows = random_projections(head_dim, head_dim == 6 ? 5 : 4);
    const Projections before = rows;
    run(rows, cache);
    for (std::int64_t token = 0; token < kTokens; ++token) {
      for (std::int64_t i = 0; i < rows.width; ++i) {
        if (i < kHeads * head_dim) {
          const auto [expected, bound] = turned(before, token, i / head_dim, i % head_dim);
          EXPECT_NEAR(rows.at(token, 0, i), expected, bound) << "token " << token << ", " << i;
        } else {
          EXPECT_EQ(rows.at(token, 0, i), before.at(token, 0, i)) << "token " << token << ", " << i;
        }
      }
    }
  }
}

TEST_F(RopeAppendTest, LeavesWhatDoesNotRotateAsItIs) {
  for (const auto& [head_dim, rotary] : {std::pair<std::int64_t, std::int64_t>(6, 4),
                                         std::pair<std::int64_t, std::int64_t>(32, 8),
                                         std::pair<std::int64_t, std::int64_t>(32, 12)}) {
    PagedKvFixture cache({.kv_heads = kKvHeads, .head_dim = head_dim}, {12, 7}, rng_);
    Projections rows = random_projections(head_dim, 0);
    rows.rotary = rotary;
    const Projections before = rows;
    run(rows, cache);
    for (std::int64_t token = 0; token < kTokens; ++token) {
      const std::int64_t s = token < 9 ? 0 : 1;
      const std::int64_t position = token < 9 ? 3 + token : 6;
      for (std::int64_t i = 0; i < kHeads * head_dim; ++i) {
        const auto [expected, bound] = turned(before, token, i / head_dim, i % head_dim);
        EXPECT_NEAR(rows.at(token, 0, i), expected, bound) << rotary << ", token " << token;
      }
      for (std::int64_t i = 0; i < kKvHeads * head_dim; ++i) {
        const std::int64_t head = i / head_dim;
        const auto [key, bound] = turned(before, token, kHeads + head, i % head_dim);
        const float cached = cache.at(s, position, head, i % head_dim, false);
        EXPECT_NEAR(static_cast<double>(cached), key, bound) << rotary << ", token " << token;
      }
    }
  }
}

TEST_F(RopeAppendTest, WritesTurnedKeysAndValuesToTheirSlotsAndNothingElse) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    for (const std::int64_t head_dim : {6, 32}) {
      constexpr std::int64_t kBlock = 5;  // Not a power of two.
      PagedKvFixture cache(
          {.kv_heads = kKvHeads, .head_dim = head_dim, .block_tokens = kBlock, .dtype = dtype},
          {12, 7},
          rng_);
      Projections rows = random_projections(head_dim, 0);
      const Projections before = rows;
      run(rows, cache);
      for (std::int64_t row = 0; row < kTokens; ++row) {
        const std::int64_t s = row < 9 ? 0 : 1;
        const std::int64_t position = row < 9 ? 3 + row : 6;
        for (std::int64_t i = 0; i < kKvHeads * head_dim; ++i) {
          const std::int64_t head = i / head_dim;
          const auto [key, bound] = turned(before, row, kHeads + head, i % head_dim);
          const double rounding = dtype == DType::kF32 ? 0 : 0x1p-8 * std::abs(key) + bound;
          EXPECT_NEAR(static_cast<double>(cache.at(s, position, head, i % head_dim, false)),
                      key,
                      bound + rounding);
          const auto value =
              static_cast<float>(before.at(row, kHeads + kKvHeads + head, i % head_dim));
          EXPECT_EQ(cache.at(s, position, head, i % head_dim, true),
                    dtype == DType::kF32 ? value : from_bf16(to_bf16(value)));
        }
      }
      const auto written = std::count_if(cache.memory().begin(), cache.memory().end(), [](auto b) {
        return b != std::byte{0xff};
      });
      EXPECT_LE(
          written,
          kTokens * 2 * kKvHeads * head_dim * static_cast<std::int64_t>(spec::dtype_bytes(dtype)));
    }
  }
}

/// The key or value of a head as it lies in the cache.
std::vector<double> cached_row(
    const PagedKvFixture& cache, std::int64_t s, std::int64_t position, std::int64_t head, bool v) {
  std::vector<double> row;
  for (std::int64_t i = 0; i < 32; ++i) {
    row.push_back(static_cast<double>(cache.at(s, position, head, i, v)));
  }
  return row;
}

// Within half a step of the head's own grid, whatever the heads beside it are like.
TEST_F(RopeAppendTest, WritesInt8WithAScaleForEachHeadOfAToken) {
  if (!gives_one_answer()) {
    GTEST_SKIP() << "KV in int8 is for CPUs";
  }
  PagedKvFixture cache(
      {.kv_heads = kKvHeads, .head_dim = 32, .block_tokens = 5, .dtype = DType::kI8},
      {12, 7},
      rng_);
  Projections rows = random_projections(32, 0);
  for (std::int64_t i = 0; i < std::ssize(rows.rows); ++i) {
    rows.rows[static_cast<std::size_t>(i)] *= std::exp2(static_cast<float>(i / 32 % 40 - 20));
  }
  const Projections before = rows;
  run(rows, cache);
  for (std::int64_t token = 0; token < kTokens; ++token) {
    const std::int64_t s = token < 9 ? 0 : 1;
    const std::int64_t position = token < 9 ? 3 + token : 6;
    for (std::int64_t head = 0; head < kKvHeads; ++head) {
      std::vector<double> keys;
      std::vector<double> values;
      for (std::int64_t i = 0; i < 32; ++i) {
        keys.push_back(turned(before, token, kHeads + head, i).first);
        values.push_back(before.at(token, kHeads + kKvHeads + head, i));
      }
      for (const bool v : {false, true}) {
        const std::vector<double>& exact = v ? values : keys;
        const auto size = [](double x) { return std::abs(x); };
        const double largest = std::abs(std::ranges::max(exact, {}, size));
        const std::vector<double> cached = cached_row(cache, s, position, head, v);
        for (std::size_t i = 0; i < 32; ++i) {
          EXPECT_NEAR(cached[i], exact[i], 0.505 * largest / 127)
              << token << " " << head << " " << i;
        }
      }
    }
  }
}

TEST_F(RopeAppendTest, WritesInt8OfZerosOfTheLeastNumbersAndOfWhatIsNotFinite) {
  std::array<std::byte, 6> row{};
  const auto written = [&row](const std::array<float, 4>& x) {
    put_kv_row(x.data(), 4, row.data());
    std::array<float, 4> read{};
    for (std::int64_t i = 0; i < 4; ++i) {
      read[static_cast<std::size_t>(i)] = kv_row_at(row.data(), 4, i);
    }
    return read;
  };
  EXPECT_EQ(written({0, -0.0F, 0, 0}), (std::array<float, 4>{}));
  EXPECT_EQ(written({127, -127, 63, 1}), (std::array<float, 4>{127, -127, 63, 1}));
  EXPECT_EQ(written({1e-42F, -1e-42F, 0, 0}), (std::array<float, 4>{}));
  const auto huge = written({std::numeric_limits<float>::max(), -1, 0, 0});
  EXPECT_NEAR(huge[0] / std::numeric_limits<float>::max(), 1.0F, 0.01F);
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    EXPECT_TRUE(
        std::ranges::all_of(written({1, 2, bad, 4}), [](float x) { return std::isnan(x); }));
  }
}

}  // namespace
}  // namespace heddle::ops
