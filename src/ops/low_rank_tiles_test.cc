#include "ops/low_rank_tiles.h"

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "ops/op_test.h"

namespace heddle::ops {
namespace {

/// Numbers as they were drawn, rounded where they are bfloat16.
struct TiledNumbers {
  std::vector<float> wide{};
  std::vector<std::uint16_t> narrow{};

  [[nodiscard]] const std::byte* data() const {
    return narrow.empty() ? reinterpret_cast<const std::byte*>(wide.data())
                          : reinterpret_cast<const std::byte*>(narrow.data());
  }
};

/// The pairs of one adapter for one product, and its table, of which the first entries are of
/// another product.
struct TiledAdapter {
  struct Pair {
    std::int64_t first = 0;
    std::int64_t outputs = 0;
    std::int64_t rank = 0;
    TiledNumbers a{};
    TiledNumbers b{};
  };
  std::vector<Pair> pairs{};
  std::vector<LowRankEntry> table{};
};

/// A product's shape, and what its tiles are.
struct TiledCase {
  struct Tile {
    int adapter = 0;
    std::int32_t first = 0;
    std::int32_t tokens = 0;
  };
  std::int64_t tokens = 0;
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  std::vector<Tile> tiles{};
};

class LowRankTilesTest : public OpTest {
 protected:
  static constexpr std::int64_t kEntry = 4;
  static constexpr std::int64_t kRankMost = 40;

  TiledNumbers draw(std::int64_t count, DType dtype, float deviation = 1.0F) {
    TiledNumbers numbers{.wide = random(count, deviation)};
    if (dtype == DType::kBf16) {
      numbers.narrow = rounded(numbers.wide);
      numbers.wide = widened(numbers.narrow);
    }
    return numbers;
  }

  void add_pair(TiledAdapter& adapter,
                std::int64_t first,
                std::int64_t outputs,
                std::int64_t rank,
                std::int64_t inputs,
                DType dtype) {
    adapter.pairs.push_back({.first = first,
                             .outputs = outputs,
                             .rank = rank,
                             .a = draw(rank * inputs, dtype, 0.1F),
                             .b = draw(outputs * rank, dtype)});
  }

  /// One adapter of all three parts of 300 outputs, which begin anywhere; one of the middle one;
  /// one of all outputs at once, with a rank of several steps.
  std::vector<TiledAdapter> adapters(std::int64_t inputs, DType dtype) {
    std::vector<TiledAdapter> made(3);
    add_pair(made[0], 0, 200, 7, inputs, dtype);
    add_pair(made[0], 200, 57, 7, inputs, dtype);
    add_pair(made[0], 257, 43, 7, inputs, dtype);
    add_pair(made[1], 200, 57, 16, inputs, dtype);
    add_pair(made[2], 0, 300, kRankMost, inputs, dtype);
    for (TiledAdapter& adapter : made) {
      adapter.table.resize(kEntry + kLowRankPairs);
      // Where only a part has one, it is not the first entry.
      std::size_t at = adapter.pairs.size() == 1 ? 1 : 0;
      for (const TiledAdapter::Pair& pair : adapter.pairs) {
        adapter.table[kEntry + at++] = {.a = pair.a.data(),
                                        .b = pair.b.data(),
                                        .first = static_cast<std::int32_t>(pair.first),
                                        .outputs = static_cast<std::int32_t>(pair.outputs),
                                        .rank = static_cast<std::int32_t>(pair.rank)};
      }
    }
    return made;
  }

  static std::vector<LowRankTile> tiles_of(const std::vector<TiledCase::Tile>& tiles,
                                           const std::vector<TiledAdapter>& adapters) {
    std::vector<LowRankTile> made;
    for (const TiledCase::Tile& tile : tiles) {
      made.push_back({.table = adapters[static_cast<std::size_t>(tile.adapter)].table.data(),
                      .first = tile.first,
                      .tokens = tile.tokens});
    }
    return made;
  }

