#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>

#include "device/cuda/driver_api.h"

namespace heddle::device {

/// An address of a GPU's memory as the driver's calls take it.
[[nodiscard]] inline CUdeviceptr device_address(const std::byte* address) {
  return std::bit_cast<CUdeviceptr>(address);
}

/// And as our buffers hold it.
[[nodiscard]] inline std::byte* device_pointer(CUdeviceptr address) {
  return std::bit_cast<std::byte*>(address);
}

/// "24 MiB": whole ones, for messages about pages.
[[nodiscard]] inline std::string whole_mib(std::uint64_t bytes) {
  return std::to_string(bytes >> 20U) + " MiB";
}

}  // namespace heddle::device
