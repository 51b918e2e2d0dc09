#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "gguf/header.h"

namespace heddle::gguf {

/// Whether a path names a GGUF file: a file, by its name's end. Nothing is read.
[[nodiscard]] bool is_gguf(const std::filesystem::path& path);

/// A model in the format of llama.cpp, in one file or in several ("x-00001-of-00003.gguf" and its
/// siblings, as `llama-gguf-split` makes them). Only headers are read.
struct GgufFile {
  std::vector<File> files{};
  std::uint32_t version = 0;      ///< Of the format.
  Metadata metadata{};            ///< Of the first file.
  std::vector<Tensor> tensors{};  ///< Of all files, by file and offset.
  std::string name{};             ///< How messages call it: the path of the first file.

  /// Opens the file or, where it is the first part of a split one, all its parts. As
  /// parse_header(); kInvalidArgument where it is another part than the first; kCorrupt where parts
  /// do not belong together.
  static Result<GgufFile> open(const std::filesystem::path& path, Keep keep);

  [[nodiscard]] const Value* find(std::string_view key) const;
  [[nodiscard]] const Tensor* tensor(std::string_view name) const;
};

/// The paths of all parts of the model whose first file is `path`: that of one file, itself.
[[nodiscard]] std::vector<std::filesystem::path> part_paths(const std::filesystem::path& path);

}  // namespace heddle::gguf
