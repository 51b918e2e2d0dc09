#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "device/cuda/page_memory.h"
#include "device/device.h"

namespace heddle::device {

/// The ranges of addresses that a GPU reserved for windows, and what is mapped of each: memory can
/// only be unmapped where it is. Thread safe; no lock is held while the driver maps, which takes
/// milliseconds. Where the driver refuses to unmap a page, the page stays where it is, which the
/// log tells, and the place is tried again when it is wanted: nobody reads there meanwhile.
class MappedRanges {
 public:
  /// Both outlive it.
  MappedRanges(CudaContext& context, PageMemory& pages) : context_(context), pages_(pages) {}

  /// As Device has them.
  Result<AddressRange> reserve(std::size_t bytes);
  void release(AddressRange range);
  Result<void> map(AddressRange range,
                   std::size_t offset,
                   std::span<const PageId> pages,
                   Access access);
  void unmap(AddressRange range, std::size_t offset, std::size_t bytes);

  /// Has `map` map something else at the page of `range` at `offset`, which has nothing mapped.
  Result<void> map_page(AddressRange range,
                        std::size_t offset,
                        const std::function<Result<void>(CUdeviceptr at)>& map);

 private:
  enum class At : std::uint8_t {
    kNothing,
    kBusy,  ///< A call maps or unmaps it.
    kMapped,
    kStuck,  ///< Mapped, as the driver refused to unmap it.
  };
  /// Pages [first, first + count) of a range.
  struct Part {
    AddressRange range{};
    std::size_t first = 0;
    std::size_t count = 0;
  };

  [[nodiscard]] Part part_of(AddressRange range, std::size_t offset, std::size_t pages) const;
  [[nodiscard]] CUdeviceptr address(const Part& part) const;
  std::span<At> at(const Part& part);
  Result<void> occupy(const Part& part);
  void settle(const Part& part, At what, std::span<const std::uint64_t> stuck = {});
  void unmap_run(const Part& run);

  CudaContext& context_;
  PageMemory& pages_;
  std::mutex mutex_{};
  std::map<std::byte*, std::vector<At>> ranges_{};  // Guarded by mutex_.
};

}  // namespace heddle::device
