#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "store/stored_tensor.h"

namespace heddle::store {

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
