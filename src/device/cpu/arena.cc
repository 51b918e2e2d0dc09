#include "device/cpu/arena.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/host_memory.h"
#include "base/thread.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

namespace heddle::device {
namespace {

constexpr std::size_t kHugePageBytes = std::size_t{2} << 20U;
/// Filled at a time: a few tenths of a second on memory never used before.
constexpr std::size_t kFillBytes = std::size_t{64} << 20U;
/// The kernel clears about 2 GiB a second on one thread; more threads than these meet in its locks.
constexpr unsigned kFillThreads = 16;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

std::string mib(std::uint64_t bytes) {
  const bool whole = bytes % (std::uint64_t{1} << 20U) == 0;
  return whole ? std::to_string(bytes >> 20U) + " MiB" : std::to_string(bytes >> 10U) + " KiB";
}

std::string reason(int error) {
  return std::generic_category().message(error);
}

/// The first `bytes_max` bytes of a file of the kernel's; empty when it cannot be read.
std::string read_kernel_file(const char* path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path, "re"), &std::fclose);
  std::string text(std::size_t{16} << 10U, '\0');
  text.resize(file ? std::fread(text.data(), 1, text.size(), file.get()) : 0);
  return text;
}

/// A line "Name:   123 kB" or "Name:  123" of /proc/meminfo; 0 when it is not there.
std::uint64_t meminfo(std::string_view name) {
  const std::string text = "\n" + read_kernel_file("/proc/meminfo");
  const std::size_t at = text.find("\n" + std::string(name) + ":");
  return at == std::string::npos ? 0 : std::strtoull(&text[at + name.size() + 2], nullptr, 10);
}

std::uint64_t kernel_number(const char* path) {
  return std::strtoull(read_kernel_file(path).c_str(), nullptr, 10);
}

constexpr const char* kShmemEnabled = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";

bool huge_shmem_allowed() {
  const std::string text = read_kernel_file(kShmemEnabled);
  return !text.empty() && text.find("[never]") == std::string::npos &&
         text.find("[deny]") == std::string::npos;
}

Result<void> check_options(const ArenaOptions& options) {
  const auto kernel_page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  if (!std::has_single_bit(options.page_bytes) || options.page_bytes < kernel_page) {
    return Error{.code = Code::kInvalidArgument,
                 .message = "page of " + std::to_string(options.page_bytes) +
                            " bytes: must be a power of two, at least " +
                            std::to_string(kernel_page)};
  }
  constexpr std::uint64_t kBytesMax = std::uint64_t{1} << 46U;
  if (options.page_count == 0 || options.page_count > kBytesMax / options.page_bytes) {
    return Error{.code = Code::kInvalidArgument,
                 .message = "arena of " + std::to_string(options.page_count) + " pages of " +
                            mib(options.page_bytes) + ": must be 1 page to 64 TiB"};
  }
  return {};
}

ArenaBacking shmem_backing() {
  return huge_shmem_allowed() ? ArenaBacking::kHugeShmem : ArenaBacking::kShmem;
}

ArenaBacking backing_of(int fd) {
  struct statfs system{};
  const bool hugetlb = ::fstatfs(fd, &system) == 0 && system.f_type == HUGETLBFS_MAGIC;
  return hugetlb ? ArenaBacking::kHugetlb : shmem_backing();
}

ArenaBacking best_backing(const ArenaOptions& options) {
  const std::uint64_t huge_pages = options.page_count * options.page_bytes / kHugePageBytes;
  const std::uint64_t surplus = meminfo("HugePages_Surp");
  const std::uint64_t huge_free =
      meminfo("HugePages_Free") - meminfo("HugePages_Rsvd") +
      std::max(kernel_number("/proc/sys/vm/nr_overcommit_hugepages"), surplus) - surplus;
  if (options.page_bytes % kHugePageBytes == 0 && huge_pages <= huge_free) {
    return ArenaBacking::kHugetlb;
  }
  return shmem_backing();
}

