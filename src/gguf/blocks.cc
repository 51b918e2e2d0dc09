#include "gguf/blocks.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "base/half.h"

namespace heddle::gguf {
namespace {

constexpr std::array kShapes = {
    BlockShape{BlockType::kF32, "F32", 1, 4, true},
    BlockShape{BlockType::kF16, "F16", 1, 2, true},
    BlockShape{BlockType::kBf16, "BF16", 1, 2, true},
    BlockShape{BlockType::kQ80, "Q8_0", 32, 34, true},
    BlockShape{BlockType::kQ40, "Q4_0", 32, 18, true},
    BlockShape{BlockType::kQ41, "Q4_1", 32, 20, true},
    BlockShape{BlockType::kQ50, "Q5_0", 32, 22, true},
    BlockShape{BlockType::kQ51, "Q5_1", 32, 24, true},
    BlockShape{BlockType::kQ4K, "Q4_K", 256, 144, true},
    BlockShape{BlockType::kQ5K, "Q5_K", 256, 176, true},
    BlockShape{BlockType::kQ6K, "Q6_K", 256, 210, true},
    BlockShape{BlockType::kMxfp4, "MXFP4", 32, 17, true},
    BlockShape{BlockType::kQ81, "Q8_1", 32, 36, false},
    BlockShape{BlockType::kQ2K, "Q2_K", 256, 84, false},
    BlockShape{BlockType::kQ3K, "Q3_K", 256, 110, false},
    BlockShape{BlockType::kQ8K, "Q8_K", 256, 292, false},
    BlockShape{BlockType::kIq2Xxs, "IQ2_XXS", 256, 66, false},
    BlockShape{BlockType::kIq2Xs, "IQ2_XS", 256, 74, false},
    BlockShape{BlockType::kIq3Xxs, "IQ3_XXS", 256, 98, false},
    BlockShape{BlockType::kIq1S, "IQ1_S", 256, 50, false},
    BlockShape{BlockType::kIq4Nl, "IQ4_NL", 32, 18, false},
    BlockShape{BlockType::kIq3S, "IQ3_S", 256, 110, false},
    BlockShape{BlockType::kIq2S, "IQ2_S", 256, 82, false},
    BlockShape{BlockType::kIq4Xs, "IQ4_XS", 256, 136, false},
    BlockShape{BlockType::kI8, "I8", 1, 1, false},
    BlockShape{BlockType::kI16, "I16", 1, 2, false},
    BlockShape{BlockType::kI32, "I32", 1, 4, false},
    BlockShape{BlockType::kI64, "I64", 1, 8, false},
    BlockShape{BlockType::kF64, "F64", 1, 8, false},
    BlockShape{BlockType::kIq1M, "IQ1_M", 256, 56, false},
    BlockShape{BlockType::kTq10, "TQ1_0", 256, 54, false},
    BlockShape{BlockType::kTq20, "TQ2_0", 256, 66, false},
    BlockShape{BlockType::kNvfp4, "NVFP4", 64, 36, false},
    BlockShape{BlockType::kQ10, "Q1_0", 128, 18, false},
};

template <class T>
T load(const std::uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

float half_at(const std::uint8_t* from) {
  return std::bit_cast<float>(f32_bits_of_f16(load<std::uint16_t>(from)));
}

void decode_q8_0(const std::uint8_t* block, float* __restrict out) {
  const float d = half_at(block);
  for (std::size_t i = 0; i < 32; ++i) {
    out[i] = d * static_cast<float>(static_cast<std::int8_t>(block[2 + i]));
  }
}

void decode_q4_0(const std::uint8_t* block, float* __restrict out) {
  const float d = half_at(block);
  for (std::size_t i = 0; i < 16; ++i) {
    const int q = block[2 + i];
    out[i] = d * static_cast<float>((q & 15) - 8);
    out[i + 16] = d * static_cast<float>((q >> 4) - 8);
  }
}

void decode_mxfp4(const std::uint8_t* block, float* __restrict out) {
  const float d = half_of_e8m0(block[0]);
  for (std::size_t i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(kTwiceFloat4[block[1 + i] & 15U]);
    out[i + 16] = d * static_cast<float>(kTwiceFloat4[block[1 + i] >> 4U]);
  }
}

void decode_q4_1(const std::uint8_t* block, float* __restrict out) {
  const float d = half_at(block);
  const float m = half_at(block + 2);
  for (std::size_t i = 0; i < 16; ++i) {
    const int q = block[4 + i];
    out[i] = d * static_cast<float>(q & 15) + m;
    out[i + 16] = d * static_cast<float>(q >> 4) + m;
  }
}

/// Bytes of which the j-th has bit j of `bits` as its lowest bit. Adding 0x7F carries into the top
/// bit of each byte that is not zero.
std::uint64_t spread(std::uint8_t bits) {
  constexpr std::uint64_t kOnes = 0x0101010101010101U;
  const std::uint64_t picked = bits * kOnes & 0x8040201008040201U;
  return ((picked + 0x7F * kOnes) >> 7U) & kOnes;
}

/// The 5-bit numbers of a block: 32 high bits, then 16 bytes of low ones. Bytes, so that the loops
/// become vector code.
std::array<std::uint8_t, 32> fives(const std::uint8_t* high, const std::uint8_t* low) {
  std::array<std::uint8_t, 32> numbers{};
  for (std::size_t i = 0; i < 4; ++i) {
    const std::uint64_t sixteens = spread(high[i]) << 4U;
    std::memcpy(numbers.data() + 8 * i, &sixteens, sizeof(sixteens));
  }
  for (std::size_t i = 0; i < 16; ++i) {
    numbers[i] = static_cast<std::uint8_t>(numbers[i] | (low[i] & 15U));
    numbers[i + 16] = static_cast<std::uint8_t>(numbers[i + 16] | (low[i] >> 4U));
  }
  return numbers;
}

void decode_q5_0(const std::uint8_t* block, float* __restrict out) {
  const float d = half_at(block);
  const std::array<std::uint8_t, 32> q = fives(block + 2, block + 6);
  for (std::size_t i = 0; i < 32; ++i) {
    out[i] = d * static_cast<float>(q[i] - 16);
  }
}

void decode_q5_1(const std::uint8_t* block, float* __restrict out) {
  const float d = half_at(block);
  const float m = half_at(block + 2);
  const std::array<std::uint8_t, 32> q = fives(block + 4, block + 8);
  for (std::size_t i = 0; i < 32; ++i) {
    out[i] = d * static_cast<float>(q[i]) + m;
  }
}

/// The j-th of eight pairs of 6-bit scale and minimum in 12 bytes.
std::pair<int, int> six_bit_pair(const std::uint8_t* packed, std::size_t j) {
  if (j < 4) {
    return {packed[j] & 63, packed[j + 4] & 63};
  }
  return {(packed[j + 4] & 15) | ((packed[j - 4] >> 6) << 4),
          (packed[j + 4] >> 4) | ((packed[j] >> 6) << 4)};
}

/// Q4_K, and Q5_K with its high bits: bit j of high[i] belongs to number 32 j + i.
template <bool kFive>
void decode_q45_k(const std::uint8_t* block, float* __restrict out) {
  const float d = half_at(block);
  const float dmin = half_at(block + 2);
  const std::uint8_t* const packed = block + 4;
  const std::uint8_t* const high = block + 16;
  const std::uint8_t* low = high + (kFive ? 32 : 0);
  for (std::size_t j = 0; j < 8; ++j) {
    const auto [scale, minimum] = six_bit_pair(packed, j);
    const float s = d * static_cast<float>(scale);
    const float m = dmin * static_cast<float>(minimum);
    const int shift = j % 2 == 0 ? 0 : 4;
    for (std::size_t i = 0; i < 32; ++i) {
      int q = (low[i] >> shift) & 15;
      if constexpr (kFive) {
        q |= ((high[i] >> j) & 1) << 4;
      }
      out[32 * j + i] = s * static_cast<float>(q) - m;
    }
    low += j % 2 == 0 ? 0 : 32;
  }
}

/// Sixteen numbers of a Q6_K block, which share a scale.
void decode_sixteen(const std::uint8_t* low,
                    int low_shift,
                    const std::uint8_t* high,
                    int high_shift,
                    float scale,
                    float* __restrict out) {
  for (std::size_t i = 0; i < 16; ++i) {
    const int q = ((low[i] >> low_shift) & 15) | (((high[i] >> high_shift) & 3) << 4);
    out[i] = scale * static_cast<float>(q - 32);
  }
}

void decode_q6_k(const std::uint8_t* block, float* __restrict out) {
  const std::uint8_t* low = block;
  const std::uint8_t* high = block + 128;
  const std::uint8_t* scales = block + 192;
  const float d = half_at(block + 208);
  for (std::size_t half = 0; half < 2; ++half) {
    for (std::size_t part = 0; part < 4; ++part) {
      const std::uint8_t* const from = low + (part % 2 == 0 ? 0 : 32);
      const int shift = part < 2 ? 0 : 4;
      for (std::size_t i = 0; i < 2; ++i) {
        const auto scale = static_cast<std::int8_t>(scales[2 * part + i]);
        decode_sixteen(from + 16 * i,
                       shift,
                       high + 16 * i,
                       static_cast<int>(2 * part),
                       d * static_cast<float>(scale),
                       out + 32 * part + 16 * i);
      }
    }
    out += 128;
    low += 64;
    high += 32;
    scales += 8;
  }
}

template <class Function>
void each_block(const BlockShape& shape,
                const std::uint8_t* blocks,
                float* numbers,
                std::size_t count,
                Function function) {
  for (std::size_t done = 0; done < count; done += shape.elements) {
    function(blocks, numbers + done);
    blocks += shape.bytes;
  }
}

}  // namespace

std::optional<BlockShape> find_block_shape(std::uint32_t id) {
  const auto* found = std::ranges::find_if(kShapes, [&](const BlockShape& shape) {
    return static_cast<std::uint32_t>(shape.type) == id;
  });
  return found == kShapes.end() ? std::nullopt : std::optional(*found);
}

BlockShape block_shape(BlockType type) {
  const auto shape = find_block_shape(static_cast<std::uint32_t>(type));
  HEDDLE_CHECK(shape.has_value());
  return *shape;
}

std::string decoded_types() {
  std::vector<std::string_view> names;
  for (const BlockShape& shape : kShapes) {
    if (shape.decodes) {
      names.push_back(shape.name);
    }
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

void decode(BlockType type, const std::byte* blocks, float* numbers, std::size_t count) {
  const BlockShape shape = block_shape(type);
  HEDDLE_CHECK(shape.decodes && count % shape.elements == 0);
  const auto* from = reinterpret_cast<const std::uint8_t*>(blocks);
  const auto each = [&](auto function) { each_block(shape, from, numbers, count, function); };
  switch (type) {
    case BlockType::kF32:
      std::memcpy(numbers, blocks, count * sizeof(float));
      return;
    case BlockType::kF16:
      return each([](const std::uint8_t* block, float* out) { *out = half_at(block); });
    case BlockType::kBf16:
      return each([](const std::uint8_t* block, float* out) {
        *out = std::bit_cast<float>(f32_bits_of_bf16(load<std::uint16_t>(block)));
      });
    case BlockType::kQ80:
      return each(decode_q8_0);
    case BlockType::kQ40:
      return each(decode_q4_0);
    case BlockType::kQ41:
      return each(decode_q4_1);
    case BlockType::kQ50:
      return each(decode_q5_0);
    case BlockType::kQ51:
      return each(decode_q5_1);
    case BlockType::kQ4K:
      return each(decode_q45_k<false>);
    case BlockType::kQ5K:
      return each(decode_q45_k<true>);
    case BlockType::kQ6K:
      return each(decode_q6_k);
    case BlockType::kMxfp4:
      return each(decode_mxfp4);
    default:
      HEDDLE_CHECK(false);
  }
}

}  // namespace heddle::gguf
