#include "ops/attention.h"

#include <array>

#include "ops/paged_kv_test.h"

namespace heddle::ops {
namespace {

struct Case {
  PagedKvFixture::Shape shape{};
  std::int64_t heads = 1;
  std::int64_t window = 0;
  float soft_cap = 0.0F;
  std::vector<float> sinks{};  ///< Of each head, or none.

  [[nodiscard]] ConstTensorRef sink_vector() const {
    return sinks.empty() ? ConstTensorRef{} : vector_of(sinks.data(), heads);
  }
};

/// A batch, and where the cache of each of its sequences is divided.
struct Divided {
  std::vector<std::int32_t> begin{0};  ///< Rows.
  std::vector<std::int32_t> first{};   ///< Positions.
  std::vector<std::int32_t> border{};
  std::vector<std::int64_t> lengths{};
};

/// Sequences whose last `fresh` tokens are queried; all keys and values are in the cache.
struct Queried {
  std::int64_t length = 0;
  std::int64_t fresh = 0;
};

class AttentionTest : public OpTest {
 protected:
  struct Answer {
    std::vector<float> out{};
    std::vector<float> lse{};
  };

  /// Fills the cache of a case with random keys and values of sequences of those lengths.
  PagedKvFixture fill(const Case& c, const std::vector<std::int64_t>& lengths) {
    PagedKvFixture cache(c.shape, lengths, rng_);
    const std::int64_t width = c.shape.kv_heads * c.shape.head_dim;
    for (std::size_t s = 0; s < lengths.size(); ++s) {
      for (std::int64_t position = 0; position < lengths[s]; ++position) {
        const auto key = random(width, 1.5F);
        const auto value = random(width);
        cache.put(static_cast<std::int64_t>(s), position, key.data(), value.data());
      }
    }
    return cache;
  }

  void agrees_with_double(const Case& c, const Queried& q);

  static BatchRows rows_of(const std::vector<std::int32_t>& begin,
                           const std::vector<std::int32_t>& first) {
    return {.begin = vector_of(begin.data(), static_cast<std::int64_t>(begin.size())),
            .first_position = vector_of(first.data(), static_cast<std::int64_t>(first.size()))};
  }

  /// Attention of tokens [first, first + count) of sequence s alone; `query` is of those tokens.
  Answer run_one(const Case& c,
                 PagedKvFixture& cache,
                 std::int64_t s,
                 std::int64_t first,
                 std::int64_t count,
                 const float* query) {
    Answer answer;
    const std::int64_t width = c.heads * c.shape.head_dim;
    answer.out.resize(static_cast<std::size_t>(count * width));
    answer.lse.resize(static_cast<std::size_t>(count * c.heads));
    const std::vector<std::int32_t> begin{0, static_cast<std::int32_t>(count)};
    const std::vector<std::int32_t> position{static_cast<std::int32_t>(first)};
    PagedKv kv = cache.kv();
    kv.table.data += s * kv.table.stride[0] * 4;
    kv.table.shape[0] = 1;
    const auto heads = [&](float* data) {
      return heads_of(matrix_of(data, count, width), 0, c.heads, c.shape.head_dim);
    };
    attention(context_,
              {.rows = rows_of(begin, position),
               .query = heads(const_cast<float*>(query)),
               .kv = kv,
               .window = c.window,
               .scale = 0.25F,
               .soft_cap = c.soft_cap,
               .sinks = c.sink_vector(),
               .out = heads(answer.out.data()),
               .lse = matrix_of(answer.lse.data(), count, c.heads)});
    synchronize();
    return answer;
  }

  /// Attention of a whole batch.
  std::vector<float> run_all(const Case& c,
                             PagedKvFixture& cache,
                             const std::vector<std::int32_t>& begin,
                             const std::vector<std::int32_t>& first,
                             const std::vector<float>& query) {
    const std::int64_t width = c.heads * c.shape.head_dim;
    std::vector<float> out(query.size());
    const auto heads = [&](float* data) {
      return heads_of(matrix_of(data, begin.back(), width), 0, c.heads, c.shape.head_dim);
    };
    attention(context_,
              {.rows = rows_of(begin, first),
               .query = heads(const_cast<float*>(query.data())),
               .kv = cache.kv(),
               .window = c.window,
               .scale = 0.25F,
               .soft_cap = c.soft_cap,
               .sinks = c.sink_vector(),
               .out = heads(out.data()),
               .lse = {}});
    synchronize();
    return out;
  }

