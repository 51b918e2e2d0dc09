#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/result.h"

namespace heddle::store {

/// Element types that a safetensors file may hold. Most of them can only be listed: the image
/// loader converts F32, F16 and BF16.
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
};

/// The name in the file: "BF16".
[[nodiscard]] std::string_view stored_type_name(StoredType type);
[[nodiscard]] std::uint64_t stored_type_bits(StoredType type);

/// One tensor of a file. Row-major, little-endian.
struct StoredTensor {
  std::string name{};
  StoredType type = StoredType::kF32;
  std::vector<std::int64_t> shape{};  ///< Empty for a scalar.
  std::uint64_t offset = 0;           ///< Bytes from the start of the file.
  std::uint64_t bytes = 0;
};

/// "F32 [64, 128]", for messages.
[[nodiscard]] std::string describe(const StoredTensor& tensor);

/// A header of more than this is refused, as the reference implementation does.
inline constexpr std::uint64_t kHeaderBytesMax = 100'000'000;

/// Checks the JSON of a header against the `data_bytes` that follow it: every dtype is known, every
/// shape's product fits and takes exactly the bytes claimed, every range lies within the data, and
/// together the ranges cover the data once, without overlap or hole. kCorrupt, naming `file`, the
/// tensor and the numbers, otherwise.
/// @param data_begin  Where the data begins in the file; added to all offsets.
/// @return            In order of offset.
[[nodiscard]] Result<std::vector<StoredTensor>> parse_safetensors_header(std::string_view json,
                                                                         std::uint64_t data_begin,
                                                                         std::uint64_t data_bytes,
                                                                         std::string_view file);

/// A safetensors file, its header checked: 8 bytes of little-endian length, that much JSON, data.
struct SafetensorsFile {
  File file;
  std::vector<StoredTensor> tensors{};  ///< In order of offset.

  static Result<SafetensorsFile> open(const std::filesystem::path& path);
};

/// Parses a model.safetensors.index.json. Shard names must be plain names of files beside the
/// index: nothing in a checkpoint points out of its directory.
/// @return  For each tensor the name of its file.
[[nodiscard]] Result<std::map<std::string, std::string>> parse_safetensors_index(
    std::string_view json, std::string_view file);

}  // namespace heddle::store