/// fallocate, tried again when a signal interrupts it. errno when it fails, else 0.
int allocate(int fd, int mode, std::size_t offset, std::size_t bytes) {
  while (::fallocate(fd, mode, static_cast<off_t>(offset), static_cast<off_t>(bytes)) != 0) {
    if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

}  // namespace

Result<Arena> Arena::create(const ArenaOptions& options) {
  if (auto valid = check_options(options); !valid) {
    return valid.error();
  }
  const ArenaBacking backing = best_backing(options);
  auto arena = create_backed(options, backing);
  if (arena || backing != ArenaBacking::kHugetlb) {
    return arena;
  }
  // Somebody else took the huge pages between our look and our grasp.
  return create_backed(options, shmem_backing());
}

Result<Arena> Arena::create_backed(const ArenaOptions& options, ArenaBacking backing) {
  const std::size_t bytes = options.page_count * options.page_bytes;
  const std::string attempt = "make an arena of " + mib(bytes);
  // Shared memory is not limited by anything but the kernel's last resort, which kills processes.
  const HostMemory host = host_memory();
  if (backing != ArenaBacking::kHugetlb && bytes > host.available) {
    const std::string whose = host.group.empty() ? "the host" : "the control group " + host.group;
    return Error{.code = Code::kResourceExhausted,
                 .message = attempt + ": " + whose + " has " + mib(host.available >> 20U << 20U) +
                            " available; give the devices and the host cache less memory"};
  }
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING |
                         (backing == ArenaBacking::kHugetlb ? MFD_HUGETLB | MFD_HUGE_2MB : 0U);
  const int fd = ::memfd_create("heddle-arena", flags);
  if (fd < 0) {
    return Error{.code = Code::kUnavailable,
                 .message = attempt + ": memfd_create: " + reason(errno)};
  }
  Arena arena(fd, options.page_bytes, bytes, backing);
  if (::ftruncate(fd, static_cast<off_t>(bytes)) != 0 || ::fcntl(fd, F_ADD_SEALS, kSeals) != 0) {
    return Error{.code = Code::kResourceExhausted,
                 .message = attempt + ": size its file: " + reason(errno)};
  }
  if (auto mapped = arena.map_whole(); !mapped) {
    return mapped.error();
  }
  if (auto filled = arena.fill(options.progress); !filled) {
    return filled.error();
  }
  return std::move(arena);
}

Result<Arena> Arena::attach(int fd, std::size_t page_bytes) {
  const std::string attempt = "attach an arena of pages of " + mib(page_bytes);
  struct stat file{};
  if (::fstat(fd, &file) != 0) {
    return Error{.code = Code::kInvalidArgument,
                 .message = attempt + ": descriptor " + std::to_string(fd) + ": " + reason(errno)};
  }
  const auto bytes = static_cast<std::size_t>(file.st_size);
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    return Error{.code = Code::kInvalidArgument,
                 .message = attempt + ": descriptor " + std::to_string(fd) +
                            " is not a memory file sealed against resizing"};
  }
  const auto kernel_page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  if (!std::has_single_bit(page_bytes) || page_bytes < kernel_page || bytes == 0 ||
      bytes % page_bytes != 0) {
    return Error{.code = Code::kInvalidArgument,
                 .message = attempt + ": the file's " + std::to_string(bytes) +
                            " bytes are not a whole number of such pages"};
  }
  const int own = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (own < 0) {
    return Error{.code = Code::kUnavailable, .message = attempt + ": dup: " + reason(errno)};
  }
  Arena arena(own, page_bytes, bytes, backing_of(own));
  if (auto mapped = arena.map_whole(); !mapped) {
    return mapped.error();
  }
  return std::move(arena);
}

/// Maps the file at an address that is a multiple of 2 MiB and of the page, as windows on huge
/// pages need.
Result<void> Arena::map_whole() {
  const std::size_t alignment = std::max(page_bytes_, kHugePageBytes);
  void* reserved = ::mmap(
      nullptr, bytes_ + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) {
    return Error{.code = Code::kResourceExhausted,
                 .message = "map an arena of " + mib(bytes_) + ": " + reason(errno)};
  }
  auto* const first = static_cast<std::byte*>(reserved);
  const std::size_t skip =
      (alignment - std::bit_cast<std::uintptr_t>(first) % alignment) % alignment;
  std::byte* const base = first + skip;
  const std::size_t tail = alignment - skip;
  if (::mmap(base, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd_, 0) == MAP_FAILED) {
    const int error = errno;
    ::munmap(first, bytes_ + alignment);
    return Error{.code = Code::kResourceExhausted,
                 .message = "map an arena of " + mib(bytes_) + ": " + reason(error)};
  }
  base_ = base;
  if (skip > 0) {
    ::munmap(first, skip);
  }
  if (tail > 0) {
    ::munmap(base + bytes_, tail);
  }
  if (backing_ == ArenaBacking::kHugeShmem) {
    ::madvise(base_, bytes_, MADV_HUGEPAGE);  // Only speed depends on it.
  }
  return {};
}

