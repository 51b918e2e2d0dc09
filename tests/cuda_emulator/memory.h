#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cuda_emulator/config.h"
#include "device/cuda/driver_api.h"

#include <sys/types.h>

namespace emulator {

using heddle::device::CUdeviceptr;
using heddle::device::CUresult;

/// The memory of all devices: physical pages in a memory file of each device, and the addresses at
/// which they are mapped, which are addresses of this process. What a driver refuses is refused,
/// and what is not mapped faults. Not thread safe.
///
/// While no work runs the devices' memory is closed: host code that touches it faults, too.
class Memory {
 public:
  explicit Memory(const Config& config);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  CUresult create(std::uint64_t& handle, std::size_t bytes, std::size_t device);
  CUresult release(std::uint64_t handle);
  /// A descriptor by which any process of the same machine imports the page.
  CUresult export_page(int& descriptor, std::uint64_t handle);
  CUresult import_page(std::uint64_t& handle, int descriptor);
  CUresult reserve(CUdeviceptr& base, std::size_t bytes, std::size_t alignment);
  CUresult free_addresses(CUdeviceptr base, std::size_t bytes);
  CUresult map(CUdeviceptr at, std::size_t bytes, std::size_t offset, std::uint64_t handle);
  CUresult unmap(CUdeviceptr at, std::size_t bytes);
  /// `access`: as CUmemAccess_flags, of `device`.
  CUresult set_access(CUdeviceptr at, std::size_t bytes, int access, std::size_t device);

  /// Memory of a device with nothing mapped behind its end; `free` takes it back.
  CUresult allocate(CUdeviceptr& base, std::size_t bytes, std::size_t device);
  CUresult free(CUdeviceptr base);
  CUresult allocate_host(void*& base, std::size_t bytes);
  CUresult free_host(void* base);
  CUresult pin(void* base, std::size_t bytes);
  CUresult unpin(void* base);

  /// Lets this process touch the devices' memory, until as many calls of close().
  void open();
  void close();

  /// Whether [at, at + bytes) is memory that `device` may use and mapped, to be written if so
  /// asked.
  [[nodiscard]] bool is_device(CUdeviceptr at,
                               std::size_t bytes,
                               bool write,
                               std::size_t device) const;
  /// Whether `at` is among addresses that are a device's, mapped or not.
  [[nodiscard]] bool belongs_to_device(CUdeviceptr at) const;
  /// Whether all of it is pinned memory of the host.
  [[nodiscard]] bool is_pinned(CUdeviceptr at, std::size_t bytes) const;

  /// Whether it is an address of this process that no device can use: memory that can be read, and
  /// is neither a device's nor pinned. Not known under sanitizers, where it is false.
  [[nodiscard]] bool is_ordinary(CUdeviceptr at) const;

  [[nodiscard]] std::size_t free_bytes(std::size_t device) const;
  /// "3 pages, 1 range", or "".
  [[nodiscard]] std::string alive() const;

 private:
  struct Device {
    int fd = -1;
    std::size_t used = 0;
    std::size_t file_bytes = 0;                       ///< Ever used of the file.
    std::multimap<std::size_t, std::size_t> holes{};  ///< Of the file: bytes to offset.
  };
  struct Page {
    std::size_t device = 0;
    std::size_t offset = 0;  ///< In the device's file.
    std::size_t bytes = 0;   ///< 0: imported; what is mapped tells.
    unsigned uses = 1;       ///< The handle itself, and mappings.
    int imported = -1;       ///< The file, of a page of another process.
    bool exported =
        false;  ///< Others may have it for ever: its part of the file is not used again.
  };
  struct Mapping {
    std::size_t bytes = 0;
    std::uint64_t page = 0;
    int access = 0;
    std::size_t device = 0;  ///< That has access.
  };
  struct Allocation {
    std::size_t device = 0;
    CUdeviceptr mapped = 0;  ///< Where the system's mapping begins.
    std::size_t mapped_bytes = 0;
    std::size_t bytes = 0;
  };
  /// The devices' files, empty, for this process.
  void open_files();
  void drop(std::uint64_t page);
  void protect(CUdeviceptr at, std::size_t bytes, int access) const;
  void protect_all() const;
  /// Whether mappings cover [at, at + bytes) from edge to edge, with no hole.
  [[nodiscard]] bool covered(CUdeviceptr at, std::size_t bytes) const;

  Config config_;
  std::vector<Device> devices_;
  pid_t process_ = 0;  ///< Whose files these are.
  std::uint64_t next_page_ = 1;
  std::map<std::uint64_t, Page> pages_{};
  std::map<CUdeviceptr, std::size_t> ranges_{};
  std::map<CUdeviceptr, Mapping> mappings_{};
  std::map<CUdeviceptr, Allocation> allocations_{};
  std::map<CUdeviceptr, std::size_t> host_{};    ///< Allocated.
  std::map<CUdeviceptr, std::size_t> pinned_{};  ///< Registered, and allocated.
  unsigned open_ = 0;
};

}  // namespace emulator