  /// Sequences of a few tokens, the last of many, with borders that are multiples of `step`.
  Divided divide(std::int64_t step, int sequences) {
    Divided batch;
    const auto most = static_cast<std::uint64_t>(std::max<std::int64_t>(4, 200 / step));
    for (int s = 0; s < sequences; ++s) {
      const auto fresh = static_cast<std::int32_t>(s == sequences - 1 ? 40 : 1 + rng_.below(3));
      const auto border =
          static_cast<std::int32_t>(step * static_cast<std::int64_t>(rng_.below(most)));
      batch.border.push_back(s == 0 ? 0 : border);
      batch.first.push_back(batch.border.back() + static_cast<std::int32_t>(rng_.below(90)));
      batch.begin.push_back(batch.begin.back() + fresh);
      batch.lengths.push_back(batch.first.back() + fresh);
    }
    return batch;
  }

  /// What attention in two parts gives.
  struct InParts {
    std::vector<float> out{};
    std::vector<float> lse{};
    std::vector<float> state{};  ///< Between the two.
  };

  /// The second part has no blocks of what the first has.
  InParts run_parts(const Case& c,
                    PagedKvFixture& cache,
                    const Divided& batch,
                    const std::vector<float>& query) {
    const std::int64_t d = c.shape.head_dim;
    const std::int64_t tokens = batch.begin.back();
    InParts result{
        .out = std::vector<float>(query.size()),
        .lse = std::vector<float>(static_cast<std::size_t>(tokens * c.heads)),
        .state = std::vector<float>(static_cast<std::size_t>(tokens * c.heads * (d + 2)), NAN)};
    const auto heads = [&](float* data, std::int64_t width) {
      return heads_of(matrix_of(data, tokens, c.heads * width), 0, c.heads, width);
    };
    const ConstTensorRef border = vector_of(batch.border.data(), std::ssize(batch.border));
    AttentionArgs args{.rows = rows_of(batch.begin, batch.first),
                       .query = heads(const_cast<float*>(query.data()), d),
                       .kv = cache.kv(),
                       .scale = 0.25F,
                       .soft_cap = c.soft_cap,
                       .sinks = c.sink_vector()};
    args.parts = {.end = border, .left = heads(result.state.data(), d + 2)};
    attention(context_, args);
    synchronize();
    std::vector<std::vector<std::int32_t>> gone;
    for (std::int64_t s = 0; s < std::ssize(batch.border); ++s) {
      const std::int64_t blocks = batch.border[static_cast<std::size_t>(s)] / c.shape.block_tokens;
      gone.emplace_back(cache.table_row(s), cache.table_row(s) + blocks);
      std::fill_n(cache.table_row(s), blocks, -1'000'000'000);
    }
    args.out = heads(result.out.data(), d);
    args.lse = matrix_of(result.lse.data(), tokens, c.heads);
    args.parts = {.begin = border, .resumed = heads(result.state.data(), d + 2)};
    attention(context_, args);
    synchronize();
    for (std::int64_t s = 0; s < std::ssize(batch.border); ++s) {
      std::ranges::copy(gone[static_cast<std::size_t>(s)], cache.table_row(s));
    }
    return result;
  }
};

/// Attention of one head of one token, in double.
struct Reference {
  std::vector<double> out{};
  double lse = 0.0;
  double score_max = 0.0;
  double products_max = 0.0;  ///< Largest sum of |products| of a score.
  double value_max = 0.0;
};

/// What attention.h allows as the distance of `lse`, and of `out` in units of value_max.
double bound(const Case& c, const Reference& r) {
  const bool rounds = c.shape.dtype != DType::kF32 && c.shape.head_dim % 32 == 0;
  const double rounding = spec::kv_is_scaled(c.shape.dtype) ? 0x1p-7 : 0x1p-8;
  return rounds ? rounding * (1.0 + r.products_max) : 2e-6 * (1.0 + r.score_max);
}

Reference reference(const Case& c,
                    const PagedKvFixture& cache,
                    std::int64_t s,
                    std::int64_t position,
                    std::int64_t head,
                    const float* query) {
  const std::int64_t kv_head = head / (c.heads / c.shape.kv_heads);
  const std::int64_t first = c.window > 0 ? std::max<std::int64_t>(0, position - c.window + 1) : 0;
  Reference result{.out = std::vector<double>(static_cast<std::size_t>(c.shape.head_dim))};
  double total = 0.0;
  if (!c.sinks.empty()) {
    const double sink = c.sinks[static_cast<std::size_t>(head)];
    total = std::exp(sink);
    result.score_max = std::abs(sink);
  }
  for (std::int64_t p = first; p <= position; ++p) {
    double score = 0.0;
    double products = 0.0;
    for (std::int64_t i = 0; i < c.shape.head_dim; ++i) {
      const double product = 0.25 * static_cast<double>(query[i]) *
                             static_cast<double>(cache.at(s, p, kv_head, i, false));
      score += product;
      products += std::abs(product);
    }
    if (c.soft_cap > 0) {
      const double cap = c.soft_cap;
      score = cap * std::tanh(score / cap);
    }
    result.products_max = std::max(result.products_max, products);
    result.score_max = std::max(result.score_max, std::abs(score));
    const double weight = std::exp(score);
    total += weight;
    for (std::int64_t i = 0; i < c.shape.head_dim; ++i) {
      const auto value = static_cast<double>(cache.at(s, p, kv_head, i, true));
      result.out[static_cast<std::size_t>(i)] += weight * value;
      result.value_max = std::max(result.value_max, std::abs(value));
    }
  }
  for (double& value : result.out) {
    value /= total;
  }
  result.lse = std::log(total);
  return result;
}

void AttentionTest::agrees_with_double(const Case& c, const Queried& q) {
  PagedKvFixture cache = fill(c, {q.length});
  const std::int64_t d = c.shape.head_dim;
  const auto query = random(q.fresh * c.heads * d);
  const Answer answer = run_one(c, cache, 0, q.length - q.fresh, q.fresh, query.data());
  for (std::int64_t row = 0; row < q.fresh * c.heads; ++row) {
    const std::int64_t position = q.length - q.fresh + row / c.heads;
    const Reference expected =
        reference(c, cache, 0, position, row % c.heads, query.data() + row * d);
    for (std::int64_t i = 0; i < d; ++i) {
      ASSERT_NEAR(static_cast<double>(answer.out[static_cast<std::size_t>(row * d + i)]),
                  expected.out[static_cast<std::size_t>(i)],
                  bound(c, expected) * expected.value_max)
          << "length " << q.length << " row " << row << " window " << c.window << " head_dim " << d;
    }
    ASSERT_NEAR(static_cast<double>(answer.lse[static_cast<std::size_t>(row)]),
                expected.lse,
                bound(c, expected));
  }
}

/// What keys and values may be.
constexpr std::array kCachedTypes{DType::kF32, DType::kBf16, DType::kI8, DType::kF8};

std::vector<Case> cases(std::int64_t widest = 256) {
  std::vector<Case> result;
  for (const DType dtype : kCachedTypes) {
    for (const std::int64_t window : {0, 1, 7, 16, 33}) {
      if (spec::kv_is_scaled(dtype) && window != 33) {
        continue;  // Which positions are attended to is no matter of types.
      }
      result.push_back(
          {{.kv_heads = 2, .head_dim = 12, .block_tokens = 5, .dtype = dtype}, 6, window});
      result.push_back(
          {{.kv_heads = 1, .head_dim = 16, .block_tokens = 16, .dtype = dtype}, 20, window});
      result.push_back(
          {{.kv_heads = 2, .head_dim = 32, .block_tokens = 5, .dtype = dtype}, 6, window});
      result.push_back(
          {{.kv_heads = 1, .head_dim = 96, .block_tokens = 48, .dtype = dtype}, 20, 5 * window});
    }
    result.push_back({{.kv_heads = 2, .head_dim = 128, .block_tokens = 16, .dtype = dtype}, 8, 0});
    result.push_back({{.kv_heads = 1, .head_dim = 64, .block_tokens = 32, .dtype = dtype}, 16, 0});
    result.push_back({{.kv_heads = 3, .head_dim = widest, .block_tokens = 24, .dtype = dtype}, 3});
    result.push_back({{.kv_heads = 1, .head_dim = 2, .block_tokens = 1, .dtype = dtype}, 1, 3});
    result.push_back(
        {{.kv_heads = 2, .head_dim = 12, .block_tokens = 5, .dtype = dtype}, 6, 0, 2.0F});
    result.push_back(
        {{.kv_heads = 1, .head_dim = 64, .block_tokens = 16, .dtype = dtype}, 3, 33, 4.0F});
    if (dtype == DType::kF8) {
      continue;  // Once they are unpacked, it is as over integers.
    }
    // Of sinks some are above all scores, and some below.
    const std::vector<float> sinks{9.0F, -20.0F, 0.5F, -1.0F, 3.0F, 0.0F};
    result.push_back(
        {{.kv_heads = 2, .head_dim = 12, .block_tokens = 5, .dtype = dtype}, 6, 7, 0.0F, sinks});
    result.push_back(
        {{.kv_heads = 3, .head_dim = 64, .block_tokens = 16, .dtype = dtype}, 6, 0, 0.0F, sinks});
  }
  return result;
}

TEST_F(AttentionTest, AgreesWithDouble) {
  for (const Case& c : cases(gives_one_answer() ? kAttentionHeadDimMax : 256)) {
    for (const Queried q : {Queried{1, 1},
                            Queried{15, 2},
                            Queried{16, 16},
                            Queried{17, 1},
                            Queried{40, 40},
                            Queried{83, 9},
                            Queried{290, 21}}) {
      agrees_with_double(c, q);
    }
  }
}

// Tiles of rows and steps of positions that are whole, and ends of both that are not.
TEST_F(AttentionTest, OfManyRowsItAgreesWithDouble) {
  if (gives_one_answer()) {
    GTEST_SKIP() << "of CPUs the other tests look for it";
  }
  const std::vector<float> sinks{9.0F, -20.0F, 0.5F};
  for (const std::int64_t head_dim : {64, 128, 256}) {
    const PagedKvFixture::Shape shape{
        .kv_heads = 1, .head_dim = head_dim, .block_tokens = 16, .dtype = DType::kBf16};
    agrees_with_double({shape, 1}, {.length = 256, .fresh = 256});
    agrees_with_double({shape, 3, 0, 0.0F, sinks}, {.length = 431, .fresh = 90});
    agrees_with_double({shape, 2, 70, 5.0F}, {.length = 300, .fresh = 150});
  }
}

// A token's bits do not depend on who else is in the batch or on how its sequence is cut, or at
// least, where a backend promises less, its value does not and its bits are the same again.
TEST_F(AttentionTest, GivesATokenTheSameHoweverItIsBatched) {
  const std::vector<Queried> sequences{{37, 37}, {21, 1}, {64, 5}, {18, 17}, {270, 150}};
  for (const Case& c : cases()) {
    if (!gives_one_answer() && c.window % 16 != 0) {
      continue;  // What this test looks for there does not depend on windows.
    }
    std::vector<std::int64_t> lengths;
    std::vector<std::int32_t> begin{0};
    std::vector<std::int32_t> first;
    for (const Queried& q : sequences) {
      lengths.push_back(q.length);
      begin.push_back(begin.back() + static_cast<std::int32_t>(q.fresh));
      first.push_back(static_cast<std::int32_t>(q.length - q.fresh));
    }
    PagedKvFixture cache = fill(c, lengths);
    const auto query = random(begin.back() * c.heads * c.shape.head_dim);
    const std::vector<float> together = run_all(c, cache, begin, first, query);
    std::vector<float> chunked;
    for (std::size_t s = 0; s < sequences.size(); ++s) {
      for (std::int64_t done = 0; done < sequences[s].fresh;) {
        const auto count = static_cast<std::int64_t>(
            1 + rng_.below(static_cast<std::uint64_t>(sequences[s].fresh - done)));
        const Answer part = run_one(c,
                                    cache,
                                    static_cast<std::int64_t>(s),
                                    first[s] + done,
                                    count,
                                    query.data() + (begin[s] + done) * c.heads * c.shape.head_dim);
        chunked.insert(chunked.end(), part.out.begin(), part.out.end());
        done += count;
      }
    }
    if (gives_one_answer()) {
      ASSERT_TRUE(same_bits(together, chunked)) << "window " << c.window;
      continue;
    }
    // Far within what another sequence's keys would make of it.
    const float near = c.shape.dtype != DType::kF32 && c.shape.head_dim % 32 == 0 ? 0.1F : 1e-4F;
    for (std::size_t i = 0; i < together.size(); ++i) {
      ASSERT_NEAR(together[i], chunked[i], near) << "window " << c.window << " at " << i;
    }
    ASSERT_TRUE(same_bits(together, run_all(c, cache, begin, first, query)));
  }
}

// More sequences than lanes of a warp or threads of a pool, long and short by turns.
TEST_F(AttentionTest, FindsTheSequenceOfEachTokenOfMany) {
  for (const DType dtype : kCachedTypes) {
    const Case c{{.kv_heads = 1, .head_dim = 32, .block_tokens = 8, .dtype = dtype}, 3, 0};
    std::vector<std::int64_t> lengths;
    std::vector<std::int32_t> begin{0};
    std::vector<std::int32_t> first;
    for (std::int32_t s = 0; s < 75; ++s) {
      const std::int32_t fresh = s % 5 == 2 ? 30 : 1 + s % 2 * 4;
      first.push_back(s % 7 * 3);
      begin.push_back(begin.back() + fresh);
      lengths.push_back(first.back() + fresh);
    }
    PagedKvFixture cache = fill(c, lengths);
    const std::int64_t d = c.shape.head_dim;
    const auto query = random(begin.back() * c.heads * d);
    const std::vector<float> out = run_all(c, cache, begin, first, query);
    std::int64_t row = 0;
    for (std::size_t s = 0; s < lengths.size(); ++s) {
      for (std::int64_t position = first[s]; position < lengths[s]; ++position) {
        for (std::int64_t head = 0; head < c.heads; ++head, ++row) {
          const Reference expected = reference(
              c, cache, static_cast<std::int64_t>(s), position, head, query.data() + row * d);
          for (std::int64_t i = 0; i < d; ++i) {
            ASSERT_NEAR(static_cast<double>(out[static_cast<std::size_t>(row * d + i)]),
                        expected.out[static_cast<std::size_t>(i)],
                        bound(c, expected) * expected.value_max)
                << "sequence " << s << " position " << position;
          }
        }
      }
    }
  }
}

// A head whose scale is no number shows in what attends to it, and nowhere else.
TEST_F(AttentionTest, OverCodesOfAHeadThatIsNotFiniteItGivesNoNumber) {
  for (const std::int64_t head_dim : {12, 64}) {
    for (const bool of_value : {false, true}) {
      const DType dtype = of_value ? DType::kI8 : DType::kF8;
      const Case c{{.kv_heads = 2, .head_dim = head_dim, .dtype = dtype}, 2, 0};
      PagedKvFixture cache = fill(c, {40});
      const auto good = random(2 * head_dim);
      auto bad = good;
      bad[3] = of_value ? INFINITY : NAN;
      cache.put(0, 20, (of_value ? good : bad).data(), (of_value ? bad : good).data());
      const auto query = random(3 * 2 * head_dim);
      // Of three tokens the first does not attend to it. Kernels in float32 on a GPU multiply
      // values of later positions with 0, though, so there each token is for itself.
      const std::int64_t first = gives_one_answer() || head_dim == 64 ? 19 : 21;
      const Answer after = run_one(c, cache, 0, first, 22 - first, query.data());
      for (std::int64_t i = 0; i < (22 - first) * 2 * head_dim; ++i) {
        const bool attends = first + i / (2 * head_dim) >= 20 && i % (2 * head_dim) < head_dim;
        EXPECT_EQ(std::isnan(after.out[static_cast<std::size_t>(i)]), attends) << i;
      }
    }
  }
}

TEST_F(AttentionTest, DoesNotTouchBlocksThatFellOutOfTheWindow) {
  for (const std::int64_t head_dim : {8, 64}) {
    const Case c{
        {.kv_heads = 1, .head_dim = head_dim, .block_tokens = 4, .dtype = DType::kBf16}, 2, 6};
    PagedKvFixture cache = fill(c, {30});
    const auto query = random(c.heads * c.shape.head_dim);
    const Answer before = run_one(c, cache, 0, 29, 1, query.data());
    for (int block = 0; block < 6; ++block) {  // Positions 0..23; the window is 24..29.
      cache.table_row(0)[block] = -1'000'000'000;
    }
    const Answer after = run_one(c, cache, 0, 29, 1, query.data());
    EXPECT_TRUE(same_bits(before.out, after.out));
  }
}

// What one call over all positions gives comes out, to the bit, where a host has the first of them:
// it never sees the later ones, nor does home see those.
TEST_F(AttentionTest, InTwoPartsItGivesTheBitsOfOneCall) {
  if (!gives_one_answer()) {
    GTEST_SKIP() << "its bits are not promised";
  }
  for (Case c : cases()) {
    c.window = 0;
    const Divided batch = divide(attention_border(), 6);
    PagedKvFixture cache = fill(c, batch.lengths);
    const std::int64_t d = c.shape.head_dim;
    const std::int64_t tokens = batch.begin.back();
    const auto query = random(tokens * c.heads * d);
    const std::vector<float> whole = run_all(c, cache, batch.begin, batch.first, query);
    const InParts parts = run_parts(c, cache, batch, query);
    ASSERT_TRUE(same_bits(whole, parts.out))
        << "head_dim " << d << " block " << c.shape.block_tokens;
  }
}

// Wherever the border is, where bits are not promised.
TEST_F(AttentionTest, InTwoPartsItAgreesWithDouble) {
  for (Case c : cases()) {
    if (std::exchange(c.window, 0) % 33 != 0) {
      continue;  // Without its window it is as another.
    }
    const Divided batch = divide(gives_one_answer() ? attention_border() : 1, 5);
    PagedKvFixture cache = fill(c, batch.lengths);
    const std::int64_t d = c.shape.head_dim;
    const auto query = random(batch.begin.back() * c.heads * d);
    const InParts parts = run_parts(c, cache, batch, query);
    for (std::int64_t row = 0; row < batch.begin.back() * c.heads; ++row) {
      const std::int64_t token = row / c.heads;
      const auto s =
          static_cast<std::size_t>(std::upper_bound(batch.begin.begin(), batch.begin.end(), token) -
                                   batch.begin.begin() - 1);
      const std::int64_t position = batch.first[s] + token - batch.begin[s];
      const float* const own = query.data() + row * d;
      const auto at = static_cast<std::int64_t>(s);
      const Reference expected = reference(c, cache, at, position, row % c.heads, own);
      const double near = bound(c, expected);
      ASSERT_NEAR(
          static_cast<double>(parts.lse[static_cast<std::size_t>(row)]), expected.lse, near);
      for (std::int64_t i = 0; i < d; ++i) {
        ASSERT_NEAR(static_cast<double>(parts.out[static_cast<std::size_t>(row * d + i)]),
                    expected.out[static_cast<std::size_t>(i)],
                    near * expected.value_max);
      }
      if (batch.border[s] == 0) {
        continue;
      }
      Case early = c;
      early.sinks.clear();  // Which come behind all positions.
      const Reference away = reference(early, cache, at, batch.border[s] - 1, row % c.heads, own);
      const float* const state = parts.state.data() + row * (d + 2);
      ASSERT_NEAR(static_cast<double>(state[d] + std::log(state[d + 1])), away.lse, bound(c, away))
          << "row " << row << " border " << batch.border[s];
      ASSERT_NEAR(static_cast<double>(state[0] / state[d + 1]),
                  away.out[0],
                  bound(c, away) * away.value_max);
    }
  }
}

// The rows of other sequences of the batch, whose positions are all here, stay as they are.
TEST_F(AttentionTest, APartIsOfTheSequencesThatItIsGiven) {
  for (const DType dtype : kCachedTypes) {
    const Case c{{.kv_heads = 1, .head_dim = 32, .block_tokens = 16, .dtype = dtype}, 2, 0};
    const std::int64_t step = attention_border();
    PagedKvFixture cache = fill(c, {9, 2 * step});
    const std::int64_t d = c.shape.head_dim;
    const auto query = random(2 * c.heads * d);
    const auto heads = [&](float* data, std::int64_t width) {
      return heads_of(matrix_of(data, 2, c.heads * width), 0, c.heads, width);
    };
    const std::vector<std::int32_t> begin{1, 2};
    const std::vector<std::int32_t> first{static_cast<std::int32_t>(2 * step - 1)};
    const std::vector<std::int32_t> border{static_cast<std::int32_t>(step)};
    std::vector<float> state(static_cast<std::size_t>(2 * c.heads * (d + 2)), 7.0F);
    PagedKv kv = cache.kv();
    kv.table.data += kv.table.stride[0] * 4;
    kv.table.shape[0] = 1;
    attention(context_,
              {.rows = rows_of(begin, first),
               .query = heads(const_cast<float*>(query.data()), d),
               .kv = kv,
               .scale = 0.25F,
               .parts = {.end = vector_of(border.data(), 1), .left = heads(state.data(), d + 2)}});
    synchronize();
    EXPECT_TRUE(std::all_of(state.begin(), state.begin() + c.heads * (d + 2), [](float value) {
      return value == 7.0F;
    }));
    const Reference away = reference(c, cache, 1, step - 1, 0, query.data() + c.heads * d);
    const float* const own = state.data() + c.heads * (d + 2);
    EXPECT_NEAR(static_cast<double>(own[d] + std::log(own[d + 1])), away.lse, bound(c, away));
  }
}

TEST_F(AttentionTest, APartDoesNotTouchWhatIsBehindItsEnd) {
  const auto step = static_cast<std::int32_t>(attention_border());
  const Case c{{.kv_heads = 2, .head_dim = 64, .block_tokens = 16, .dtype = DType::kBf16}, 4, 0};
  PagedKvFixture cache = fill(c, {2 * step});
  std::fill_n(cache.table_row(0) + step / 16, step / 16, -1'000'000'000);
  const std::int64_t d = c.shape.head_dim;
  const auto query = random(c.heads * d);
  std::vector<float> state(static_cast<std::size_t>(c.heads * (d + 2)), NAN);
  const std::vector<std::int32_t> begin{0, 1};
  const std::vector<std::int32_t> first{2 * step - 1};
  attention(context_,
            {.rows = rows_of(begin, first),
             .query = heads_of(
                 matrix_of(const_cast<float*>(query.data()), 1, c.heads * d), 0, c.heads, d),
             .kv = cache.kv(),
             .scale = 0.25F,
             .parts = {.end = vector_of(&step, 1),
                       .left = heads_of(
                           matrix_of(state.data(), 1, c.heads * (d + 2)), 0, c.heads, d + 2)}});
  synchronize();
  for (const float number : state) {
    EXPECT_TRUE(std::isfinite(number));
  }
}

// Partial results over disjoint positions merge by their log-sum-exps: what offloading relies on.
TEST_F(AttentionTest, LseMergesPartialResults) {
  const Case c{{.kv_heads = 1, .head_dim = 8, .block_tokens = 16, .dtype = DType::kF32}, 1, 0};
  PagedKvFixture cache = fill(c, {48});
  const auto query = random(c.shape.head_dim);
  const Answer whole = run_one(c, cache, 0, 47, 1, query.data());
  const Answer head = run_one(c, cache, 0, 31, 1, query.data());  // Positions 0..31,
  Case tail_case = c;
  tail_case.window = 16;
  const Answer tail = run_one(tail_case, cache, 0, 47, 1, query.data());  // and 32..47.
  const float share = 1.0F / (1.0F + std::exp(tail.lse[0] - head.lse[0]));
  for (std::size_t i = 0; i < whole.out.size(); ++i) {
    EXPECT_NEAR(whole.out[i], head.out[i] * share + tail.out[i] * (1.0F - share), 1e-5F);
  }
}

}  // namespace
}  // namespace heddle::ops
