#include "device/cuda/device_info.h"

#include <array>
#include <cstdio>
#include <utility>

namespace heddle::device {
namespace {

/// What a driver does not know, or fails to say, is not there.
void read_sharing(const DriverApi& api, CUdevice handle, int count, CudaDeviceInfo& info) {
  const auto has = [&](int which) {
    int value = 0;
    return api.cuDeviceGetAttribute(&value, which, handle) == kCudaSuccess && value != 0;
  };
  info.flags = has(kAttributeStreamMemory64) && has(kAttributeHostPointerForRegistered);
  info.shares = has(kAttributePosixDescriptors);
  for (int peer = 0; peer < count; ++peer) {
    CUdevice other = 0;
    int reaches = 0;
    if (peer != info.ordinal && api.cuDeviceGet(&other, peer) == kCudaSuccess &&
        api.cuDeviceCanAccessPeer(&reaches, handle, other) == kCudaSuccess && reaches != 0) {
      info.peers.push_back(peer);
    }
  }
}

CUresult read(const DriverApi& api, int count, CudaDeviceInfo& info) {
  CUdevice handle = 0;
  std::array<char, 128> name{};
  std::array<char, 32> pci{};
  CUuuid uuid{};
  std::size_t bytes = 0;
  int virtual_memory = 0;
  const auto attribute = [&](int which, int& value) {
    return api.cuDeviceGetAttribute(&value, which, handle);
  };
  CUresult status = api.cuDeviceGet(&handle, info.ordinal);
  const auto then = [&](const auto& call) { status = status == kCudaSuccess ? call() : status; };
  then([&] { return api.cuDeviceGetName(name.data(), name.size() - 1, handle); });
  then([&] { return api.cuDeviceGetPCIBusId(pci.data(), pci.size() - 1, handle); });
  then([&] { return api.cuDeviceGetUuid_v2(&uuid, handle); });
  then([&] { return api.cuDeviceTotalMem_v2(&bytes, handle); });
  then([&] { return attribute(kAttributeComputeCapabilityMajor, info.capability_major); });
  then([&] { return attribute(kAttributeComputeCapabilityMinor, info.capability_minor); });
  then([&] { return attribute(kAttributeMultiprocessorCount, info.multiprocessors); });
  then([&] { return attribute(kAttributeVirtualMemory, virtual_memory); });
  info.name = name.data();
  info.pci = pci.data();
  info.uuid = uuid_text(uuid);
  info.memory_bytes = bytes;
  info.virtual_memory = virtual_memory != 0;
  CUmemAllocationProp properties{};
  properties.type = kAllocationPinned;
  properties.location = {.type = kLocationDevice, .id = handle};
  std::size_t granularity = 0;
  if (info.virtual_memory && status == kCudaSuccess &&
      api.cuMemGetAllocationGranularity(&granularity, &properties, kGranularityMinimum) ==
          kCudaSuccess) {
    info.page_bytes = granularity;
  }
  if (status == kCudaSuccess) {
    read_sharing(api, handle, count, info);
  }
  return status;
}

}  // namespace

std::string uuid_text(const CUuuid& uuid) {
  std::string text = "GPU-";
  for (std::size_t i = 0; i < sizeof(uuid.bytes); ++i) {
    std::array<char, 3> digits{};
    std::snprintf(digits.data(), digits.size(), "%02x", uuid.bytes[i]);
    text += (i == 4 || i == 6 || i == 8 || i == 10) ? "-" : "";
    text += digits.data();
  }
  return text;
}

Result<std::vector<CudaDeviceInfo>> list_cuda_devices(const Driver& driver) {
  const DriverApi& api = driver.api();
  int count = 0;
  if (const CUresult status = api.cuDeviceGetCount(&count); status != kCudaSuccess) {
    return Error{Code::kUnavailable, "count GPUs: " + driver.describe(status)};
  }
  std::vector<CudaDeviceInfo> devices;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    CudaDeviceInfo info{.ordinal = ordinal};
    if (const CUresult status = read(api, count, info); status != kCudaSuccess) {
      return Error{Code::kUnavailable,
                   "describe GPU " + std::to_string(ordinal) + ": " + driver.describe(status)};
    }
    devices.push_back(std::move(info));
  }
  return devices;
}

Result<std::vector<CudaDeviceInfo>> list_cuda_devices() {
  const auto driver = Driver::open();
  return driver ? list_cuda_devices(**driver) : Result<std::vector<CudaDeviceInfo>>(driver.error());
}

}  // namespace heddle::device
