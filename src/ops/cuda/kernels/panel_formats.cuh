#pragma once

#include "ops/cuda/kernels/codes.cuh"
#include "ops/cuda/kernels/elements.cuh"
#include "ops/cuda/kernels/panel_intrinsics.cuh"

/// Weights of sixteen outputs, as a warp takes them for products on tensor cores: blocks in panels
/// (spec/block_panels.h), or rows of bfloat16. A *part* is 32 inputs, of which an instruction takes
/// half; a *step* is what a warp copies to shared memory at once. With g = lane / 4 and t = lane %
/// 4, a lane has rows g and g + 8, and of each half of a part the four inputs from x_place() on:
/// as sums do not mind the order of inputs, those that a panel has in one word.
///
/// Integers of blocks become bfloat16, exactly; what they are multiplied with meets their sums.
namespace heddle::ops::cuda {

/// Of a row, in a part: what numbers are multiplied with and what is added to each, or what those
/// of each half are multiplied with.
struct PanelScales {
  float first;
  float second;
};

/// Begins to copy `bytes`, a multiple of 16, side by side.
__device__ inline void copy_panel(std::byte* to, const std::byte* from, int bytes) {
  for (int at = static_cast<int>(lane_index()) * 16; at < bytes; at += 32 * 16) {
    copy_async(to + at, from + at, true);
  }
}

/// Words of four inputs become the operands of both halves. `words` has word t of half h, of row r,
/// in [r][h]; lanes of t < 2 begin with row g and the others with row g + 8, so that no two meet in
/// a bank. `to_pairs` makes two pairs of bfloat16 of a word.
template <class Read, class ToPairs>
__device__ inline void make_operands(Read read, ToPairs to_pairs, std::uint32_t (&a)[2][4]) {
  const int g = static_cast<int>(lane_index()) / 4;
  const int t = static_cast<int>(lane_index()) % 4;
  const int swapped = t / 2;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    std::uint32_t numbers[2];
    read(g + (i ^ swapped) * 8, t, numbers);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      std::uint32_t pairs[2];
      to_pairs(numbers[half], pairs);
      a[half][i] = pairs[0];
      a[half][i + 2] = pairs[1];
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int pair = 0; pair < 4; pair += 2) {
      const std::uint32_t before = a[half][pair];
      a[half][pair] = swapped != 0 ? a[half][pair + 1] : before;
      a[half][pair + 1] = swapped != 0 ? before : a[half][pair + 1];
    }
  }
}

/// kUpper, kLower: bits of a number. kMinimum: a block has minima. kSmall: bytes of small scales of
/// a row, 0 where a block has 32 inputs and not 256. kOffset: what numbers are less than stored.
template <int kUpper, int kLower, bool kMinima, int kSmall, int kOffset>
struct Panels {
  static constexpr int kRows = 16;
  static constexpr int kHeadBytes = kRows * ((kMinima ? 4 : 2) + kSmall);
  static constexpr int kQuantBytes = kRows * 4 * (kUpper + kLower);  // Of a part.
  static constexpr int kParts = kSmall > 0 ? 8 : 1;                  // Of a block.
  static constexpr int kBlockBytes = kHeadBytes + kParts * kQuantBytes;
  static constexpr int kStepParts = 4;
  static constexpr int kStepBytes =
      kSmall > 0 ? kHeadBytes + kStepParts* kQuantBytes : kStepParts* kBlockBytes;
  static constexpr bool kScaled = true;
  static constexpr bool kMinimum = kMinima;
  static constexpr bool kHalves = kSmall == 16;  ///< Have scales of their own.

  const std::byte* panel;  ///< Of the outputs from `first` on, a multiple of kRows.

  __device__ Panels(const std::byte* weight, int /*outputs*/, int inputs, int first)
      : panel(weight +
              static_cast<std::int64_t>(first / kRows) * (inputs / (32 * kParts)) * kBlockBytes) {}

  __device__ static int x_place(int half) {
    return 16 * half + static_cast<int>(lane_index()) % 4 * 4;
  }

  /// Where the head and the quants of part `part` begin, and which part of its block it is.
  struct Place {
    const std::byte* head;
    const std::byte* quants;
    int of_block;
  };
  /// In what a step has copied.
  __device__ static Place place(const std::byte* stage, int step, int part) {
    const std::byte* const head = kSmall > 0 ? stage : stage + part * kBlockBytes;
    return {.head = head,
            .quants = head + kHeadBytes + (kSmall > 0 ? part * kQuantBytes : 0),
            .of_block = kSmall > 0 ? step % 2 * kStepParts + part : 0};
  }
  /// In memory.
  __device__ Place place(int part) const {
    const std::byte* const head = panel + static_cast<std::int64_t>(part / kParts) * kBlockBytes;
    const int of_block = part % kParts;
    return {
        .head = head, .quants = head + kHeadBytes + of_block * kQuantBytes, .of_block = of_block};
  }

