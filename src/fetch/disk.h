#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.h"

/// What models take of a disk, and what a disk says.
namespace heddle::fetch {

/// "cannot write /x/y: No space left on device": kResourceExhausted where the disk or a quota is
/// full, with what to do; else kFailedPrecondition.
[[nodiscard]] Error disk_error(std::string_view attempt,
                               const std::filesystem::path& path,
                               int number);

/// Makes a folder and those it is in, where they are not there.
[[nodiscard]] Result<void> make_folder(const std::filesystem::path& path);

/// Moves a file or folder; what is at `to` is replaced, unless it is a folder that holds something.
[[nodiscard]] Result<void> move_file(const std::filesystem::path& from,
                                     const std::filesystem::path& to);

/// Writes a small file whole or not at all.
[[nodiscard]] Result<void> write_file(const std::filesystem::path& path, std::string_view text);

/// Bytes that its disk has free for this user; the path need not be there yet.
[[nodiscard]] Result<std::uint64_t> free_bytes(const std::filesystem::path& path);

/// Bytes that a file, or all files below a folder, take of the disk; links count as nothing.
[[nodiscard]] std::uint64_t taken_bytes(const std::filesystem::path& path);

}  // namespace heddle::fetch
