#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"

namespace heddle::device {

/// What kind of memory an arena got.
enum class ArenaBacking : std::uint8_t {
  kHugetlb,    ///< 2 MiB pages from the kernel's reserved pool.
  kHugeShmem,  ///< Shared memory in which the kernel uses 2 MiB pages where it can.
  kShmem,      ///< Shared memory in small pages.
};

struct ArenaOptions {
  std::size_t page_bytes = 0;    ///< A power of two, at least the kernel's page.
  std::uint64_t page_count = 0;  ///< > 0
  /// Called now and then while memory is made usable, and when all of it is, with bytes so far and
  /// in all; may be empty.
  std::function<void(std::uint64_t, std::uint64_t)> progress{};
};

/// All memory that the models of a host share: one memfd, made by the process that hands pages out
/// and mapped whole, once, by every process that uses them. A page is a number in it, so that a
/// page changes process by its number alone, and what a killed process wrote is still there.
///
/// Making it allocates and touches every byte: lack of memory is an Error then, and never a SIGBUS
/// later. It is sealed against resizing. Movable; unmaps and closes at the end.
class Arena {
 public:
  /// From the kernel's 2 MiB pages where page_bytes is a multiple of them and enough are free, or
  /// may be made (nr_overcommit_hugepages), otherwise from shared memory, in which the kernel is
  /// asked for huge pages. kInvalidArgument for a size that cannot be, kResourceExhausted
  /// when the host has too little memory.
  static Result<Arena> create(const ArenaOptions& options);
  /// Maps an arena made elsewhere, whose descriptor was passed to this process; duplicates `fd`.
  /// kInvalidArgument unless it is a sealed memory file of whole pages.
  static Result<Arena> attach(int fd, std::size_t page_bytes);

  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  ~Arena();

  /// Gives what backs page `index` to the kernel. Nobody may touch it, here or in another process,
  /// until it was restored. kUnavailable with the kernel's reason.
  Result<void> release(std::uint64_t index);
  /// Backs a released page again; it is all zero. kResourceExhausted when the host has too little
  /// memory, and then it is as it was.
  Result<void> restore(std::uint64_t index);

  /// To be passed to other processes; stays this object's.
  [[nodiscard]] int fd() const { return fd_; }
  [[nodiscard]] std::byte* base() const { return base_; }
  [[nodiscard]] std::size_t page_bytes() const { return page_bytes_; }
  [[nodiscard]] std::uint64_t page_count() const { return bytes_ / page_bytes_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] ArenaBacking backing() const { return backing_; }
  /// What somebody could do to have such an arena in huge pages, in words: which file to write what
  /// to, or which setting to change. Empty where it is in huge pages.
  [[nodiscard]] std::string huge_page_advice() const;

 private:
  Arena(int fd, std::size_t page_bytes, std::size_t bytes, ArenaBacking backing)
      : fd_(fd), page_bytes_(page_bytes), bytes_(bytes), backing_(backing) {}
  static Result<Arena> create_backed(const ArenaOptions& options, ArenaBacking backing);
  Result<void> map_whole();
  int fill_part(std::size_t offset, std::size_t bytes);
  Result<void> fill(const std::function<void(std::uint64_t, std::uint64_t)>& progress);
  void reset();

  int fd_ = -1;
  std::byte* base_ = nullptr;
  std::size_t page_bytes_ = 0;
  std::size_t bytes_ = 0;
  ArenaBacking backing_ = ArenaBacking::kShmem;
};

}  // namespace heddle::device
