#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace heddle::spec {

/// Element types that weights, KV blocks and activations may have. kI8 is of weights, each row with
/// a float32 scale, and of keys and values (kv_is_scaled()). The types of blocks, from kQ80 on
/// (block_panels.h), are of weights; kF8 and kF8Both of them are FP8 as safetensors have it, the
/// others are of GGUF files. kF8 is of keys and values as well. kF8Both lies as kF8 does and says
/// two things more: all scales of a row are one, and products of many tokens may round these to FP8
/// as well (W8A8), where a GPU has such products. kStored is of a whole image only: each matrix as
/// ModelSpec::formats says.
enum class DType : std::uint8_t {
  kF32,
  kF16,
  kBf16,
  kI32,
  kI8,
  kStored,
  kQ80,
  kQ40,
  kQ41,
  kQ50,
  kQ51,
  kQ4K,
  kQ5K,
  kQ6K,
  kMxfp4,
  kF8,
  kF8Both
};

/// Whether numbers of a row share scales in blocks.
[[nodiscard]] constexpr bool is_blocks(DType dtype) {
  return dtype >= DType::kQ80;
}

/// Whether they are FP8 with scales (f8_panels.h).
[[nodiscard]] constexpr bool is_f8(DType dtype) {
  return dtype == DType::kF8 || dtype == DType::kF8Both;
}

/// Size of one element in bytes; 0 of blocks and of kStored, which have none of one element.
[[nodiscard]] constexpr std::size_t dtype_bytes(DType dtype) {
  if (dtype >= DType::kStored) {
    return 0;
  }
  return dtype == DType::kI8 ? 1 : dtype == DType::kF32 || dtype == DType::kI32 ? 4 : 2;
}

/// The type of embeddings and the inputs of products where matrices are `weights`. (An embedding of
/// kStored may be blocks all the same.)
[[nodiscard]] constexpr DType compute_dtype(DType weights) {
  return weights >= DType::kI8 ? DType::kBf16 : weights;
}

/// What keys and values are kept as.
enum class KvType : std::uint8_t {
  kComputed,  ///< In compute_dtype() of the weights.
  kI8,        ///< In int8, each head of a token with a scale.
  kF8         ///< In FP8 (E4M3), likewise.
};

/// The type of keys and values in blocks, where matrices are `weights`: float32, bfloat16, kI8 or
/// kF8.
[[nodiscard]] constexpr DType kv_dtype(KvType kv, DType weights) {
  return kv == KvType::kI8 ? DType::kI8 : kv == KvType::kF8 ? DType::kF8 : compute_dtype(weights);
}

/// Whether keys and values of that type are codes of a byte, and each head of a token has a scale
/// (ops/kv_row.h).
[[nodiscard]] constexpr bool kv_is_scaled(DType kv) {
  return kv == DType::kI8 || kv == DType::kF8;
}

/// Bytes of one number of a key or value.
[[nodiscard]] constexpr std::size_t kv_element_bytes(DType kv) {
  return kv_is_scaled(kv) ? 1 : dtype_bytes(kv);
}

/// Bytes of what each head of a token has beside its elements: of codes a scale, a bfloat16.
[[nodiscard]] constexpr std::size_t kv_scale_bytes(DType kv) {
  return kv_is_scaled(kv) ? 2 : 0;
}

/// Bytes that the keys, or the values, of one head of one token take.
[[nodiscard]] constexpr std::size_t kv_row_bytes(DType kv, std::int64_t head_dim) {
  return static_cast<std::size_t>(head_dim) * kv_element_bytes(kv) + kv_scale_bytes(kv);
}

/// The name used in configuration files and messages: "float32", "float16", "bfloat16", "int32",
/// "int8", "stored"; of blocks as GGUF has it: "Q4_K"; "FP8", "FP8 W8A8".
[[nodiscard]] constexpr std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "float32";
    case DType::kF16:
      return "float16";
    case DType::kBf16:
      return "bfloat16";
    case DType::kI32:
      return "int32";
    case DType::kI8:
      return "int8";
    case DType::kStored:
      return "stored";
    case DType::kQ80:
      return "Q8_0";
    case DType::kQ40:
      return "Q4_0";
    case DType::kQ41:
      return "Q4_1";
    case DType::kQ50:
      return "Q5_0";
    case DType::kQ51:
      return "Q5_1";
    case DType::kQ4K:
      return "Q4_K";
    case DType::kQ5K:
      return "Q5_K";
    case DType::kQ6K:
      return "Q6_K";
    case DType::kMxfp4:
      return "MXFP4";
    case DType::kF8:
      return "FP8";
    case DType::kF8Both:
      return "FP8 W8A8";
  }
  return "?";
}

}  // namespace heddle::spec
