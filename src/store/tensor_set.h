#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "gguf/gguf_file.h"
#include "store/safetensors.h"

namespace heddle::store {

struct PackedMatrix;

/// All tensors of a model directory, or of the decoder alone in one for text and images whose names
/// say so ("language_model."), whether they are in model.safetensors or in the shards of
/// model.safetensors.index.json (the former wins where both are there, as in transformers), or of a
/// GGUF file, under the names that they would have in a directory. Only headers are read. Reading
/// through it is thread safe.
class TensorSet {
 public:
  struct Entry {
    StoredTensor tensor{};
    std::size_t file = 0;  ///< Index into files().
    /// Rows of a head, of a tensor whose heads have theirs interleaved: row 2 i of the file is row
    /// i, row 2 i + 1 is row i + interleaved / 2. 0: rows are in order.
    std::int64_t interleaved = 0;
    /// Of vectors: they are whole, also of models whose directories have them less 1, or their
    /// logarithms.
    bool whole = false;
    /// Of a matrix that several tensors stand for (packed_tensors.h): how its rows are read. The
    /// file and offset of `tensor` say nothing then.
    std::shared_ptr<const PackedMatrix> packed{};
  };

  /// kNotFound, saying what was looked for and what else is there, if the directory holds no
  /// safetensors; kCorrupt as parse_safetensors_header, and if the index names a tensor that its
  /// shard lacks.
  static Result<TensorSet> open(const std::filesystem::path& directory);
  /// The tensors of one file of safetensors.
  static Result<TensorSet> open_file(const std::filesystem::path& path);
  /// Those of a GGUF file, in each of which StoredTensor::name is the file's own.
  static TensorSet of(gguf::GgufFile file);

  [[nodiscard]] const std::vector<File>& files() const { return files_; }
  /// By name.
  [[nodiscard]] const std::map<std::string, Entry>& entries() const { return entries_; }
  [[nodiscard]] const Entry* find(const std::string& name) const;
  /// One that is there.
  [[nodiscard]] const Entry& at(const std::string& name) const;
  [[nodiscard]] const File& file_of(const Entry& entry) const { return files_[entry.file]; }
  /// Takes out the tensors of these names, and puts those of `entries` in under their own.
  void exchange(const std::vector<std::string>& names, std::vector<Entry> entries);
  /// Has that file's tensors read from another one, which has, or will have, the same bytes.
  void read_from(std::size_t file, File other) { files_[file] = std::move(other); }
  /// What says which tensors there should be, for messages: "config.json".
  [[nodiscard]] std::string_view described_by() const { return described_by_; }

 private:
  static Result<TensorSet> open_shards(const std::filesystem::path& index);

  std::vector<File> files_{};
  std::map<std::string, Entry> entries_{};
  std::string_view described_by_ = "config.json";
};

}  // namespace heddle::store
