#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/result.h"
#include "store/text_files.h"

/// The files from which a model's text is made, on their way from a host to a gateway. Both ends
/// block: they run beside the loop.
namespace heddle::remote {

struct TextPiece {
  std::string bytes{};  ///< At most kTextPieceMost.
  bool ends = false;    ///< Nothing of the file follows.
};
/// Reads from `offset` on. kNotFound where the file cannot be read.
Result<TextPiece> read_piece(const std::filesystem::path& file, std::uint64_t offset);
/// The same of a text, wherever it is.
Result<TextPiece> read_piece(const store::TextSource& source, std::uint64_t offset);

/// Most files of a model, and most bytes of them together.
inline constexpr std::size_t kTextFilesMost = 64;
inline constexpr std::uint64_t kTextBytesMost = std::uint64_t{256} << 20U;

/// Makes a folder of files that come in pieces. It has its name when all are there, and not before.
/// One thread at a time.
class TextFolder {
 public:
  explicit TextFolder(std::filesystem::path folder);
  /// Removes what is not complete.
  ~TextFolder();
  TextFolder(const TextFolder&) = delete;
  TextFolder& operator=(const TextFolder&) = delete;

  /// The next piece of the file of this name, which is_file_name(). kCorrupt for names, pieces or
  /// sizes that make no sense; kUnavailable, with the file, where it cannot be written. After an
  /// Error the folder is of no more use.
  Result<void> add(const std::string& name, const std::string& bytes, bool ends);
  /// All files are complete: the folder gets its name, in place of another that has it.
  Result<void> finish();

 private:
  std::filesystem::path folder_;
  std::filesystem::path part_;  ///< Where it is until it is complete.
  std::ofstream file_{};
  std::string name_{};  ///< Of the file that is being written; empty: none.
  std::size_t files_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace heddle::remote
