#include "cuda_emulator/memory.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

namespace emulator {
namespace {

using namespace heddle::device;  // NOLINT(google-build-using-namespace): the driver's names.

constexpr std::size_t kAllocationAlignment = 256;
constexpr std::size_t kSystemPage = 4096;

void* address(CUdeviceptr at) {
  return std::bit_cast<void*>(at);
}

/// The emulator's own failures end the process: nothing can be made of them.
void must(bool ok, const char* what) {
  if (!ok) {
    std::perror(what);
    std::abort();
  }
}

/// Reserves addresses, aligned to `alignment`; with `fixed`, takes those at `at` out of use.
CUdeviceptr map_nothing(std::size_t bytes, std::size_t alignment) {
  void* const mapped = ::mmap(
      nullptr, bytes + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) {
    return 0;
  }
  const auto first = std::bit_cast<CUdeviceptr>(mapped);
  const CUdeviceptr base = (first + alignment - 1) / alignment * alignment;
  if (base > first) {
    must(::munmap(mapped, base - first) == 0, "munmap");
  }
  if (first + alignment > base) {
    must(::munmap(address(base + bytes), first + alignment - base) == 0, "munmap");
  }
  return base;
}

template <class Map>
auto containing(Map& map, CUdeviceptr at) {
  auto found = map.upper_bound(at);
  return found == map.begin() ? map.end() : std::prev(found);
}

bool within(CUdeviceptr at, std::size_t bytes, CUdeviceptr base, std::size_t size) {
  return at >= base && bytes <= size && at - base <= size - bytes;
}

}  // namespace

Memory::Memory(const Config& config) : config_(config), devices_(config.devices) {
  open_files();
}

void Memory::open_files() {
  process_ = ::getpid();
  for (Device& device : devices_) {
    device.file_bytes = 0;
    device.holes.clear();
    device.fd = ::memfd_create("emulated-gpu", MFD_CLOEXEC);
    must(device.fd >= 0, "memfd_create");
  }
}

Memory::~Memory() {
  for (const auto& [base, bytes] : ranges_) {
    ::munmap(address(base), bytes);
  }
  for (const auto& [base, allocation] : allocations_) {
    ::munmap(address(allocation.mapped), allocation.mapped_bytes);
  }
  for (const auto& [base, bytes] : host_) {
    std::free(address(base));
  }
  for (const Device& device : devices_) {
    ::close(device.fd);
  }
}

std::size_t Memory::free_bytes(std::size_t device) const {
  const std::size_t taken = config_.held + devices_[device].used;
  return taken < config_.memory ? config_.memory - taken : 0;
}

CUresult Memory::create(std::uint64_t& handle, std::size_t bytes, std::size_t device_index) {
  if (bytes == 0 || bytes % config_.granularity != 0 || device_index >= devices_.size()) {
    return kCudaInvalidValue;
  }
  if (bytes > free_bytes(device_index)) {
    return kCudaOutOfMemory;
  }
  if (process_ != ::getpid()) {
    open_files();  // What a child of fork makes is not its parent's.
  }
  Device& device = devices_[device_index];
  std::size_t offset = device.file_bytes;
  if (const auto hole = device.holes.find(bytes); hole != device.holes.end()) {
    offset = hole->second;
    device.holes.erase(hole);
  } else {
    device.file_bytes += bytes;
    must(::ftruncate(device.fd, static_cast<off_t>(device.file_bytes)) == 0, "ftruncate");
  }
  device.used += bytes;
  handle = next_page_++;
  pages_[handle] = {.device = device_index, .offset = offset, .bytes = bytes};
  return kCudaSuccess;
}

/// Ends one use of a page; the last frees its memory, which is zero when it is used next.
void Memory::drop(std::uint64_t number) {
  Page& page = pages_.at(number);
  if (--page.uses > 0) {
    return;
  }
  if (page.imported >= 0) {
    ::close(page.imported);
    pages_.erase(number);
    return;
  }
  Device& device = devices_[page.device];
  device.used -= page.bytes;
  if (page.exported) {
    pages_.erase(number);
    return;
  }
  must(::fallocate(device.fd,
                   FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                   static_cast<off_t>(page.offset),
                   static_cast<off_t>(page.bytes)) == 0,
       "fallocate");
  device.holes.emplace(page.bytes, page.offset);
  pages_.erase(number);
}

CUresult Memory::release(std::uint64_t handle) {
  if (!pages_.contains(handle)) {
    return kCudaInvalidValue;
  }
  drop(handle);
  return kCudaSuccess;
}

/// The descriptor is a file of its own over the device's memory, whose position is the page's.
CUresult Memory::export_page(int& descriptor, std::uint64_t handle) {
  const auto page = pages_.find(handle);
  if (page == pages_.end() || page->second.imported >= 0) {
    return kCudaInvalidValue;
  }
  const std::string path = "/proc/self/fd/" + std::to_string(devices_[page->second.device].fd);
  descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  must(descriptor >= 0, path.c_str());
  must(::lseek(descriptor, static_cast<off_t>(page->second.offset), SEEK_SET) >= 0, "lseek");
  page->second.exported = true;
  return kCudaSuccess;
}

CUresult Memory::import_page(std::uint64_t& handle, int descriptor) {
  const off_t offset = ::lseek(descriptor, 0, SEEK_CUR);
  const int file = offset < 0 ? -1 : ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (file < 0) {
    return kCudaInvalidValue;
  }
  handle = next_page_++;
  pages_[handle] = {.offset = static_cast<std::size_t>(offset), .imported = file};
  return kCudaSuccess;
}

CUresult Memory::reserve(CUdeviceptr& base, std::size_t bytes, std::size_t alignment) {
  if (bytes == 0 || bytes % config_.granularity != 0 || bytes > std::size_t{1} << 46U) {
    return bytes > std::size_t{1} << 46U ? kCudaOutOfMemory : kCudaInvalidValue;
  }
  base = map_nothing(bytes, std::max(alignment, config_.granularity));
  if (base == 0) {
    return kCudaOutOfMemory;
  }
  ranges_[base] = bytes;
  return kCudaSuccess;
}

CUresult Memory::free_addresses(CUdeviceptr base, std::size_t bytes) {
  const auto found = ranges_.find(base);
  if (found == ranges_.end() || found->second != bytes) {
    return kCudaInvalidValue;
  }
  const auto first = mappings_.lower_bound(base);
  if (first != mappings_.end() && first->first < base + bytes) {
    return kCudaInvalidValue;
  }
  must(::munmap(address(base), bytes) == 0, "munmap");
  ranges_.erase(found);
  return kCudaSuccess;
}

CUresult Memory::map(CUdeviceptr at, std::size_t bytes, std::size_t offset, std::uint64_t handle) {
  const auto page = pages_.find(handle);
  const auto range = containing(ranges_, at);
  if (page == pages_.end() || (page->second.bytes != bytes && page->second.imported < 0) ||
      bytes == 0 || bytes % config_.granularity != 0 || offset != 0 || range == ranges_.end() ||
      !within(at, bytes, range->first, range->second) || at % config_.granularity != 0) {
    return kCudaInvalidValue;
  }
  const auto before = containing(mappings_, at);
  const auto after = mappings_.lower_bound(at);
  if ((before != mappings_.end() && before->first + before->second.bytes > at) ||
      (after != mappings_.end() && after->first < at + bytes)) {
    return kCudaInvalidValue;  // Something is mapped there.
  }
  const int file =
      page->second.imported >= 0 ? page->second.imported : devices_[page->second.device].fd;
  const void* mapped = ::mmap(address(at),
                              bytes,
                              PROT_NONE,
                              MAP_SHARED | MAP_FIXED,
                              file,
                              static_cast<off_t>(page->second.offset));
  must(mapped != MAP_FAILED, "mmap");
  ++page->second.uses;
  mappings_[at] = {.bytes = bytes, .page = handle};
  return kCudaSuccess;
}

bool Memory::covered(CUdeviceptr at, std::size_t bytes) const {
  const CUdeviceptr end = at + bytes;
  while (at < end) {
    const auto found = mappings_.find(at);
    if (found == mappings_.end()) {
      return false;
    }
    at += found->second.bytes;
  }
  return at == end && bytes > 0;
}

CUresult Memory::unmap(CUdeviceptr at, std::size_t bytes) {
  if (!covered(at, bytes)) {
    return kCudaInvalidValue;
  }
  const void* mapped = ::mmap(address(at),
                              bytes,
                              PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
                              -1,
                              0);
  must(mapped != MAP_FAILED, "mmap");
  const auto first = mappings_.find(at);
  const auto last = mappings_.lower_bound(at + bytes);
  for (auto each = first; each != last; ++each) {
    drop(each->second.page);
  }
  mappings_.erase(first, last);
  return kCudaSuccess;
}

CUresult Memory::set_access(CUdeviceptr at, std::size_t bytes, int access, std::size_t device) {
  if (!covered(at, bytes) || device >= devices_.size()) {
    return kCudaInvalidValue;
  }
  const auto end = mappings_.lower_bound(at + bytes);
  for (auto each = mappings_.find(at); each != end; ++each) {
    const Page& page = pages_.at(each->second.page);
    if (config_.peers == 0 && (page.imported >= 0 || page.device != device)) {
      return kCudaInvalidDevice;
    }
  }
  if (access == kAccessRead && config_.read_only == 0) {
    return kCudaNotSupported;
  }
  const auto last = mappings_.lower_bound(at + bytes);
  for (auto each = mappings_.find(at); each != last; ++each) {
    each->second.access = access;
    each->second.device = device;
  }
  protect(at, bytes, access);
  return kCudaSuccess;
}

void Memory::protect(CUdeviceptr at, std::size_t bytes, int access) const {
  const bool closed = config_.strict != 0 && open_ == 0;
  int protection = PROT_NONE;
  if (!closed && access != 0) {
    protection = access == kAccessRead ? PROT_READ : PROT_READ | PROT_WRITE;
  }
  must(::mprotect(address(at), bytes, protection) == 0, "mprotect");
}

void Memory::protect_all() const {
  for (const auto& [at, allocation] : allocations_) {
    protect(allocation.mapped, allocation.mapped_bytes - kSystemPage, kAccessReadWrite);
  }
  auto each = mappings_.begin();
  while (each != mappings_.end()) {  // Neighbours of one access in one call.
    const CUdeviceptr at = each->first;
    const int access = each->second.access;
    CUdeviceptr end = at;
    while (each != mappings_.end() && each->first == end && each->second.access == access) {
      end += each->second.bytes;
      ++each;
    }
    protect(at, end - at, access);
  }
}

void Memory::open() {
  if (++open_ == 1 && config_.strict != 0) {
    protect_all();
  }
}

void Memory::close() {
  if (--open_ == 0 && config_.strict != 0) {
    protect_all();
  }
}

CUresult Memory::allocate(CUdeviceptr& base, std::size_t bytes, std::size_t device) {
  if (bytes == 0) {
    return kCudaInvalidValue;
  }
  if (bytes > free_bytes(device)) {
    return kCudaOutOfMemory;
  }
  const std::size_t held =
      (bytes + kAllocationAlignment - 1) / kAllocationAlignment * kAllocationAlignment;
  const std::size_t body = (held + kSystemPage - 1) / kSystemPage * kSystemPage;
  const CUdeviceptr mapped = map_nothing(body + kSystemPage, kSystemPage);
  if (mapped == 0) {
    return kCudaOutOfMemory;
  }
  base = mapped + body - held;
  allocations_[base] = {
      .device = device, .mapped = mapped, .mapped_bytes = body + kSystemPage, .bytes = bytes};
  protect(mapped, body, kAccessReadWrite);
  devices_[device].used += bytes;
  return kCudaSuccess;
}

CUresult Memory::free(CUdeviceptr base) {
  const auto found = allocations_.find(base);
  if (found == allocations_.end()) {
    return kCudaInvalidValue;
  }
  must(::munmap(address(found->second.mapped), found->second.mapped_bytes) == 0, "munmap");
  devices_[found->second.device].used -= found->second.bytes;
  allocations_.erase(found);
  return kCudaSuccess;
}

CUresult Memory::allocate_host(void*& base, std::size_t bytes) {
  base = bytes == 0 ? nullptr
                    : std::aligned_alloc(kSystemPage,
                                         (bytes + kSystemPage - 1) / kSystemPage * kSystemPage);
  if (base == nullptr) {
    return bytes == 0 ? kCudaInvalidValue : kCudaOutOfMemory;
  }
  host_[std::bit_cast<CUdeviceptr>(base)] = bytes;
  pinned_[std::bit_cast<CUdeviceptr>(base)] = bytes;
  return kCudaSuccess;
}

CUresult Memory::free_host(void* base) {
  const auto at = std::bit_cast<CUdeviceptr>(base);
  if (host_.erase(at) == 0) {
    return kCudaInvalidValue;
  }
  pinned_.erase(at);
  std::free(base);
  return kCudaSuccess;
}

CUresult Memory::pin(void* base, std::size_t bytes) {
  const auto at = std::bit_cast<CUdeviceptr>(base);
  if (base == nullptr || bytes == 0) {
    return kCudaInvalidValue;
  }
  const auto before = containing(pinned_, at);
  const auto after = pinned_.lower_bound(at);
  if ((before != pinned_.end() && before->first + before->second > at) ||
      (after != pinned_.end() && after->first < at + bytes)) {
    return kCudaHostMemoryAlreadyRegistered;
  }
  pinned_[at] = bytes;
  return kCudaSuccess;
}

CUresult Memory::unpin(void* base) {
  const auto at = std::bit_cast<CUdeviceptr>(base);
  if (host_.contains(at) || pinned_.erase(at) == 0) {
    return kCudaHostMemoryNotRegistered;
  }
  return kCudaSuccess;
}

bool Memory::belongs_to_device(CUdeviceptr at) const {
  const auto range = containing(ranges_, at);
  const auto allocation = containing(allocations_, at);
  return (range != ranges_.end() && within(at, 1, range->first, range->second)) ||
         (allocation != allocations_.end() &&
          within(at, 1, allocation->second.mapped, allocation->second.mapped_bytes));
}

bool Memory::is_device(CUdeviceptr at, std::size_t bytes, bool write, std::size_t device) const {
  const auto allocation = containing(allocations_, at);
  if (allocation != allocations_.end() &&
      within(at, bytes, allocation->first, allocation->second.bytes)) {
    return allocation->second.device == device;
  }
  const CUdeviceptr end = at + bytes;
  while (at < end) {
    const auto found = containing(mappings_, at);
    if (found == mappings_.end() || at >= found->first + found->second.bytes ||
        found->second.device != device ||
        found->second.access < (write ? kAccessReadWrite : kAccessRead)) {
      return false;
    }
    at = found->first + found->second.bytes;
  }
  return true;
}

bool Memory::is_pinned(CUdeviceptr at, std::size_t bytes) const {
  const auto found = containing(pinned_, at);
  return found != pinned_.end() && within(at, bytes, found->first, found->second);
}

bool Memory::is_ordinary(CUdeviceptr at) const {
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
  (void)at;
  return false;  // Their shadow memory makes small numbers look like addresses.
#else
  if (at < kSystemPage || belongs_to_device(at) || is_pinned(at, 1)) {
    return false;
  }
  std::byte read{};
  const iovec here{.iov_base = &read, .iov_len = 1};
  const iovec there{.iov_base = address(at), .iov_len = 1};
  return ::process_vm_readv(::getpid(), &here, 1, &there, 1, 0) == 1;
#endif
}

std::string Memory::alive() const {
  std::string text;
  const auto say = [&](std::size_t count, const char* what) {
    if (count > 0) {
      text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + what;
    }
  };
  say(pages_.size(), "pages");
  say(mappings_.size(), "mappings");
  say(ranges_.size(), "ranges");
  say(allocations_.size(), "allocations");
  say(host_.size(), "host allocations");
  say(pinned_.size() - host_.size(), "registrations");
  return text;
}

}  // namespace emulator
