#include "fetch/disk.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>

#include <fmt/format.h>

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

namespace heddle::fetch {

namespace fs = std::filesystem;

Error disk_error(std::string_view attempt, const fs::path& path, int number) {
  const bool full = number == ENOSPC || number == EDQUOT;
  return {full ? Code::kResourceExhausted : Code::kFailedPrecondition,
          fmt::format("cannot {} {}: {}{}",
                      attempt,
                      path.string(),
                      std::generic_category().message(number),
                      full ? "; make room there, or have the cache elsewhere (HF_HOME, "
                             "XDG_CACHE_HOME)"
                           : "")};
}

Result<void> make_folder(const fs::path& path) {
  std::error_code failure;
  (void)fs::create_directories(path, failure);
  return failure ? Result<void>(disk_error("make the folder", path, failure.value()))
                 : Result<void>();
}

Result<void> move_file(const fs::path& from, const fs::path& to) {
  std::error_code failure;
  fs::rename(from, to, failure);
  return failure ? Result<void>(
                       disk_error(fmt::format("move {} to", from.string()), to, failure.value()))
                 : Result<void>();
}

Result<void> write_file(const fs::path& path, std::string_view text) {
  if (const Result<void> made = make_folder(path.parent_path()); !made) {
    return made;
  }
  const fs::path next = path.string() + ".next";
  std::ofstream out(next, std::ios::binary | std::ios::trunc);
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
  out.close();
  if (!out) {
    return disk_error("write", next, errno);
  }
  return move_file(next, path);
}

Result<std::uint64_t> free_bytes(const fs::path& path) {
  fs::path there = path;
  std::error_code ignored;
  while (!fs::exists(there, ignored) && there.has_parent_path() && there != there.parent_path()) {
    there = there.parent_path();
  }
  struct statvfs disk{};
  if (::statvfs(there.empty() ? "." : there.c_str(), &disk) != 0) {
    return disk_error("ask what is free at", there, errno);
  }
  return static_cast<std::uint64_t>(disk.f_bavail) * disk.f_frsize;
}

std::uint64_t taken_bytes(const fs::path& path) {
  const auto of_file = [](const fs::path& file) -> std::uint64_t {
    struct stat found{};
    constexpr std::uint64_t kBlock = 512;
    return ::lstat(file.c_str(), &found) == 0 && S_ISREG(found.st_mode)
               ? static_cast<std::uint64_t>(found.st_blocks) * kBlock
               : 0;
  };
  std::error_code failure;
  if (!fs::is_directory(path, failure)) {
    return of_file(path);
  }
  std::uint64_t bytes = 0;
  for (fs::recursive_directory_iterator at(path, failure), end; !failure && at != end;
       at.increment(failure)) {
    bytes += of_file(at->path());
  }
  return bytes;
}

}  // namespace heddle::fetch
