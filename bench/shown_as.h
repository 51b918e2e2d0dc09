#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "device/device.h"

namespace heddle::bench {

/// A device that says other things of itself: for the same without CUDA graphs, say.
class ShownAs final : public device::Device {
 public:
  ShownAs(device::Device& device, device::Properties properties)
      : device_(device), properties_(std::move(properties)) {}
  [[nodiscard]] const device::Properties& properties() const override { return properties_; }
  [[nodiscard]] std::byte* page_address(PageId page) const override {
    return device_.page_address(page);
  }
  [[nodiscard]] std::byte* host_page_address(PageId page) const override {
    return device_.host_page_address(page);
  }
  Result<device::Buffer> allocate(device::Place place, std::size_t bytes) override {
    return device_.allocate(place, bytes);
  }
  Result<device::AddressRange> reserve(std::size_t bytes) override {
    return device_.reserve(bytes);
  }
  void release(device::AddressRange range) override { device_.release(range); }
  Result<void> map(device::AddressRange range,
                   std::size_t offset,
                   std::span<const PageId> pages,
                   device::Access access) override {
    return device_.map(range, offset, pages, access);
  }
  void unmap(device::AddressRange range, std::size_t offset, std::size_t bytes) override {
    device_.unmap(range, offset, bytes);
  }
  void give_back(std::span<const PageId> pages) override { device_.give_back(pages); }
  Result<void> take_again(std::span<const PageId> pages) override {
    return device_.take_again(pages);
  }
  Result<std::unique_ptr<device::Stream>> create_stream() override {
    return device_.create_stream();
  }
  Result<std::unique_ptr<device::Stream>> create_background_stream() override {
    return device_.create_background_stream();
  }

 private:
  device::Device& device_;
  device::Properties properties_;
};

}  // namespace heddle::bench
