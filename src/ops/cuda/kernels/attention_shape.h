#pragma once

#include <cstdint>

namespace heddle::ops::cuda {

// How the kernels of attention are launched: what both sides must agree on. kStep is the number of
// positions that a block takes at once.

/// The shape of a kernel: head_dim, warps with rows of their own, warps with positions of their
/// own, and whether keys and values are codes of a byte each or bfloat16.
template <int kHeadDimOf, int kWarpsRows, int kWarpsPositions, bool kOfCodes>
struct MmaShape {
  static constexpr int kHeadDim = kHeadDimOf;
  static constexpr bool kCodes = kOfCodes;
  static constexpr int kRowWarps = kWarpsRows;
  static constexpr int kPositionWarps = kWarpsPositions;
  static constexpr int kThreads = kRowWarps * kPositionWarps * 32;
  static constexpr int kRows = 16 * kRowWarps;
  static constexpr int kStep = kHeadDim <= 128 ? 64 : 32;
  static constexpr int kWarpStep = kStep / kPositionWarps;
  static constexpr int kChunks = kHeadDim / (kCodes ? 16 : 8);  ///< Of 16 bytes, of a key.
  /// Bytes from key to key in shared memory, in bfloat16: an odd number of chunks, so that eight
  /// keys' same chunks meet no bank twice.
  static constexpr int kStride = kHeadDim * 2 + 16;
  static constexpr int kTileBytes = 2 * kStep * kStride;  ///< Keys, then values.
  /// The same where they arrive: codes become a tile in another place.
  static constexpr int kStageStride = kCodes ? kHeadDim : kStride;
  static constexpr int kStageBytes = 2 * kStep * kStageStride;
  static constexpr int kStagesBytes = 2 * kStageBytes + (kCodes ? kTileBytes : 0);
  /// Queries too large for registers beside the sums stay in shared memory, as lanes hold them.
  static constexpr bool kQueryShared = kHeadDim > 128;
  static constexpr int kQueryBytes = kQueryShared ? kRowWarps * (kHeadDim / 16) * 32 * 16 : 0;
  static constexpr int kPlaceSteps = 2;  ///< Of whose positions the places are noted down.
  static constexpr int kScalesBytes = kCodes ? 2 * kStep * static_cast<int>(sizeof(float)) : 0;
  static constexpr int kSharedBytes = kStagesBytes + kQueryBytes +
                                      kPlaceSteps * kStep * static_cast<int>(sizeof(std::int64_t)) +
                                      kScalesBytes;
  static_assert(kWarpStep % 16 == 0 && kHeadDim % 32 == 0);
  static_assert(kPositionWarps * 16 * (kHeadDim + 2) * 4 <= kStagesBytes, "the last sums fit");
};

template <int kHeadDim, bool kCodes = false>
using MmaWide = MmaShape<kHeadDim, 4, 1, kCodes>;
/// In a wide kernel's place: twice as many warps share keys and values, which come to shared memory
/// half as often for each row.
template <int kHeadDim>
using MmaBroad = MmaShape<kHeadDim, 8, 1, false>;
template <int kHeadDim, bool kCodes = false>
using MmaNarrow = MmaShape<kHeadDim, 1, kHeadDim <= 128 ? 4 : 2, kCodes>;

/// The shape of a kernel on products of warpgroups (attention_wgmma.cuh): head_dim, warpgroups with
/// rows of their own, positions at once.
template <int kHeadDimOf, int kWarpgroups, int kStepOf>
struct WgmmaShape {
  static constexpr int kHeadDim = kHeadDimOf;
  static constexpr int kRowWarps = 4 * kWarpgroups;
  static constexpr int kPositionWarps = 1;
  static constexpr int kThreads = kRowWarps * 32;
  static constexpr int kRows = 16 * kRowWarps;
  static constexpr int kStep = kStepOf;
  static constexpr int kWarpStep = kStep;
  static constexpr int kChunks = kHeadDim / 8;  ///< Of 16 bytes, of a key.
  /// Rows lie in panels of 64 columns: lines of 128 bytes, eight of which are an atom.
  static constexpr int kLine = 128;
  static constexpr int kLineChunks = 8;
  static constexpr int kAtom = 8 * kLine;
  static constexpr int kTileBytes = kStep * kHeadDim * 2;   ///< Keys, or values, of a step.
  static constexpr int kQueryBytes = kRows * kHeadDim * 2;  ///< Of the block's rows.
  static constexpr int kPlaceSteps = 4;
  /// Queries, two tiles of keys and two of values from a multiple of kAtom on; places.
  static constexpr int kSharedBytes =
      kAtom + kQueryBytes + 4 * kTileBytes + kPlaceSteps * kStep * 8;
  static_assert(kStep % 64 == 0 && kHeadDim % 64 == 0);
};

/// In a wide kernel's place on GPUs of 9.0. A block has a multiprocessor for itself: sums, scores
/// and weights fill its registers.
template <int kHeadDim>
using WgmmaWide = WgmmaShape<kHeadDim, 2, kHeadDim <= 128 ? 128 : 64>;

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
static_assert(MmaWide<256, true>::kSharedBytes <= kSharedBytesEverywhere);
static_assert(MmaWide<128, true>::kSharedBytes <= kSharedBytesEverywhere);
static_assert(MmaBroad<128>::kSharedBytes <= kSharedBytesEverywhere);
/// The same of 9.0.
constexpr int kSharedBytesOf90 = 227 << 10;
static_assert(WgmmaWide<128>::kSharedBytes <= kSharedBytesOf90);
static_assert(WgmmaWide<256>::kSharedBytes <= kSharedBytesOf90);
static_assert(fma_shared_bytes(256, kFmaMediumRows) <= kSharedBytesEverywhere);

}  // namespace heddle::ops::cuda
