#pragma once

#include <cstdint>

namespace heddle::ops::cuda {

// How the kernels of attention are launched: what both sides must agree on. kStep is the number of
// positions that a block takes at once.

/// The shape of a kernel: head_dim, warps with rows of their own, warps with positions of their
/// own.
template <int kHeadDimOf, int kWarpsRows, int kWarpsPositions>
struct MmaShape {
  static constexpr int kHeadDim = kHeadDimOf;
  static constexpr int kRowWarps = kWarpsRows;
  static constexpr int kPositionWarps = kWarpsPositions;
  static constexpr int kThreads = kRowWarps * kPositionWarps * 32;
  static constexpr int kRows = 16 * kRowWarps;
  static constexpr int kStep = kHeadDim <= 128 ? 64 : 32;
  static constexpr int kWarpStep = kStep / kPositionWarps;
  static constexpr int kChunks = kHeadDim / 8;  ///< Of 16 bytes, of a key.
  /// Bytes from key to key in shared memory: an odd number of chunks, so that eight keys' same
  /// chunks meet no bank twice.
  static constexpr int kStride = kHeadDim * 2 + 16;
  static constexpr int kStageBytes = 2 * kStep * kStride;  ///< Keys, then values.
  /// Queries too large for registers beside the sums stay in shared memory, as lanes hold them.
  static constexpr bool kQueryShared = kHeadDim > 128;
  static constexpr int kQueryBytes = kQueryShared ? kRowWarps * (kHeadDim / 16) * 32 * 16 : 0;
  static constexpr int kPlaces = 2 * kStep;  ///< Where the positions of two steps are.
  static constexpr int kSharedBytes =
      2 * kStageBytes + kQueryBytes + kPlaces * static_cast<int>(sizeof(std::int64_t));
  static_assert(kWarpStep % 16 == 0 && kHeadDim % 32 == 0);
  static_assert(kPositionWarps * 16 * (kHeadDim + 2) * 4 <= 2 * kStageBytes, "the last sums fit");
};

template <int kHeadDim>
using MmaWide = MmaShape<kHeadDim, 4, 1>;
/// In a wide kernel's place: twice as many warps share keys and values, which come to shared memory
/// half as often for each row.
template <int kHeadDim>
using MmaBroad = MmaShape<kHeadDim, 8, 1>;
template <int kHeadDim>
using MmaNarrow = MmaShape<kHeadDim, 1, kHeadDim <= 128 ? 4 : 2>;

// The kernels in float32 (attention_fma.cu).
constexpr int kFmaThreads = 128;
constexpr int kFmaStep = 32;
constexpr int kFmaNarrowRows = 8;
constexpr int kFmaMediumRows = 16;  ///< In the wide kernel's place where that does not fit.
constexpr int kFmaWideRows = 32;

/// Elements from row to row of queries, keys and values in shared memory: padded with zeros to a
/// multiple of four and then by four, so that lanes that read four elements each of neighbouring
/// rows meet no bank twice.
constexpr int fma_stride(int head_dim) {
  return (head_dim + 3) / 4 * 4 + 4;
}
/// Queries, keys and values; weights; one number for each row.
constexpr int fma_shared_bytes(int head_dim, int rows) {
  return ((rows + 2 * kFmaStep) * fma_stride(head_dim) + rows * kFmaStep + rows) * 4;
}

/// Shared memory that a block can have on every GPU from 8.0 on (8.6 has the least); some have
/// more.
constexpr int kSharedBytesEverywhere = 99 << 10;
static_assert(MmaWide<256>::kSharedBytes <= kSharedBytesEverywhere);
static_assert(MmaWide<128>::kSharedBytes <= kSharedBytesEverywhere);
static_assert(MmaBroad<128>::kSharedBytes <= kSharedBytesEverywhere);
static_assert(fma_shared_bytes(256, kFmaMediumRows) <= kSharedBytesEverywhere);

}  // namespace heddle::ops::cuda
