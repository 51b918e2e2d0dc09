#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle::ops::cuda {

/// Blocks of an exchange at most. Each takes a channel, in the order in which they begin, and meets
/// who has that channel on the other ranks. So no two ranks wait for each other crosswise where not
/// all blocks run at once.
constexpr std::uint32_t kExchangeBlocks = 32;
constexpr std::uint32_t kExchangeThreads = 256;
constexpr std::int32_t kExchangeRanks = 8;
/// What a block hands on in one round [floats].
constexpr std::int32_t kExchangeFloats = 4096;

/// A rank's memory that the others reach.
struct ExchangeArea {
  /// How far each rank is with a channel, written by it. It counts round.
  std::uint32_t flags[kExchangeRanks][kExchangeBlocks];
  /// How far the rank itself is, between two exchanges.
  std::uint32_t turns[kExchangeBlocks];
  std::uint32_t channels;  ///< Taken by blocks that have begun; none between two exchanges.
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