  /// Begins to copy the `parts` parts of a step.
  __device__ void fetch(std::byte* stage, int step, int parts) const {
    if constexpr (kSmall == 0) {
      copy_panel(stage, panel + static_cast<std::int64_t>(step) * kStepBytes, parts * kBlockBytes);
    } else {
      const std::byte* const block = panel + static_cast<std::int64_t>(step / 2) * kBlockBytes;
      constexpr int kQuants = kStepParts * kQuantBytes;
      copy_panel(stage, block, kHeadBytes);
      copy_panel(stage + kHeadBytes, block + kHeadBytes + step % 2 * kQuants, kQuants);
    }
  }

  __device__ static PanelScales scales(const Place& at, int row) {
    const float d = half_at(at.head, row);
    if constexpr (kSmall == 12) {
      const std::byte* const small = at.head + 4 * kRows + row;
      const float minimum = half_at(at.head + 2 * kRows, row);
      const auto byte = [small](int i) { return static_cast<unsigned>(small[i * kRows]); };
      const int j = at.of_block;
      const unsigned scale =
          j < 4 ? byte(j) & 63U : (byte(j + 4) & 15U) | (byte(j - 4) >> 6U) << 4U;
      const unsigned less = j < 4 ? byte(j + 4) & 63U : byte(j + 4) >> 4U | (byte(j) >> 6U) << 4U;
      return {.first = d * static_cast<float>(scale),
              .second = -(minimum * static_cast<float>(less))};
    } else if constexpr (kSmall == 16) {
      const std::byte* const small = at.head + 2 * kRows + 2 * at.of_block * kRows + row;
      return {.first = d * static_cast<float>(static_cast<signed char>(small[0])),
              .second = d * static_cast<float>(static_cast<signed char>(small[kRows]))};
    } else if constexpr (kMinima) {
      return {.first = d, .second = half_at(at.head + 2 * kRows, row)};
    } else {
      return {.first = d, .second = d};
    }
  }

  /// The operands of both halves.
  __device__ static void operands(const Place& at, std::uint32_t (&a)[2][4]) {
    const auto* const words = reinterpret_cast<const std::uint32_t*>(at.quants);
    make_operands(
        [words](int row, int t, std::uint32_t(&numbers)[2]) { read(words, row, t, numbers); },
        [](std::uint32_t numbers, std::uint32_t(&pairs)[2]) { to_pairs(numbers, pairs); },
        a);
  }

 private:
  __device__ static float half_at(const std::byte* halves, int row) {
    return from_f16(reinterpret_cast<const std::uint16_t*>(halves)[row]);
  }
  /// Four numbers of each half of a part, one to a byte, as they are stored.
  __device__ static void read(const std::uint32_t* words,
                              int row,
                              int t,
                              std::uint32_t (&numbers)[2]) {
    const std::uint32_t* const lower = words + 16 * kUpper;
    if constexpr (kLower == 8) {
      numbers[0] = lower[16 * t + row];
      numbers[1] = lower[16 * (4 + t) + row];
    } else {
      const std::uint32_t both = lower[16 * t + row];
      numbers[0] = both & 0x0f0f0f0fU;
      numbers[1] = both >> 4U & 0x0f0f0f0fU;
    }
    if constexpr (kUpper == 1) {
      const std::uint32_t bits = words[row];
      const auto shift = static_cast<unsigned>(t);
      numbers[0] |= (bits >> shift & 0x01010101U) << 4U;
      numbers[1] |= (bits >> (4U + shift) & 0x01010101U) << 4U;
    } else if constexpr (kUpper == 2) {
      const auto shift = static_cast<unsigned>(2 * t);
      numbers[0] |= (words[row] >> shift & 0x03030303U) << 4U;
      numbers[1] |= (words[16 + row] >> shift & 0x03030303U) << 4U;
    }
  }
  /// Two pairs of bfloat16 less kOffset. 128 and more, up to 255, is a byte behind 0x43.
  __device__ static void to_pairs(std::uint32_t numbers, std::uint32_t (&pairs)[2]) {
    constexpr std::uint32_t kUp = 0x43434343U;
    constexpr std::uint32_t kFirst = 0x4140U;  // Bytes 0 and 1, each before one of kUp.
    constexpr std::uint32_t kLast = 0x4342U;
    if constexpr (kLower == 8) {
      static_assert(kOffset == 128);
      int8_pairs(numbers ^ 0x80808080U, pairs);
    } else {
      constexpr std::uint32_t kLess = 0x43004300U | kOffset * 0x10001U;
      pairs[0] = subtract_bf16_pairs(select_bytes(numbers, kUp, kFirst), kLess);
      pairs[1] = subtract_bf16_pairs(select_bytes(numbers, kUp, kLast), kLess);
    }
  }
};