  /// x and out are parts of wider rows.
  static constexpr std::int64_t kBeside = 8;
  void enqueue(const TiledCase& c,
               const TiledNumbers& x,
               const std::vector<LowRankTile>& tiles,
               TiledNumbers& out) {
    const DType dtype = x.narrow.empty() ? DType::kF32 : DType::kBf16;
    const DType out_type = out.narrow.empty() ? DType::kF32 : DType::kBf16;
    auto* const rows = const_cast<std::byte*>(x.data());
    auto* const sums = const_cast<std::byte*>(out.data());
    add_low_rank_tiles(
        context_,
        {.x = columns_of(tensor_2d(rows, dtype, c.tokens, c.inputs + kBeside), 0, c.inputs),
         .tiles = tiles.data(),
         .count = std::ssize(tiles),
         .entry = kEntry,
         .pairs = kLowRankPairs,
         .rank = kRankMost,
         .out =
             columns_of(tensor_2d(sums, out_type, c.tokens, c.outputs + kBeside), 0, c.outputs)});
  }

  /// What is expected of an output, in double, and the sum of the magnitudes that it is made of: 0
  /// where nothing is added.
  struct Wanted {
    double sum = 0.0;
    double terms = 0.0;
  };
  static Wanted expected(const TiledCase& c,
                         const TiledNumbers& x,
                         const std::vector<TiledAdapter>& adapters,
                         std::int64_t token,
                         std::int64_t output) {
    const auto number = [](const TiledNumbers& of, std::int64_t at) {
      return static_cast<double>(of.wide[static_cast<std::size_t>(at)]);
    };
    Wanted wanted;
    for (const TiledCase::Tile& tile : c.tiles) {
      if (token < tile.first || token >= tile.first + tile.tokens) {
        continue;
      }
      for (const auto& pair : adapters[static_cast<std::size_t>(tile.adapter)].pairs) {
        if (output < pair.first || output >= pair.first + pair.outputs) {
          continue;
        }
        for (std::int64_t k = 0; k < pair.rank; ++k) {
          double inner = 0.0;
          for (std::int64_t i = 0; i < c.inputs; ++i) {
            inner += number(pair.a, k * c.inputs + i) * number(x, token * (c.inputs + kBeside) + i);
          }
          const double term = number(pair.b, (output - pair.first) * pair.rank + k) * inner;
          wanted.sum += term;
          wanted.terms += std::abs(term);
        }
      }
    }
    return wanted;
  }

