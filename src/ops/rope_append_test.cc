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
TEST_F(RopeAppendTest, WritesCodesWithAScaleForEachHeadOfAToken) {
  for (const DType dtype : {DType::kI8, DType::kF8}) {
    PagedKvFixture cache(
        {.kv_heads = kKvHeads, .head_dim = 32, .block_tokens = 5, .dtype = dtype}, {12, 7}, rng_);
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
            const double step = dtype == DType::kI8
                                    ? largest / 127
                                    : std::max(std::abs(exact[i]) / 8, largest / 448 * 0x1p-9);
            EXPECT_NEAR(cached[i], exact[i], 0.505 * step) << token << " " << head << " " << i;
          }
        }
      }
    }
  }
}

// Values are not turned, so that they are the same to the bit wherever they are written.
TEST_F(RopeAppendTest, WritesTheCodesThatEveryBackendWrites) {
  for (const DType dtype : {DType::kI8, DType::kF8}) {
    for (const std::int64_t head_dim : {6, 32, 256}) {  // One by one, and four at a time.
      PagedKvFixture cache(
          {.kv_heads = kKvHeads, .head_dim = head_dim, .block_tokens = 5, .dtype = dtype},
          {12, 7},
          rng_);
      PagedKvFixture expected = cache;
      Projections rows = random_projections(head_dim, 0);
      rows.rotary = 0;  // Keys neither.
      rows.rows[static_cast<std::size_t>((kHeads + kKvHeads) * head_dim + 2)] = NAN;
      rows.rows[static_cast<std::size_t>(rows.width + kHeads * head_dim + 1)] = -INFINITY;
      for (std::int64_t i = 0; i < kHeads * head_dim; ++i) {
        rows.rows[static_cast<std::size_t>(2 * rows.width + kHeads * head_dim + i)] = 0.0F;
      }
      run(rows, cache);
      for (std::int64_t token = 0; token < kTokens; ++token) {
        const float* const key = rows.rows.data() + token * rows.width + kHeads * head_dim;
        expected.put(token < 9 ? 0 : 1, token < 9 ? 3 + token : 6, key, key + kKvHeads * head_dim);
      }
      EXPECT_TRUE(std::ranges::equal(cache.memory(), expected.memory())) << head_dim;
    }
  }
}

TEST(KvRow, AnE4m3IsTheNearestOfAll) {
  std::vector<float> all;
  for (int code = 0; code < 0x7f; ++code) {
    const float number = spec::f32_of_e4m3(static_cast<std::uint8_t>(code));
    EXPECT_EQ(to_e4m3(number), code);
    EXPECT_EQ(to_e4m3(-number), code | 0x80);
    all.push_back(number);
  }
  for (std::size_t i = 0; i + 1 < all.size(); ++i) {
    const float middle = (all[i] + all[i + 1]) / 2;  // Goes to the even one.
    EXPECT_EQ(to_e4m3(middle), i + i % 2) << i;
    EXPECT_EQ(to_e4m3(std::nextafter(middle, 0.0F)), i) << i;
    EXPECT_EQ(to_e4m3(std::nextafter(middle, 500.0F)), i + 1) << i;
  }
}

TEST(KvRow, OfZerosOfTheLeastNumbersAndOfWhatIsNotFinite) {
  for (const DType dtype : {DType::kI8, DType::kF8}) {
    const auto written = [dtype](const std::array<float, 4>& x) {
      std::array<std::byte, 4> codes{};
      std::array<std::byte, 2> scale{};
      put_kv_row(dtype, x.data(), 4, codes.data(), scale.data());
      std::array<float, 4> read{};
      for (std::int64_t i = 0; i < 4; ++i) {
        read[static_cast<std::size_t>(i)] = kv_row_at(dtype, codes.data(), scale.data(), i);
      }
      return read;
    };
    const float largest = dtype == DType::kI8 ? 127.0F : 448.0F;
    EXPECT_EQ(written({0, -0.0F, 0, 0}), (std::array<float, 4>{}));
    EXPECT_EQ(written({largest, -largest, 44, 1}),
              (std::array<float, 4>{largest, -largest, 44, 1}));
    EXPECT_EQ(written({1e-42F, -1e-42F, 0, 0}), (std::array<float, 4>{}));
    constexpr float kHuge = std::numeric_limits<float>::max() / 2;
    EXPECT_NEAR(written({kHuge, -1, 0, 0})[0] / kHuge, 1.0F, dtype == DType::kI8 ? 0.01F : 0x1p-4F);
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
      EXPECT_TRUE(
          std::ranges::all_of(written({1, 2, bad, 4}), [](float x) { return std::isnan(x); }));
    }
  }
}

}  // namespace
}  // namespace heddle::ops
