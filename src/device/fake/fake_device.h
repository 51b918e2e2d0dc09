#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/device.h"

namespace heddle::device {

/// A device for tests: pages are host memory, addresses are made up, every call is written down and
/// failures happen when asked for. A window's addresses are never dereferenced, so page_at says
/// what lies behind one. Breaking the contract of Device CHECK-fails. Used by one thread.
class FakeDevice final : public Device {
 public:
  FakeDevice(std::size_t page_bytes, std::uint64_t page_count);

  [[nodiscard]] const Properties& properties() const override { return properties_; }
  [[nodiscard]] std::byte* page_address(PageId page) const override;
  [[nodiscard]] std::byte* host_page_address(PageId page) const override {
    return page_address(page);
  }
  /// Ordinary memory.
  Result<Buffer> allocate(Place place, std::size_t bytes) override;
  Result<AddressRange> reserve(std::size_t bytes) override;
  void release(AddressRange range) override;
  Result<void> map(AddressRange range,
                   std::size_t offset,
                   std::span<const PageId> pages,
                   Access access) override;
  void unmap(AddressRange range, std::size_t offset, std::size_t bytes) override;
  /// Copies are recorded and made in synchronize().
  Result<std::unique_ptr<Stream>> create_stream() override;

  /// The `n`-th map from now (1 is the next) fails, once.
  void fail_map(std::uint64_t n) { map_fails_in_ = n; }
  /// The `n`-th allocate from now (1 is the next) fails, once.
  void fail_allocate(std::uint64_t n) { allocate_fails_in_ = n; }
  /// Addresses left to reserve.
  void limit_addresses(std::size_t bytes) { addresses_left_ = bytes; }

  /// What properties() says that there should be at most.
  void limit_mappings(std::uint64_t most) { properties_.most_mappings = most; }

  /// The page behind an address of a window, if one is mapped there.
  [[nodiscard]] std::optional<PageId> page_at(const std::byte* address) const;
  /// "reserve 8192", "map 0 2 pages", "unmap 0 8192", "release 8192",
  /// "allocate 64", in the order of the calls.
  [[nodiscard]] const std::vector<std::string>& calls() const { return calls_; }
  [[nodiscard]] std::size_t reserved_bytes() const;

 private:
  [[nodiscard]] std::uint64_t first_page(AddressRange range, std::size_t offset) const;

  Properties properties_{};
  std::unique_ptr<std::byte[]> memory_;            // NOLINT(*-avoid-c-arrays): raw storage.
  std::map<std::uint64_t, std::size_t> ranges_{};  ///< Base to bytes.
  std::map<std::uint64_t, PageId> mapped_{};       ///< Address of each mapped page.
  std::uint64_t next_base_ = std::uint64_t{1} << 40U;
  std::size_t addresses_left_ = SIZE_MAX;
  std::uint64_t map_fails_in_ = 0;       ///< 0: never.
  std::uint64_t allocate_fails_in_ = 0;  ///< 0: never.
  std::vector<std::string> calls_{};
};

}  // namespace heddle::device
