#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace heddle::gguf {

/// How the numbers of a tensor are stored, by the ids of the format (`ggml_type`).
enum class BlockType : std::uint8_t {
  kF32 = 0,
  kF16 = 1,
  kQ40 = 2,
  kQ41 = 3,
  kQ50 = 6,
  kQ51 = 7,
  kQ80 = 8,
  kQ81 = 9,
  kQ2K = 10,
  kQ3K = 11,
  kQ4K = 12,
  kQ5K = 13,
  kQ6K = 14,
  kQ8K = 15,
  kIq2Xxs = 16,
  kIq2Xs = 17,
  kIq3Xxs = 18,
  kIq1S = 19,
  kIq4Nl = 20,
  kIq3S = 21,
  kIq2S = 22,
  kIq4Xs = 23,
  kI8 = 24,
  kI16 = 25,
  kI32 = 26,
  kI64 = 27,
  kF64 = 28,
  kIq1M = 29,
  kBf16 = 30,
  kTq10 = 34,
  kTq20 = 35,
  kMxfp4 = 39,
  kNvfp4 = 40,
  kQ10 = 41,
};

/// A row of a tensor is a whole number of blocks: `elements` numbers that share scales, in `bytes`.
struct BlockShape {
  BlockType type = BlockType::kF32;
  std::string_view name{};  ///< "Q4_K".
  std::uint32_t elements = 1;
  std::uint32_t bytes = 4;
  bool decodes = false;  ///< Whether decode() knows it.
};

/// The shape of the type of this id; nothing for an id that no type has.
[[nodiscard]] std::optional<BlockShape> find_block_shape(std::uint32_t id);
[[nodiscard]] BlockShape block_shape(BlockType type);

/// "F32, F16, BF16, ...": the types that decode() knows, for messages.
[[nodiscard]] std::string decoded_types();

/// Makes float32 of `count` numbers, a whole number of blocks, bit for bit what the reference
/// implementation (`gguf.quants.dequantize`) makes of them. With d and m as float16, q unsigned:
///
///     Q8_0         d q_i                  q_i in [-128, 127], 32 to a block, as in the next four
///     Q4_0, Q5_0   d (q_i - 8), d (q_i - 16)
///     Q4_1, Q5_1   d q_i + m
///     Q4_K, Q5_K   (d s_j) q_i - (m t_j)  6-bit s_j and t_j for each 32 of 256
///     Q6_K         (d s_j) (q_i - 32)     8-bit s_j for each 16 of 256
///     MXFP4        2^(e - 128) v_i        v_i of kTwiceFloat4 (base/half.h), e of each 32
///
/// Requires block_shape(type).decodes. Neither side need be aligned; they must not overlap.
void decode(BlockType type, const std::byte* blocks, float* numbers, std::size_t count);

}  // namespace heddle::gguf
