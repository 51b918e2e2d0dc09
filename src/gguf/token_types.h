#pragma once

#include <cstdint>

namespace heddle::gguf {

/// `tokenizer.ggml.token_type`.
enum class TokenType : std::uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUser = 4,
  kByte = 6
};

[[nodiscard]] inline bool is(std::int64_t type, TokenType wanted) {
  return type == static_cast<std::int64_t>(wanted);
}

}  // namespace heddle::gguf
