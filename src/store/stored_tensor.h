#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/blocks.h"
#include "spec/dtype.h"

namespace heddle::store {

/// How the elements of a tensor are stored: one by one, in types of safetensors, or in blocks of
/// GGUF, which have values from kBlocks on (stored_type_of), or as kF8Scaled. Most can only be
/// listed: what the image loader converts is in convert.h.
enum class StoredType : std::uint8_t {
  kBool,
  kF4,
  kF6E2M3,
  kF6E3M2,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kI16,
  kU16,
  kF16,
  kBf16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
  kBlocks = 0x80,
  kF8Scaled = 0xFF,  ///< Blocks of FP8 with scales (spec/f8_panels.h), which no file has so.
};

/// The type of blocks of GGUF; F32 and other plain numbers are the same in both.
[[nodiscard]] StoredType stored_type_of(gguf::BlockType type);
/// The reverse; nothing for a type that GGUF has not.
[[nodiscard]] std::optional<gguf::BlockType> block_type_of(StoredType type);

/// The type of blocks as an image has it, of what is stored so; kBf16 of all else.
[[nodiscard]] spec::DType matrix_format(StoredType type);

/// The name in the file: "BF16".
[[nodiscard]] std::string_view stored_type_name(StoredType type);
/// Elements that are stored together: those of a block, else 1.
[[nodiscard]] std::uint64_t stored_type_elements(StoredType type);
/// Bits of that many.
[[nodiscard]] std::uint64_t stored_type_bits(StoredType type);
/// Bytes of `elements`, a whole number of blocks and of bytes.
[[nodiscard]] std::uint64_t stored_bytes(StoredType type, std::uint64_t elements);
/// The type of plain elements that safetensors calls so.
[[nodiscard]] std::optional<StoredType> find_stored_type(std::string_view name);

/// One tensor of a file. Row-major, little-endian; rows are whole blocks.
struct StoredTensor {
  std::string name{};
  StoredType type = StoredType::kF32;
  std::vector<std::int64_t> shape{};  ///< Empty for a scalar.
  std::uint64_t offset = 0;           ///< Bytes from the start of the file.
  std::uint64_t bytes = 0;
};

/// "F32 [64, 128]", for messages.
[[nodiscard]] std::string describe(const StoredTensor& tensor);

}  // namespace heddle::store
