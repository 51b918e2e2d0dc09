#include "device/cpu/cpu_device.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/thread.h"
#include "device/cpu/cpu_stream.h"
#include "device/cpu/thread_pool.h"

#include <sys/mman.h>

namespace heddle::device {
namespace {

/// Where the kernel does not say: half of its default.
constexpr std::uint64_t kMostMappings = 32'765;
/// Populated at a time by one of so many threads: half a millisecond where pages are small.
constexpr std::size_t kPopulateBytes = std::size_t{4} << 20U;
constexpr unsigned kPopulateThreads = 4;

/// The number of leading pages that are adjacent in the arena.
std::size_t run_length(std::span<const PageId> pages) {
  std::size_t length = 1;
  while (length < pages.size() && pages[length].value() == pages[0].value() + length) {
    ++length;
  }
  return length;
}

/// Fresh addresses, or (at `at`) addresses made inaccessible in one step, so that no other thread's
/// mapping can slip in.
void* map_nothing(void* at, std::size_t bytes) {
  const int fixed = at == nullptr ? 0 : MAP_FIXED;
  return ::mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | fixed, -1, 0);
}

Error map_error(const std::string& attempt, int error) {
  const std::string hint =
      error == ENOMEM ? " (at most sysctl vm.max_map_count mappings, or out of addresses)" : "";
  return Error{.code = Code::kResourceExhausted,
               .message = attempt + ": " + std::generic_category().message(error) + hint};
}

void populate_part(std::byte* at, std::size_t bytes) {
  // A kernel before 5.14 does not know how: then the first use faults.
  while (::madvise(at, bytes, MADV_POPULATE_READ) != 0 && errno == EINTR) {
  }
}

/// Half of what the kernel allows a process: the rest is for windows in use, and everything else.
std::uint64_t most_mappings() {
  std::uint64_t allowed = 0;
  std::ifstream("/proc/sys/vm/max_map_count") >> allowed;
  return allowed == 0 ? kMostMappings : allowed / 2;
}

}  // namespace

CpuDevice::CpuDevice(Arena arena, CpuDeviceOptions options)
    : arena_(std::move(arena)),
      options_(std::move(options)),
      properties_{.kind = Kind::kCpu,
                  .name = "cpu",
                  .page_bytes = arena_.page_bytes(),
                  .page_count = arena_.page_count(),
                  .most_mappings = most_mappings()} {}

std::byte* CpuDevice::page_address(PageId page) const {
  HEDDLE_DCHECK(page.value() < properties_.page_count);
  return arena_.base() + page.value() * properties_.page_bytes;
}

Result<Buffer> CpuDevice::allocate(Place /*place*/, std::size_t bytes) {
  HEDDLE_CHECK(bytes > 0);
  void* const memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return map_error("allocate " + std::to_string(bytes) + " bytes", errno);
  }
  return Buffer(static_cast<std::byte*>(memory), bytes, [bytes](std::byte* data) {
    HEDDLE_CHECK(::munmap(data, bytes) == 0);
  });
}

Result<AddressRange> CpuDevice::reserve(std::size_t bytes) {
  HEDDLE_CHECK(bytes > 0 && bytes % properties_.page_bytes == 0);
  // Aligned to the page, which huge pages insist on: reserve more, then trim both ends.
  const std::size_t slack = properties_.page_bytes;
  void* const reserved = map_nothing(nullptr, bytes + slack);
  if (reserved == MAP_FAILED) {
    return map_error("reserve " + std::to_string(bytes) + " bytes of addresses", errno);
  }
  auto* const first = static_cast<std::byte*>(reserved);
  const std::size_t skip = (slack - std::bit_cast<std::uintptr_t>(first) % slack) % slack;
  if (skip > 0) {
    HEDDLE_CHECK(::munmap(first, skip) == 0);
  }
  if (skip < slack) {
    HEDDLE_CHECK(::munmap(first + skip + bytes, slack - skip) == 0);
  }
  return AddressRange{.base = first + skip, .bytes = bytes};
}

void CpuDevice::release(AddressRange range) {
  HEDDLE_CHECK(::munmap(range.base, range.bytes) == 0);
}

Result<void> CpuDevice::map(AddressRange range,
                            std::size_t offset,
                            std::span<const PageId> pages,
                            Access access) {
  const std::size_t page_bytes = properties_.page_bytes;
  HEDDLE_CHECK(offset % page_bytes == 0 && offset <= range.bytes);
  HEDDLE_CHECK(pages.size() <= (range.bytes - offset) / page_bytes);
  const int protection = access == Access::kRead ? PROT_READ : PROT_READ | PROT_WRITE;
  const int populate = access == Access::kRead ? 0 : MAP_POPULATE;
  std::size_t done = 0;
  while (done < pages.size()) {
    const std::size_t run = run_length(pages.subspan(done));
    HEDDLE_CHECK(pages[done].value() + run <= properties_.page_count);
    const void* mapped = ::mmap(range.base + offset + done * page_bytes,
                                run * page_bytes,
                                protection,
                                MAP_SHARED | MAP_FIXED | populate,
                                arena_.fd(),
                                static_cast<off_t>(pages[done].value() * page_bytes));
    if (mapped == MAP_FAILED) {
      const Error error = map_error("map " + std::to_string(pages.size()) + " pages, " +
                                        std::to_string(done) + " of which were mapped",
                                    errno);
      unmap(range, offset, pages.size() * page_bytes);
      return error;
    }
    done += run;
  }
  return {};
}

void CpuDevice::populate(AddressRange range, std::size_t offset, std::size_t bytes) {
  HEDDLE_CHECK(offset <= range.bytes && bytes <= range.bytes - offset);
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t at = next.fetch_add(kPopulateBytes); at < bytes;
         at = next.fetch_add(kPopulateBytes)) {
      populate_part(range.base + offset + at, std::min(kPopulateBytes, bytes - at));
    }
  };
  const std::size_t threads =
      std::min<std::size_t>(std::clamp(std::thread::hardware_concurrency(), 1U, kPopulateThreads),
                            bytes / kPopulateBytes);
  std::vector<Thread> helpers;
  while (helpers.size() + 1 < threads) {
    Result<Thread> helper = Thread::start({.name = "populate"}, work);
    if (!helper) {
      break;  // Those that there are take longer.
    }
    helpers.push_back(std::move(*helper));
  }
  work();
}

void CpuDevice::unmap(AddressRange range, std::size_t offset, std::size_t bytes) {
  HEDDLE_CHECK(offset % properties_.page_bytes == 0 && bytes % properties_.page_bytes == 0);
  HEDDLE_CHECK(offset <= range.bytes && bytes <= range.bytes - offset);
  if (bytes > 0) {
    // Joins mappings, so that it cannot run into their limit.
    HEDDLE_CHECK(map_nothing(range.base + offset, bytes) != MAP_FAILED);
  }
}

Result<std::unique_ptr<Stream>> CpuDevice::create_stream() {
  auto pool = ThreadPool::create(options_.cores);
  if (!pool) {
    return pool.error();
  }
  return std::unique_ptr<Stream>(
      std::make_unique<CpuStream>(std::move(*pool), options_.copy_bandwidth));
}

Result<std::unique_ptr<Stream>> CpuDevice::create_background_stream() {
  auto pool = ThreadPool::create({});
  if (!pool) {
    return pool.error();
  }
  return std::unique_ptr<Stream>(
      std::make_unique<CpuStream>(std::move(*pool), options_.copy_bandwidth));
}

}  // namespace heddle::device
