#include "fetch/partial_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/file.h"
#include "base/siphash.h"
#include "fetch/disk.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace heddle::fetch {
namespace {

constexpr std::size_t kHeadBytes = 64;
constexpr std::uint64_t kBootIdBytesMax = 100;

std::size_t pieces_of(std::uint64_t bytes, std::uint64_t piece_bytes) {
  return bytes / piece_bytes + (bytes % piece_bytes != 0 ? 1 : 0);
}

/// The head of a record: equal for equal objects, cut into equal pieces.
std::array<std::byte, kHeadBytes> head_of(const Object& object, std::uint64_t piece_bytes) {
  std::string text = fmt::format("{}\n{}\n{}\n", object.identity(), object.bytes, piece_bytes);
  if (!object.has_digest()) {
    const auto boot = read_text("/proc/sys/kernel/random/boot_id", kBootIdBytesMax);
    text += boot ? *boot : "";
  }
  const Digest digest = siphash(SipKey{}, std::as_bytes(std::span(text)));
  const std::string line = fmt::format("heddle pieces 1 {:016x}{:016x}\n", digest.low, digest.high);
  std::array<std::byte, kHeadBytes> head{};
  HEDDLE_CHECK(line.size() < head.size());
  std::memcpy(head.data(), line.data(), line.size());
  return head;
}

Result<void> write_all(int file,
                       std::uint64_t offset,
                       std::span<const std::byte> bytes,
                       const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ::ssize_t wrote =
        ::pwrite(file, bytes.data(), bytes.size(), static_cast<::off_t>(offset));
    if (wrote < 0 && errno == EINTR) {
      continue;
    }
    if (wrote <= 0) {
      return disk_error("write", path, wrote < 0 ? errno : ENOSPC);
    }
    offset += static_cast<std::uint64_t>(wrote);
    bytes = bytes.subspan(static_cast<std::size_t>(wrote));
  }
  return {};
}

}  // namespace

Result<PartialFile> PartialFile::open(const std::filesystem::path& path,
                                      const Object& object,
                                      std::uint64_t piece_bytes) {
  HEDDLE_CHECK(piece_bytes > 0);
  if (const Result<void> made = make_folder(path.parent_path()); !made) {
    return made.error();
  }
  Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!file) {
    return disk_error("open", path, errno);
  }
  PartialFile partial(path, std::move(file), object.bytes, piece_bytes);
  partial.there_.assign(pieces_of(object.bytes, piece_bytes), 0);
  const auto head = head_of(object, piece_bytes);
  if (!object.identity().empty() && partial.resume(head)) {
    return partial;
  }
  if (const Result<void> begun = partial.begin(head); !begun) {
    return begun.error();
  }
  return partial;
}

bool PartialFile::resume(std::span<const std::byte> head) {
  struct stat found{};
  const std::uint64_t whole = bytes_ + head.size() + there_.size();
  if (::fstat(file_.get(), &found) != 0 || static_cast<std::uint64_t>(found.st_size) != whole) {
    return false;
  }
  std::vector<std::byte> record(head.size() + there_.size());
  const ::ssize_t got =
      ::pread(file_.get(), record.data(), record.size(), static_cast<::off_t>(bytes_));
  if (got != static_cast<::ssize_t>(record.size()) ||
      !std::ranges::equal(std::span(record).first(head.size()), head)) {
    return false;
  }
  for (std::size_t i = 0; i < there_.size(); ++i) {
    there_[i] = record[head.size() + i] == std::byte{1} ? 1 : 0;
  }
  return true;
}

Result<void> PartialFile::begin(std::span<const std::byte> head) {
  const auto whole = static_cast<::off_t>(bytes_ + head.size() + there_.size());
  if (::ftruncate(file_.get(), 0) != 0 || ::ftruncate(file_.get(), whole) != 0) {
    return disk_error("make room for", path_, errno);
  }
  return write_all(file_.get(), bytes_, head, path_);
}

Result<void> PartialFile::reserve(Range range) const {
  const auto begin = static_cast<::off_t>(range.begin);
  const auto bytes = static_cast<::off_t>(range.bytes());
  if (bytes == 0 || ::fallocate(file_.get(), 0, begin, bytes) == 0 || errno == EOPNOTSUPP ||
      errno == ENOSYS) {
    return {};
  }
  return disk_error("make room for", path_, errno);
}

Range PartialFile::piece(std::size_t index) const {
  const std::uint64_t begin = index * piece_bytes_;
  return {begin, std::min(begin + piece_bytes_, bytes_)};
}

std::vector<Range> PartialFile::missing() const {
  std::vector<Range> ranges;
  for (std::size_t i = 0; i < there_.size(); ++i) {
    if (there_[i] == 0) {
      ranges.push_back(piece(i));
    }
  }
  return ranges;
}

std::uint64_t PartialFile::present_bytes() const {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < there_.size(); ++i) {
    bytes += there_[i] != 0 ? piece(i).bytes() : 0;
  }
  return bytes;
}

Result<void> PartialFile::write(std::uint64_t offset, std::span<const std::byte> bytes) const {
  HEDDLE_CHECK(offset + bytes.size() <= bytes_);
  return write_all(file_.get(), offset, bytes, path_);
}

Result<void> PartialFile::mark(Range range) {
  const std::size_t first = range.begin / piece_bytes_;
  const std::size_t last = pieces_of(range.end, piece_bytes_);
  for (std::size_t i = first; i < last; ++i) {
    there_[i] = 1;
  }
  return write_all(file_.get(),
                   bytes_ + kHeadBytes + first,
                   std::as_bytes(std::span(there_).subspan(first, last - first)),
                   path_);
}

Result<void> PartialFile::forget() {
  std::ranges::fill(there_, 0);
  return write_all(file_.get(), bytes_ + kHeadBytes, std::as_bytes(std::span(there_)), path_);
}

Result<void> PartialFile::finish() {
  HEDDLE_CHECK(missing().empty());
  if (::ftruncate(file_.get(), static_cast<::off_t>(bytes_)) != 0 ||
      ::fdatasync(file_.get()) != 0) {
    return disk_error("finish", path_, errno);
  }
  return {};
}

}  // namespace heddle::fetch
