#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle::ops {

/// Tokens of a tile, at most.
inline constexpr std::int64_t kLowRankTileTokens = 32;
/// Pairs that an adapter has for one product, at most: of queries, keys and values.
inline constexpr std::int64_t kLowRankPairs = 3;
/// Rows of an A, and inputs of a B, that kernels take at once.
inline constexpr std::int64_t kLowRankStep = 16;

/// Two matrices of an adapter, as a table on the device has them: what LowRankPair is to the host.
struct LowRankEntry {
  const std::byte* a = nullptr;  ///< [rank, inputs], contiguous, from a multiple of 16 on.
  const std::byte* b = nullptr;  ///< [outputs, rank], likewise.
  std::int32_t first = 0;        ///< Of the product's outputs.
  std::int32_t outputs = 0;
  std::int32_t rank = 0;  ///< 0: there is no pair.
  std::int32_t padding = 0;
};

/// Consecutive tokens that go through one adapter.
struct LowRankTile {
  const LowRankEntry* table = nullptr;  ///< The adapter's, on the device.
  std::int32_t first = 0;
  std::int32_t tokens = 0;  ///< At most kLowRankTileTokens; 0: nothing is done.
};

}  // namespace heddle::ops