/// Has the kernel back a part and clear it. errno when memory is short, else 0.
int Arena::fill_part(std::size_t offset, std::size_t bytes) {
  while (::madvise(base_ + offset, bytes, MADV_POPULATE_WRITE) != 0) {
    if (errno == EINVAL) {  // A kernel before 5.14: to touch what is not allocated may be SIGBUS.
      const int failed = allocate(fd_, 0, offset, bytes);
      if (failed == 0) {
        std::memset(base_ + offset, 0, bytes);
      }
      return failed;
    }
    if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

/// Part by part, by as many threads as the host has cores for; progress is told by this one.
Result<void> Arena::fill(const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
  const std::size_t parts = (bytes_ + kFillBytes - 1) / kFillBytes;
  std::atomic<std::size_t> next = 0;
  std::atomic<std::size_t> done = 0;
  std::atomic<int> failed = 0;
  const auto work = [&](bool tells) {
    for (std::size_t part = next++; part < parts && failed == 0; part = next++) {
      const std::size_t offset = part * kFillBytes;
      const std::size_t bytes = std::min(kFillBytes, bytes_ - offset);
      if (const int error = fill_part(offset, bytes); error != 0) {
        failed = error;
        return;
      }
      done += bytes;
      if (tells && progress) {
        progress(done, bytes_);
      }
    }
  };
  {
    const std::size_t threads = std::clamp(std::thread::hardware_concurrency(), 1U, kFillThreads);
    std::vector<Thread> helpers;
    while (helpers.size() + 1 < std::min(threads, parts)) {
      Result<Thread> helper = Thread::start({.name = "arena"}, [&work] { work(false); });
      if (!helper) {
        break;  // Those that there are take longer.
      }
      helpers.push_back(std::move(*helper));
    }
    work(true);
  }
  if (failed != 0) {
    return Error{.code = Code::kResourceExhausted,
                 .message = "make an arena of " + mib(bytes_) + ": " + reason(failed) + " after " +
                            mib(done) + "; give the devices and the host cache less memory"};
  }
  if (progress) {
    progress(bytes_, bytes_);
  }
  return {};
}

Result<void> Arena::release(std::uint64_t index) {
  HEDDLE_CHECK(index < page_count());
  const int failed =
      allocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, index * page_bytes_, page_bytes_);
  if (failed != 0) {
    return Error{.code = Code::kUnavailable,
                 .message = "give a page of the arena to the kernel: " + reason(failed)};
  }
  return {};
}

Result<void> Arena::restore(std::uint64_t index) {
  HEDDLE_CHECK(index < page_count());
  const int failed = allocate(fd_, 0, index * page_bytes_, page_bytes_);
  if (failed != 0) {
    return Error{.code = Code::kResourceExhausted,
                 .message = "back a page of the arena with memory: " + reason(failed)};
  }
  return {};
}

std::string Arena::huge_page_advice() const {
  if (backing_ != ArenaBacking::kShmem) {
    return {};
  }
  if (page_bytes_ % kHugePageBytes != 0) {
    return "give the devices pages of 2 MiB or a multiple (page: 2MiB), not of " + mib(page_bytes_);
  }
  std::string advice = "write " + std::to_string(bytes_ / kHugePageBytes) +
                       " or more to /proc/sys/vm/nr_hugepages (sysctl vm.nr_hugepages)";
  if (!read_kernel_file(kShmemEnabled).empty()) {
    advice += std::string(", or advise to ") + kShmemEnabled;
  }
  return advice + ", and start again";
}

Arena::Arena(Arena&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      base_(std::exchange(other.base_, nullptr)),
      page_bytes_(other.page_bytes_),
      bytes_(other.bytes_),
      backing_(other.backing_) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = std::exchange(other.fd_, -1);
    base_ = std::exchange(other.base_, nullptr);
    page_bytes_ = other.page_bytes_;
    bytes_ = other.bytes_;
    backing_ = other.backing_;
  }
  return *this;
}

Arena::~Arena() {
  reset();
}

void Arena::reset() {
  if (base_ != nullptr) {
    HEDDLE_CHECK(::munmap(base_, bytes_) == 0);
    base_ = nullptr;
  }
  if (fd_ >= 0) {
    ::close(fd_);
    fd_ = -1;
  }
}

}  // namespace heddle::device
