#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "device/cpu/arena.h"
#include "device/device.h"

namespace heddle::device {

struct CpuDeviceOptions {
  /// Indices of the CPUs its streams run on, one thread each. Empty: one thread, anywhere.
  std::vector<int> cores{};
  /// Bytes/s of the link that Stream::copy goes over, 0 for unlimited: a scale model's PCIe.
  std::uint64_t copy_bandwidth = 0;
};

/// Part of the host as an accelerator: pages of an arena, and cores to work on them. Streams are
/// CpuStreams. Windows are shared mappings of the same pages; touching a part of a window that is
/// not mapped is a segmentation fault, as on a GPU.
class CpuDevice final : public Device {
 public:
  CpuDevice(Arena arena, CpuDeviceOptions options);

  [[nodiscard]] const Properties& properties() const override { return properties_; }
  [[nodiscard]] std::byte* page_address(PageId page) const override;
  [[nodiscard]] std::byte* host_page_address(PageId page) const override {
    return page_address(page);
  }
  Result<Buffer> allocate(Place place, std::size_t bytes) override;
  Result<AddressRange> reserve(std::size_t bytes) override;
  void release(AddressRange range) override;
  /// One system call per run of adjacent pages. What is mapped to be written is populated at once.
  Result<void> map(AddressRange range,
                   std::size_t offset,
                   std::span<const PageId> pages,
                   Access access) override;
  /// By the calling thread; other threads' faults go on meanwhile.
  void populate(AddressRange range, std::size_t offset, std::size_t bytes) override;
  void unmap(AddressRange range, std::size_t offset, std::size_t bytes) override;
  /// Pins the calling thread to the first core: it is the one that will use the stream.
  Result<std::unique_ptr<Stream>> create_stream() override;
  /// Of one thread, the caller's, on any core.
  Result<std::unique_ptr<Stream>> create_background_stream() override;

 private:
  Arena arena_;
  CpuDeviceOptions options_;
  Properties properties_{};
};

}  // namespace heddle::device
