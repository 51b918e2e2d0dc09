#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace heddle::spec {

/// Element types that weights, KV blocks and activations may have; kI8 weights only, each row with
/// a float32 scale.
enum class DType : std::uint8_t { kF32, kF16, kBf16, kI32, kI8 };

/// Size of one element in bytes.
[[nodiscard]] constexpr std::size_t dtype_bytes(DType dtype) {
  return dtype == DType::kI8 ? 1 : dtype == DType::kF32 || dtype == DType::kI32 ? 4 : 2;
}

/// The type of embeddings, KV blocks and the inputs of products where matrices are `weights`.
[[nodiscard]] constexpr DType compute_dtype(DType weights) {
  return weights == DType::kI8 ? DType::kBf16 : weights;
}

/// The name used in configuration files and messages: "float32", "float16", "bfloat16", "int32",
/// "int8".
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
  }
  return "?";
}

}  // namespace heddle::spec
