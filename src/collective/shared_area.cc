#include "collective/shared_area.h"

#include <new>
#include <string>
#include <utility>

#include "base/check.h"

namespace heddle::collective {
namespace {

constexpr std::uint64_t kMagic = 0x68656464'6c657470U;  // Of this form of the memory.
constexpr std::size_t kLine = 64;  // A cache line: what two ranks write lies on different ones.
constexpr std::uint32_t kTurns = 2;
constexpr std::size_t kSlotBytesMax = std::size_t{1} << 30U;

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
  auto memory = MemoryFile::create("heddle-group",
                                   Header::bytes_of(static_cast<std::uint64_t>(ranks), slot_bytes));
  if (!memory) {
    return Error{memory.error().code, attempt + ": " + memory.error().message};
  }
  auto* header = new (memory->data()) Header;
  header->ranks = static_cast<std::uint64_t>(ranks);
  header->slot_bytes = slot_bytes;
  return std::shared_ptr<SharedArea>(new SharedArea(std::move(*memory)));
}

Result<std::shared_ptr<SharedArea>> SharedArea::attach(int fd) {
  const std::string attempt = "attach the area of a group at descriptor " + std::to_string(fd);
  auto memory = MemoryFile::attach(fd, sizeof(Header));
  if (!memory) {
    return Error{memory.error().code, attempt + ": " + memory.error().message};
  }
  const std::size_t bytes = memory->bytes();
  std::shared_ptr<SharedArea> area(new SharedArea(std::move(*memory)));
  const Header& header = area->header();
  if (header.magic != kMagic || header.ranks < 1 ||
      header.ranks > static_cast<std::uint64_t>(kRanksMax) || header.slot_bytes > kSlotBytesMax ||
      Header::bytes_of(header.ranks, header.slot_bytes) != bytes) {
    return Error{Code::kInvalidArgument,
                 attempt + ": its " + std::to_string(bytes) + " bytes are not what it says"};
  }
  return area;
}

SharedArea::Header& SharedArea::header() const {
  return *std::launder(reinterpret_cast<Header*>(memory_.data()));
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
      reinterpret_cast<Announcement*>(memory_.data() + sizeof(Header) + place(rank, turn) * kLine));
}

std::span<float> SharedArea::slot(std::int64_t rank, std::uint32_t turn) {
  const auto bytes = static_cast<std::size_t>(header().slot_bytes);
  const std::size_t before = sizeof(Header) + static_cast<std::size_t>(ranks()) * kTurns * kLine;
  return {reinterpret_cast<float*>(memory_.data() + before + place(rank, turn) * bytes),
          bytes / sizeof(float)};
}

}  // namespace heddle::collective