using PanelsQ80 = Panels<0, 8, false, 0, 128>;
using PanelsQ40 = Panels<0, 4, false, 0, 8>;
using PanelsQ41 = Panels<0, 4, true, 0, 0>;
using PanelsQ50 = Panels<1, 4, false, 0, 16>;
using PanelsQ51 = Panels<1, 4, true, 0, 0>;
using PanelsQ4K = Panels<0, 4, true, 12, 0>;
using PanelsQ5K = Panels<1, 4, true, 12, 0>;
using PanelsQ6K = Panels<2, 4, false, 16, 32>;

/// MXFP4: numbers of four bits (E2M1), 32 of a row with a power of two in a byte (E8M0).
struct PanelsMxfp4 {
  static constexpr int kRows = 16;
  static constexpr int kHeadBytes = kRows;
  static constexpr int kBlockBytes = kHeadBytes + kRows * 16;  // Of a part.
  static constexpr int kStepParts = 4;
  static constexpr int kStepBytes = kStepParts * kBlockBytes;
  static constexpr bool kScaled = true;
  static constexpr bool kMinimum = false;
  static constexpr bool kHalves = false;

  const std::byte* panel;  ///< Of the outputs from `first` on, a multiple of kRows.

  __device__ PanelsMxfp4(const std::byte* weight, int /*outputs*/, int inputs, int first)
      : panel(weight + static_cast<std::int64_t>(first / kRows) * (inputs / 32) * kBlockBytes) {}

  __device__ static int x_place(int half) {
    return 16 * half + static_cast<int>(lane_index()) % 4 * 4;
  }

  struct Place {
    const std::byte* head;
    const std::byte* quants;
  };
  __device__ static Place place(const std::byte* stage, int /*step*/, int part) {
    const std::byte* const head = stage + part * kBlockBytes;
    return {.head = head, .quants = head + kHeadBytes};
  }
  __device__ Place place(int part) const {
    const std::byte* const head = panel + static_cast<std::int64_t>(part) * kBlockBytes;
    return {.head = head, .quants = head + kHeadBytes};
  }

  __device__ void fetch(std::byte* stage, int step, int parts) const {
    copy_panel(stage, panel + static_cast<std::int64_t>(step) * kStepBytes, parts * kBlockBytes);
  }

  /// Half of the power of two, as operands() gives twice the numbers: 2^(byte - 128).
  __device__ static PanelScales scales(const Place& at, int row) {
    const auto exponent = static_cast<std::uint32_t>(at.head[row]);
    const std::uint32_t subnormal = 0x00200000U << (exponent & 1U);
    const float scale = bits_float(exponent < 2 ? subnormal : (exponent - 1) << 23U);
    return {.first = scale, .second = scale};
  }

  __device__ static void operands(const Place& at, std::uint32_t (&a)[2][4]) {
    const auto* const words = reinterpret_cast<const std::uint32_t*>(at.quants);
    make_operands(
        [words](int row, int t, std::uint32_t(&numbers)[2]) {
          const std::uint32_t both = words[16 * t + row];
          numbers[0] = both & 0x0f0f0f0fU;
          numbers[1] = both >> 4U & 0x0f0f0f0fU;
        },
        [](std::uint32_t numbers, std::uint32_t(&pairs)[2]) {
          pairs[0] = pair_of(select_bytes(numbers, 0, 0x4140U));  // Bytes 0 and 1, each before 0.
          pairs[1] = pair_of(select_bytes(numbers, 0, 0x4342U));
        },
        a);
  }

 private:
  /// Twice two E2M1, each in the lower bits of a half. Exponent and mantissa move into place, and
  /// as the exponent's bias is 127 there and 1 here, what they make is 2^126 too small. Exact.
  __device__ static std::uint32_t pair_of(std::uint32_t codes) {
    constexpr std::uint32_t kScale = 0x7f007f00U;  // 2^127
    return multiply_bf16_pairs((codes & 0x00080008U) << 12U | (codes & 0x00070007U) << 6U, kScale);
  }
};

