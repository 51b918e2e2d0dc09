#include "base/file.h"

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/units.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace heddle {
namespace {

constexpr std::size_t kPiecesMax = 1024;  // IOV_MAX on Linux.

std::string reason(int error) {
  return std::generic_category().message(error);
}

}  // namespace

File::File(std::filesystem::path path, int descriptor, std::uint64_t bytes)
    : path_(std::move(path)), descriptor_(descriptor), bytes_(bytes) {}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      bytes_(other.bytes_) {}

File& File::operator=(File&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

File::~File() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

Result<File> File::open(const std::filesystem::path& path) {
  // Not blocking: opening a pipe that nobody writes to must not hang.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    const int error = errno;
    return Error{error == ENOENT || error == ENOTDIR ? Code::kNotFound : Code::kInvalidArgument,
                 fmt::format("cannot open {}: {}", path.string(), reason(error))};
  }
  struct stat status{};
  const bool known = ::fstat(descriptor, &status) == 0;
  File file(path, descriptor, known ? static_cast<std::uint64_t>(status.st_size) : 0);
  if (!known || !S_ISREG(status.st_mode)) {
    return Error{Code::kInvalidArgument, fmt::format("{} is not a regular file", path.string())};
  }
  return file;
}

Result<File> File::again() const {
  const int descriptor = ::fcntl(descriptor_, F_DUPFD_CLOEXEC, 0);
  if (descriptor < 0) {
    return Error{Code::kUnavailable,
                 fmt::format("cannot open {}: {}", path_.string(), reason(errno))};
  }
  return File(path_, descriptor, bytes_);
}

Result<void> File::read(std::uint64_t offset, std::span<std::byte> target) const {
  iovec piece{.iov_base = target.data(), .iov_len = target.size()};
  return read(offset, {&piece, 1});
}

Result<void> File::read(std::uint64_t offset, std::span<iovec> pieces) const {
  while (!pieces.empty()) {
    if (pieces.front().iov_len == 0) {
      pieces = pieces.subspan(1);
      continue;
    }
    const auto count = static_cast<int>(std::min(pieces.size(), kPiecesMax));
    const ssize_t got = ::preadv(descriptor_, pieces.data(), count, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      return Error{
          Code::kUnavailable,
          fmt::format("cannot read {} at byte {}: {}", path_.string(), offset, reason(errno))};
    }
    if (got == 0) {
      return Error{
          Code::kCorrupt,
          fmt::format("{} has no byte {} any more, though it had {} bytes when it was opened",
                      path_.string(),
                      offset,
                      bytes_)};
    }
    offset += static_cast<std::uint64_t>(got);
    auto left = static_cast<std::size_t>(got);
    while (left > 0) {
      iovec& piece = pieces.front();
      const std::size_t taken = std::min(left, piece.iov_len);
      piece.iov_base = static_cast<std::byte*>(piece.iov_base) + taken;
      piece.iov_len -= taken;
      left -= taken;
      if (piece.iov_len == 0) {
        pieces = pieces.subspan(1);
      }
    }
  }
  return {};
}

bool is_there(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

Result<std::string> read_text(const std::filesystem::path& path, std::uint64_t bytes_max) {
  const Result<File> file = File::open(path);
  if (!file) {
    return file.error();
  }
  if (file->bytes() > bytes_max) {
    return Error{Code::kCorrupt,
                 fmt::format("{} has {}; at most {} are read",
                             path.string(),
                             format_bytes(file->bytes()),
                             format_bytes(bytes_max))};
  }
  std::string text(file->bytes(), '\0');
  const Result<void> read = file->read(0, std::as_writable_bytes(std::span(text)));
  if (!read) {
    return read.error();
  }
  return text;
}

}  // namespace heddle
