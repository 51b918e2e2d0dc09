#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "base/memory_file.h"
#include "base/result.h"
#include "collective/shared_barrier.h"

namespace heddle::collective {

/// What a rank says of the operation that it takes part in: all ranks must say the same.
struct Announcement {
  std::uint32_t operation = 0;
  std::uint32_t check = 0;  ///< Of how the operation is divided among the ranks, where it is.
  std::uint64_t count = 0;  ///< Elements that are still to be exchanged.
  std::uint64_t value = 0;  ///< That all are to agree about.
  friend bool operator==(const Announcement&, const Announcement&) = default;
};

/// The memory through which the ranks of a group exchange data: one memfd, made by whoever forms
/// the group and mapped by all its ranks. Per rank it has two slots, used in turn, so that one may
/// be filled while others still read the other; and a barrier.
///
/// For one group: it is never used again after that was abandoned. Shared by the threads of a
/// process; unmaps and closes with the last reference.
class SharedArea {
 public:
  static constexpr std::int64_t kRanksMax = 64;
  static constexpr std::size_t kSlotBytes = std::size_t{256} << 10U;  ///< As a cache holds them.

  /// Makes the memory, with slots of `slot_bytes` (a multiple of 64, > 0): twice that per rank.
  /// kInvalidArgument for sizes that cannot be, kResourceExhausted when the host has too little
  /// memory.
  static Result<std::shared_ptr<SharedArea>> create(std::int64_t ranks,
                                                    std::size_t slot_bytes = kSlotBytes);
  /// Maps what another process made and passed; duplicates `fd`. kInvalidArgument unless it is
  /// such a memory file.
  static Result<std::shared_ptr<SharedArea>> attach(int fd);

  SharedArea(const SharedArea&) = delete;
  SharedArea& operator=(const SharedArea&) = delete;

  /// To be passed to other processes; stays this object's.
  [[nodiscard]] int fd() const { return memory_.fd(); }
  [[nodiscard]] std::int64_t ranks() const;

  /// Ends the group: all ranks that wait return at once, wherever they are. For who watches over
  /// the ranks and sees one die. Any thread of any process.
  void abandon() { barrier().abandon(); }

  [[nodiscard]] SharedBarrier& barrier();
  /// All of it, for a device that reads what is in it.
  [[nodiscard]] std::span<std::byte> memory() const { return {memory_.data(), memory_.bytes()}; }
  /// Of a rank, in turn 0 or 1: what it says, and its data.
  [[nodiscard]] Announcement& announcement(std::int64_t rank, std::uint32_t turn);
  [[nodiscard]] std::span<float> slot(std::int64_t rank, std::uint32_t turn);

 private:
  struct Header;
  explicit SharedArea(MemoryFile memory) : memory_(std::move(memory)) {}
  [[nodiscard]] Header& header() const;
  [[nodiscard]] std::size_t place(std::int64_t rank, std::uint32_t turn) const;

  MemoryFile memory_;
};

}  // namespace heddle::collective