/// FP8 (E4M3) with a float32 scale for each 128 inputs of a row (spec/f8_panels.h).
struct PanelsF8 {
  static constexpr int kRows = 16;
  static constexpr int kHeadBytes = kRows * 4;
  static constexpr int kQuantBytes = kRows * 32;  // Of a part.
  static constexpr int kStepParts = 4;            // Those of a block.
  static constexpr int kStepBytes = kHeadBytes + kStepParts * kQuantBytes;
  static constexpr bool kScaled = true;
  static constexpr bool kMinimum = false;
  static constexpr bool kHalves = false;

  const std::byte* panel;  ///< Of the outputs from `first` on, a multiple of kRows.

  __device__ PanelsF8(const std::byte* weight, int /*outputs*/, int inputs, int first)
      : panel(weight + static_cast<std::int64_t>(first / kRows) * (inputs / (32 * kStepParts)) *
                           kStepBytes) {}

  __device__ static int x_place(int half) {
    return 16 * half + static_cast<int>(lane_index()) % 4 * 4;
  }

  struct Place {
    const std::byte* head;
    const std::byte* quants;
  };
  __device__ static Place place(const std::byte* stage, int /*step*/, int part) {
    return {.head = stage, .quants = stage + kHeadBytes + part * kQuantBytes};
  }
  __device__ Place place(int part) const {
    const std::byte* const block =
        panel + static_cast<std::int64_t>(part / kStepParts) * kStepBytes;
    return place(block, 0, part % kStepParts);
  }

  __device__ void fetch(std::byte* stage, int step, int /*parts*/) const {
    copy_panel(stage, panel + static_cast<std::int64_t>(step) * kStepBytes, kStepBytes);
  }

  __device__ static PanelScales scales(const Place& at, int row) {
    const float scale = reinterpret_cast<const float*>(at.head)[row];
    return {.first = scale, .second = scale};
  }

  __device__ static void operands(const Place& at, std::uint32_t (&a)[2][4]) {
    const auto* const words = reinterpret_cast<const std::uint32_t*>(at.quants);
    make_operands(
        [words](int row, int t, std::uint32_t(&numbers)[2]) {
          numbers[0] = words[16 * t + row];
          numbers[1] = words[16 * (4 + t) + row];
        },
        [](std::uint32_t numbers, std::uint32_t(&pairs)[2]) { e4m3_pairs(numbers, pairs); },
        a);
  }
};

/// Rows of bfloat16, of a multiple of eight inputs, that begin at multiples of 16 bytes. A lane
/// copies what it takes itself.
struct Bf16Rows {
  static constexpr int kStepParts = 2;
  static constexpr int kStepBytes = 16 * 64 * kStepParts;
  static constexpr bool kScaled = false;
  static constexpr bool kMinimum = false;
  static constexpr bool kHalves = false;

  const std::byte* row[2];
  int columns;

  __device__ Bf16Rows(const std::byte* weight, int outputs, int inputs, int first)
      : columns(inputs) {
    for (int i = 0; i < 2; ++i) {
      // Beyond the last output, any row will do: nobody stores what comes of it.
      const int output = min(first + static_cast<int>(lane_index()) / 4 + 8 * i, outputs - 1);
      row[i] = weight + static_cast<std::int64_t>(output) * inputs * 2;
    }
  }

  __device__ static int x_place(int half) {
    return static_cast<int>(lane_index()) % 4 * 8 + 4 * half;
  }

  struct Place {
    const std::byte* own;
  };
  __device__ static Place place(const std::byte* stage, int /*step*/, int part) {
    return {.own = stage + part * 1024 + static_cast<int>(lane_index()) * 16};
  }

  __device__ void fetch(std::byte* stage, int step, int parts) const {
    const int lane = static_cast<int>(lane_index());
    for (int part = 0; part < parts; ++part) {
      const int input = (step * kStepParts + part) * 32 + lane % 4 * 8;
      const bool valid = input < columns;
      for (int i = 0; i < 2; ++i) {
        copy_async(stage + part * 1024 + i * 512 + lane * 16,
                   row[i] + (valid ? static_cast<std::int64_t>(input) * 2 : 0),
                   valid);
      }
    }
  }

  __device__ static PanelScales scales(const Place&, int) { return {.first = 1, .second = 1}; }

  __device__ static void operands(const Place& at, std::uint32_t (&a)[2][4]) {
    const uint4 rows[2] = {*reinterpret_cast<const uint4*>(at.own),
                           *reinterpret_cast<const uint4*>(at.own + 512)};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      a[0][i] = rows[i].x;
      a[0][i + 2] = rows[i].y;
      a[1][i] = rows[i].z;
      a[1][i + 2] = rows[i].w;
    }
  }
};

}  // namespace heddle::ops::cuda
