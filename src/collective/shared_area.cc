#include "collective/shared_area.h"

#include <cerrno>
#include <new>
#include <string>
#include <system_error>

#include "base/check.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace heddle::collective {
namespace {

constexpr std::uint64_t kMagic = 0x68656464'6c657470U;  // Of this form of the memory.
constexpr std::size_t kLine = 64;  // A cache line: what two ranks write lies on different ones.
constexpr std::uint32_t kTurns = 2;
constexpr std::size_t kSlotBytesMax = std::size_t{1} << 30U;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

std::string reason(int error) {
  return std::generic_category().message(error);
}

}  // namespace

/// The beginning of the memory. Behind it, for each rank and turn, its announcement on a line of
/// its own; and then, for each, its slot.
struct SharedArea::Header {
  std::uint64_t magic = kMagic;
  std::uint64_t ranks = 0;
  std::uint64_t slot_bytes = 0;
  alignas(kLine) SharedBarrier barrier{};

  [[nodiscard]] static std::size_t bytes_of(std::uint64_t ranks, std::uint64_t slot_bytes) {
    return sizeof(Header) + static_cast<std::size_t>(ranks * kTurns * (kLine + slot_bytes));
  }
};

Result<std::shared_ptr<SharedArea>> SharedArea::create(std::int64_t ranks, std::size_t slot_bytes) {
  const std::string attempt = "make an area for " + std::to_string(ranks) + " ranks and slots of " +
                              std::to_string(slot_bytes) + " bytes";
  if (ranks < 1 || ranks > kRanksMax || slot_bytes == 0 || slot_bytes % kLine != 0 ||
      slot_bytes > kSlotBytesMax) {
    return Error{Code::kInvalidArgument,
                 attempt + ": must be 1 to " + std::to_string(kRanksMax) +
                     " ranks and a multiple of 64, at most 1 GiB"};
  }
  Descriptor memory(::memfd_create("heddle-group", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory) {
    return Error{Code::kUnavailable, attempt + ": memfd_create: " + reason(errno)};
  }
  const std::size_t bytes = Header::bytes_of(static_cast<std::uint64_t>(ranks), slot_bytes);
  // Allocated at once: lack of memory is an error now and no SIGBUS later.
  int failed = EINTR;
  while (failed == EINTR) {
    failed = ::posix_fallocate(memory.get(), 0, static_cast<off_t>(bytes));
  }
  if (failed != 0) {
    return Error{Code::kResourceExhausted, attempt + ": " + reason(failed)};
  }
  if (::fcntl(memory.get(), F_ADD_SEALS, kSeals) != 0) {
    return Error{Code::kUnavailable, attempt + ": seal it: " + reason(errno)};
  }
  auto area = map(std::move(memory), bytes);
  if (area) {
    auto* header = new ((*area)->base_) Header;
    header->ranks = static_cast<std::uint64_t>(ranks);
    header->slot_bytes = slot_bytes;
  }
  return area;
}

Result<std::shared_ptr<SharedArea>> SharedArea::attach(int fd) {
  const std::string attempt = "attach the area of a group at descriptor " + std::to_string(fd);
  struct stat file{};
  if (::fstat(fd, &file) != 0) {
    return Error{Code::kInvalidArgument, attempt + ": " + reason(errno)};
  }
  const auto bytes = static_cast<std::size_t>(file.st_size);
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || bytes < sizeof(Header)) {
    return Error{Code::kInvalidArgument, attempt + ": it is not a sealed memory file of one"};
  }
  Descriptor own(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!own) {
    return Error{Code::kUnavailable, attempt + ": dup: " + reason(errno)};
  }
  auto area = map(std::move(own), bytes);
  if (!area) {
    return area;
  }
  const Header& header = (*area)->header();
  if (header.magic != kMagic || header.ranks < 1 ||
      header.ranks > static_cast<std::uint64_t>(kRanksMax) || header.slot_bytes > kSlotBytesMax ||
      Header::bytes_of(header.ranks, header.slot_bytes) != bytes) {
    return Error{Code::kInvalidArgument,
                 attempt + ": its " + std::to_string(bytes) + " bytes are not what it says"};
  }
  return area;
}

Result<std::shared_ptr<SharedArea>> SharedArea::map(Descriptor descriptor, std::size_t bytes) {
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor.get(), 0);
  if (base == MAP_FAILED) {
    return Error{Code::kResourceExhausted,
                 "map the " + std::to_string(bytes) + " bytes of a group's area: " + reason(errno)};
  }
  return std::shared_ptr<SharedArea>(
      new SharedArea(std::move(descriptor), static_cast<std::byte*>(base), bytes));
}

SharedArea::~SharedArea() {
  HEDDLE_CHECK(::munmap(base_, bytes_) == 0);
}

SharedArea::Header& SharedArea::header() const {
  return *std::launder(reinterpret_cast<Header*>(base_));
}

std::int64_t SharedArea::ranks() const {
  return static_cast<std::int64_t>(header().ranks);
}

SharedBarrier& SharedArea::barrier() {
  return header().barrier;
}

/// Which of all ranks' turns this is.
std::size_t SharedArea::place(std::int64_t rank, std::uint32_t turn) const {
  HEDDLE_CHECK(rank >= 0 && rank < ranks() && turn < kTurns);
  return static_cast<std::size_t>(rank) * kTurns + turn;
}

Announcement& SharedArea::announcement(std::int64_t rank, std::uint32_t turn) {
  static_assert(sizeof(Announcement) <= kLine);
  return *std::launder(
      reinterpret_cast<Announcement*>(base_ + sizeof(Header) + place(rank, turn) * kLine));
}

std::span<float> SharedArea::slot(std::int64_t rank, std::uint32_t turn) {
  const auto bytes = static_cast<std::size_t>(header().slot_bytes);
  const std::size_t before = sizeof(Header) + static_cast<std::size_t>(ranks()) * kTurns * kLine;
  return {reinterpret_cast<float*>(base_ + before + place(rank, turn) * bytes),
          bytes / sizeof(float)};
}

}  // namespace heddle::collective
