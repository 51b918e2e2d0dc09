#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/check.h"
#include "cuda_emulator/emulated_driver.h"
#include "device/cpu/arena.h"
#include "device/device.h"
#include "device/registry.h"

namespace heddle::memory {

/// A device that has real memory, for tests that run on every kind of them: the host's own, or a
/// GPU on the emulated driver. Its memory is filled and read through a stream.
class DeviceUnderTest {
 public:
  DeviceUnderTest(device::Kind kind, std::size_t page_bytes, std::uint64_t pages) {
    auto arena = device::Arena::create({.page_bytes = page_bytes, .page_count = pages}).value();
    device::DeviceOptions options = device::CpuDeviceOptions{};
    if (kind == device::Kind::kCuda) {
      driver_.emplace("memory=256MiB,granularity=" + std::to_string(page_bytes));
      options = device::CudaDeviceOptions{.bytes = pages * page_bytes,
                                          .driver = emulator::EmulatedDriver::open().value()};
    }
    device_ = device::make_device(options, std::move(arena)).value();
    stream_ = device_->create_stream().value();
    HEDDLE_CHECK(device_->properties().kind == kind);
  }

  [[nodiscard]] device::Device& device() { return *device_; }

  void fill(std::byte* at, unsigned char pattern, std::size_t bytes) {
    std::memset(host(bytes), pattern, bytes);
    stream_->copy(at, host(bytes), bytes);
    HEDDLE_CHECK(stream_->synchronize());
  }
  /// Valid until the next call.
  [[nodiscard]] const std::byte* read(const std::byte* at, std::size_t bytes) {
    stream_->copy(host(bytes), at, bytes);
    HEDDLE_CHECK(stream_->synchronize());
    return host(bytes);
  }

 private:
  std::byte* host(std::size_t bytes) {
    if (host_.bytes() < bytes) {
      host_ = device_->allocate(device::Place::kHost, bytes).value();
    }
    return host_.data();
  }

  std::optional<emulator::EmulatedDriver> driver_{};
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<device::Stream> stream_;
  device::Buffer host_{};
};

/// Kinds of it, and their names in the names of tests.
inline const auto kDeviceKinds = testing::Values(device::Kind::kCpu, device::Kind::kCuda);
inline std::string kind_name(const testing::TestParamInfo<device::Kind>& info) {
  return info.param == device::Kind::kCuda ? "Cuda" : "Cpu";
}

}  // namespace heddle::memory