  void expect_sums(const TiledCase& c, DType dtype, DType out_type) {
    SCOPED_TRACE(std::string(spec::dtype_name(dtype)) + " to " +
                 std::string(spec::dtype_name(out_type)) + ", inputs " + std::to_string(c.inputs));
    const std::vector<TiledAdapter> made = adapters(c.inputs, dtype);
    const TiledNumbers x = draw(c.tokens * (c.inputs + kBeside), dtype);
    TiledNumbers out = draw(c.tokens * (c.outputs + kBeside), out_type);
    const std::vector<float> before = out.wide;
    const std::vector<LowRankTile> tiles = tiles_of(c.tiles, made);
    enqueue(c, x, tiles, out);
    synchronize();
    const std::vector<float> after = out.narrow.empty() ? out.wide : widened(out.narrow);
    // A x is rounded, and what is stored.
    const double of_terms = dtype == DType::kF32 ? 1e-5 : 0x1p-8;
    const double of_sum = out_type == DType::kF32 ? 1e-5 : 0x1p-8;
    std::size_t changed = 0;
    for (std::int64_t token = 0; token < c.tokens; ++token) {
      for (std::int64_t output = 0; output < c.outputs + kBeside; ++output) {
        const auto at = static_cast<std::size_t>(token * (c.outputs + kBeside) + output);
        const auto old = static_cast<double>(before[at]);
        const Wanted wanted = expected(c, x, made, token, output);
        if (wanted.terms == 0.0) {
          ASSERT_EQ(std::bit_cast<std::uint32_t>(after[at]),
                    std::bit_cast<std::uint32_t>(before[at]))
              << token << ", " << output;
        } else {
          ++changed;
          ASSERT_NEAR(static_cast<double>(after[at]),
                      old + wanted.sum,
                      of_terms * wanted.terms + of_sum * std::abs(old + wanted.sum))
              << token << ", " << output;
        }
      }
    }
    EXPECT_GT(changed, 0U);
  }
};

TEST_F(LowRankTilesTest, AddsBOfAOfEachToken) {
  // Whole tiles, parts of one, single tokens, tokens of none and tiles of none.
  const std::vector<TiledCase::Tile> tiles{{.adapter = 0, .first = 0, .tokens = 32},
                                           {.adapter = 0, .first = 32, .tokens = 3},
                                           {.adapter = 1, .first = 36, .tokens = 1},
                                           {},
                                           {.adapter = 2, .first = 37, .tokens = 17},
                                           {.adapter = 1, .first = 60, .tokens = 1}};
  for (const std::int64_t inputs : {70, 72, 640}) {
    const TiledCase c{.tokens = 62, .inputs = inputs, .outputs = 300, .tiles = tiles};
    expect_sums(c, DType::kF32, DType::kF32);
    expect_sums(c, DType::kBf16, DType::kF32);
    expect_sums(c, DType::kBf16, DType::kBf16);
  }
}

TEST_F(LowRankTilesTest, ATokensBitsAreItsOwn) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    const TiledCase c{.tokens = 40, .inputs = 328, .outputs = 300};
    const std::vector<TiledAdapter> made = adapters(c.inputs, dtype);
    const TiledNumbers x = draw(c.tokens * (c.inputs + kBeside), dtype);
    const TiledNumbers before = draw(c.tokens * (c.outputs + kBeside), DType::kF32);
    TiledNumbers together = before;
    TiledNumbers alone = before;
    const auto some = tiles_of(
        {{.adapter = 0, .first = 0, .tokens = 9}, {.adapter = 2, .first = 9, .tokens = 31}}, made);
    std::vector<TiledCase::Tile> each;
    for (std::int32_t token = 0; token < 40; ++token) {
      each.push_back({.adapter = token < 9 ? 0 : 2, .first = token, .tokens = 1});
    }
    const auto ones = tiles_of(each, made);
    enqueue(c, x, some, together);
    enqueue(c, x, ones, alone);
    synchronize();
    EXPECT_TRUE(same_bits(together.wide, alone.wide));
    EXPECT_FALSE(same_bits(together.wide, before.wide));
  }
}

TEST_F(LowRankTilesTest, WhatWasRecordedGoesThroughOtherAdapters) {
  const TiledCase c{.tokens = 4, .inputs = 72, .outputs = 300};
  const std::vector<TiledAdapter> made = adapters(c.inputs, DType::kBf16);
  const TiledNumbers x = draw(c.tokens * (c.inputs + kBeside), DType::kBf16);
  const TiledNumbers before = draw(c.tokens * (c.outputs + kBeside), DType::kF32);
  const std::vector<TiledCase::Tile> first{{.adapter = 0, .first = 0, .tokens = 4}, {}};
  const std::vector<TiledCase::Tile> then{{.adapter = 2, .first = 0, .tokens = 1},
                                          {.adapter = 1, .first = 2, .tokens = 2}};
  std::vector<LowRankTile> tiles = tiles_of(first, made);
  TiledNumbers out = before;
  enqueue(c, x, tiles, out);  // Kernels are loaded.
  synchronize();
  ASSERT_TRUE(stream_.begin_capture());
  enqueue(c, x, tiles, out);
  const auto graph = stream_.end_capture();
  ASSERT_TRUE(graph) << graph.error().message;
  for (const auto& wanted : {first, then}) {
    const std::vector<LowRankTile> now = tiles_of(wanted, made);
    std::ranges::copy(now, tiles.begin());
    std::ranges::copy(before.wide, out.wide.begin());
    stream_.replay(**graph);
    synchronize();
    TiledNumbers plain = before;
    enqueue(c, x, now, plain);
    synchronize();
    EXPECT_TRUE(same_bits(out.wide, plain.wide));
    EXPECT_FALSE(same_bits(out.wide, before.wide));
  }
}

TEST_F(LowRankTilesTest, ScratchIsOfWholeSteps) {
  EXPECT_EQ(low_rank_tiles_bytes(5, 16, DType::kBf16), 5U * 3 * 16 * 2);
  EXPECT_EQ(low_rank_tiles_bytes(5, 17, DType::kF32), 5U * 3 * 32 * 4);
}

}  // namespace
}  // namespace heddle::ops
