#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "base/descriptor.h"
#include "base/result.h"
#include "fetch/object.h"

namespace heddle::fetch {

/// An object that is coming, piece by piece and in any order, and what of it is there. Behind the
/// object's bytes stands a record of the pieces, so that a later process goes on from there; it is
/// cut off when all is there. A record counts only for the same object, by its identity and size,
/// and for one without a digest only until the machine starts anew: then what was written last may
/// be lost.
///
/// write() may be called by any threads for different bytes; the rest by one at a time.
class PartialFile {
 public:
  /// Opens the file at `path` for an object, or makes it, as a hole. As disk_error().
  [[nodiscard]] static Result<PartialFile> open(const std::filesystem::path& path,
                                                const Object& object,
                                                std::uint64_t piece_bytes);

  /// The pieces that are not there.
  [[nodiscard]] std::vector<Range> missing() const;
  /// Bytes of those that are.
  [[nodiscard]] std::uint64_t present_bytes() const;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  /// Takes room for these bytes of the disk, where its file system can: then a full disk shows now.
  [[nodiscard]] Result<void> reserve(Range range) const;
  [[nodiscard]] Result<void> write(std::uint64_t offset, std::span<const std::byte> bytes) const;
  /// All pieces that lie in `range` are there.
  [[nodiscard]] Result<void> mark(Range range);
  /// Nothing is there any more.
  [[nodiscard]] Result<void> forget();
  /// Cuts the record off, and has the disk hold the rest. All pieces are there.
  [[nodiscard]] Result<void> finish();

 private:
  PartialFile(std::filesystem::path path, Descriptor file, std::uint64_t bytes, std::uint64_t piece)
      : path_(std::move(path)), file_(std::move(file)), bytes_(bytes), piece_bytes_(piece) {}
  [[nodiscard]] Result<void> begin(std::span<const std::byte> head);
  [[nodiscard]] bool resume(std::span<const std::byte> head);
  [[nodiscard]] Range piece(std::size_t index) const;

  std::filesystem::path path_;
  Descriptor file_;
  std::uint64_t bytes_;
  std::uint64_t piece_bytes_;
  std::vector<char> there_{};  ///< 1 for each piece that is, as the record has it.
};

}  // namespace heddle::fetch
