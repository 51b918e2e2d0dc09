#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace heddle::spec {

/// Element types that weights, KV blocks and activations may have.
enum class DType : std::uint8_t { kF32, kF16, kBf16, kI32 };

/// Size of one element in bytes.
[[nodiscard]] constexpr std::size_t dtype_bytes(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kI32 ? 4 : 2;
}

/// The name used in configuration files and messages: "float32", "float16", "bfloat16", "int32".
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
  }
  return "?";
}

}  // namespace heddle::spec
