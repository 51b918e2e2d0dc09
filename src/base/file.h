#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "base/result.h"

#include <sys/uio.h>

namespace heddle {

/// A file open for reading. Reads go through pread and never through a mapping, so that a file that
/// shrinks while it is read is an error and not a SIGBUS. Reading is thread safe.
class File {
 public:
  /// kNotFound if there is none; kInvalidArgument if it is no regular file or may not be read.
  static Result<File> open(const std::filesystem::path& path);

  /// The same file, open once more, wherever it has been moved.
  [[nodiscard]] Result<File> again() const;

  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File();

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  /// Its length when it was opened.
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

  /// Fills `target` with what stands at `offset`. kCorrupt if the file ends before; kUnavailable
  /// if the system cannot read it.
  Result<void> read(std::uint64_t offset, std::span<std::byte> target) const;
  /// The same into several pieces, in order, with as few system calls as may be. Changes `pieces`.
  Result<void> read(std::uint64_t offset, std::span<iovec> pieces) const;

 private:
  File(std::filesystem::path path, int descriptor, std::uint64_t bytes);

  std::filesystem::path path_;
  int descriptor_ = -1;
  std::uint64_t bytes_ = 0;
};

/// Whether there is something at `path`; false where the system does not tell.
[[nodiscard]] bool is_there(const std::filesystem::path& path);

/// The whole of a small file. kCorrupt if it has more than `bytes_max`.
[[nodiscard]] Result<std::string> read_text(const std::filesystem::path& path,
                                            std::uint64_t bytes_max);

}  // namespace heddle
