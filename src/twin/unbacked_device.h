#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/check.h"
#include "device/device.h"

namespace heddle::twin {

/// A device of pages that can be counted and nothing else: they have no memory.
class UnbackedDevice final : public device::Device {
 public:
  /// Of a page; any power of two will do.
  static constexpr std::size_t kPageBytes = std::size_t{1} << 20;

  explicit UnbackedDevice(std::uint64_t pages)
      : properties_{.kind = device::Kind::kFake, .page_bytes = kPageBytes, .page_count = pages} {}

  [[nodiscard]] const device::Properties& properties() const override { return properties_; }

  // Whatever wants memory has no business here.
  [[nodiscard]] std::byte* page_address(PageId /*page*/) const override { return none(); }
  [[nodiscard]] std::byte* host_page_address(PageId /*page*/) const override { return none(); }
  Result<device::Buffer> allocate(device::Place /*place*/, std::size_t /*bytes*/) override {
    return refused();
  }
  Result<device::AddressRange> reserve(std::size_t /*bytes*/) override { return refused(); }
  void release(device::AddressRange /*range*/) override { none(); }
  Result<void> map(device::AddressRange /*range*/,
                   std::size_t /*offset*/,
                   std::span<const PageId> /*pages*/,
                   device::Access /*access*/) override {
    return refused();
  }
  void unmap(device::AddressRange /*range*/, std::size_t /*offset*/, std::size_t /*b*/) override {
    none();
  }
  Result<std::unique_ptr<device::Stream>> create_stream() override { return refused(); }

 private:
  static std::byte* none() {
    HEDDLE_CHECK(false);
    return nullptr;
  }
  static Error refused() {
    return {.code = Code::kFailedPrecondition, .message = "these pages have no memory"};
  }

  device::Properties properties_;
};

}  // namespace heddle::twin
