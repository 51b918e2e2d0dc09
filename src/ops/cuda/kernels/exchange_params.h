#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle::ops::cuda {

/// Blocks of an exchange at most. Block b of a rank meets block b of the others, and nobody else.
constexpr std::uint32_t kExchangeBlocks = 32;
constexpr std::uint32_t kExchangeThreads = 256;
constexpr std::int32_t kExchangeRanks = 8;
/// What a block hands on in one round [floats].
constexpr std::int32_t kExchangeFloats = 4096;

/// A rank's memory that the others reach.
struct ExchangeArea {
  /// How far each rank's blocks are, written by them. It counts round.
  std::uint32_t flags[kExchangeRanks][kExchangeBlocks];
  /// How far the rank's own blocks are, between two exchanges.
  std::uint32_t turns[kExchangeBlocks];
  alignas(4096) float given[2][kExchangeBlocks][kExchangeFloats];
  /// Sums of a rank's part, of at most half.
  float sums[2][kExchangeBlocks][kExchangeFloats / 2];
};

/// What both exchanges have.
struct ExchangeGroup {
  ExchangeArea* areas[kExchangeRanks];  ///< By rank.
  const std::uint32_t* abandoned;       ///< Bit 0: nobody need be waited for.
  std::int32_t rank;
  std::int32_t ranks;
};

/// Of heddle_all_reduce.
struct AllReduceParams {
  ExchangeGroup group;
  float* data;
  std::int64_t count;
  std::int32_t quads;     ///< Not 0: `count` is a multiple of four, and data aligned so.
  std::int32_t two_shot;  ///< Not 0: each rank sums a part, and all gather the parts.
};

/// Of heddle_all_gather.
struct AllGatherParams {
  ExchangeGroup group;
  float* data;  ///< [rows, columns]
  std::int64_t rows;
  std::int32_t columns;
  std::int32_t ends[kExchangeRanks];  ///< Of ranks' columns.
  std::int32_t widest;                ///< Columns of a rank at most.
};

}  // namespace heddle::ops::cuda
