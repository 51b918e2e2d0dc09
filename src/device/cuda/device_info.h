#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/cuda/driver.h"

namespace heddle::device {

/// What a GPU is, as its driver says without anything being begun on it.
struct CudaDeviceInfo {
  int ordinal = 0;
  std::string name{};        ///< "NVIDIA H100 80GB HBM3"
  std::string uuid{};        ///< "GPU-8b6c1b5e-...", as nvidia-smi prints it.
  std::string pci{};         ///< "0000:17:00.0"
  int capability_major = 0;  ///< 9.0 is Hopper.
  int capability_minor = 0;
  int multiprocessors = 0;
  std::uint64_t memory_bytes = 0;  ///< In all.
  bool virtual_memory = false;     ///< Can be a device of ours.
  std::uint64_t page_bytes = 0;    ///< What it maps at once; 0 where that is not known.
  bool flags = false;              ///< As Properties has it.
  bool shares = false;             ///< Other processes can map memory of it.
  std::vector<int> peers{};        ///< GPUs whose memory its kernels can reach; ascending.
};

/// "GPU-8b6c1b5e-...", as nvidia-smi prints it.
[[nodiscard]] std::string uuid_text(const CUuuid& uuid);

/// By ordinal. kUnavailable with the driver's words where one cannot be asked.
Result<std::vector<CudaDeviceInfo>> list_cuda_devices(const Driver& driver);
/// Of the machine's driver; kNotFound or kUnavailable, with the reason, where it has none to use.
Result<std::vector<CudaDeviceInfo>> list_cuda_devices();

}  // namespace heddle::device
