#include "device/cuda/shared_memory.h"

#include <cstdint>
#include <string>

#include "device/cuda/cuda_values.h"

namespace heddle::device {
namespace {

/// Maps memory at `at`. Takes `handle` over in any case: what is mapped stays until it is unmapped.
Result<void> map_at(CudaContext& context,
                    CUmemGenericAllocationHandle handle,
                    CUdeviceptr at,
                    std::size_t bytes) {
  const DriverApi& api = context.api();
  CUresult status = api.cuMemMap(at, bytes, 0, handle, 0);
  (void)api.cuMemRelease(handle);
  if (status == kCudaSuccess) {
    // Not read-only: some devices know no such mappings.
    const CUmemAccessDesc rights{.location = {.type = kLocationDevice, .id = context.handle()},
                                 .flags = kAccessReadWrite};
    status = api.cuMemSetAccess(at, bytes, &rights, 1);
    if (status != kCudaSuccess) {
      (void)api.cuMemUnmap(at, bytes);
    }
  }
  return context.check("map shared memory: cuMemMap, cuMemSetAccess", status);
}

/// The same at addresses of its own, which the buffer gives back.
Result<Buffer> map(CudaContext& context, CUmemGenericAllocationHandle handle, std::size_t bytes) {
  const DriverApi& api = context.api();
  CUdeviceptr at = 0;
  if (const CUresult status = api.cuMemAddressReserve(&at, bytes, 0, 0, 0);
      status != kCudaSuccess) {
    (void)api.cuMemRelease(handle);
    return context.failure("map shared memory: cuMemAddressReserve", status);
  }
  if (const auto mapped = map_at(context, handle, at, bytes); !mapped) {
    (void)api.cuMemAddressFree(at, bytes);
    return mapped.error();
  }
  return Buffer(device_pointer(at), bytes, [&context, bytes](std::byte* data) {
    context.make_current();
    const auto mapped = device_address(data);
    (void)context.api().cuMemUnmap(mapped, bytes);
    (void)context.api().cuMemAddressFree(mapped, bytes);
  });
}

/// Memory that can be exported, and by what. Makes the context current.
struct Exported {
  CUmemGenericAllocationHandle handle = 0;
  Descriptor descriptor{};
};
Result<Exported> make_exported(CudaContext& context, std::size_t bytes) {
  context.make_current();
  const DriverApi& api = context.api();
  CUmemAllocationProp properties{};
  properties.type = kAllocationPinned;
  properties.requestedHandleTypes = kHandlePosixDescriptor;
  properties.location = {.type = kLocationDevice, .id = context.handle()};
  CUmemGenericAllocationHandle handle = 0;
  if (const CUresult status = api.cuMemCreate(&handle, bytes, &properties, 0);
      status != kCudaSuccess) {
    return context.failure("allocate " + whole_mib(bytes) + " to share: cuMemCreate", status);
  }
  int fd = -1;
  if (const CUresult status =
          api.cuMemExportToShareableHandle(&fd, handle, kHandlePosixDescriptor, 0);
      status != kCudaSuccess) {
    (void)api.cuMemRelease(handle);
    return context.failure("share " + whole_mib(bytes) + ": cuMemExportToShareableHandle", status);
  }
  return Exported{.handle = handle, .descriptor = Descriptor(fd)};
}

Result<CUmemGenericAllocationHandle> import(CudaContext& context, const Descriptor& shared) {
  context.make_current();
  CUmemGenericAllocationHandle handle = 0;
  void* const descriptor = std::bit_cast<void*>(static_cast<std::intptr_t>(shared.get()));
  if (const CUresult status =
          context.api().cuMemImportFromShareableHandle(&handle, descriptor, kHandlePosixDescriptor);
      status != kCudaSuccess) {
    return context.failure("open what another GPU shares: cuMemImportFromShareableHandle", status);
  }
  return handle;
}

}  // namespace

bool is_linked_to(CudaContext& context, int peer) {
  const DriverApi& api = context.api();
  CUdevice other = 0;
  int reaches = 0;
  int atomics = 0;
  // Over PCIe, copies between two GPUs come by the very link that they are to relieve.
  return api.cuDeviceGet(&other, peer) == kCudaSuccess && other != context.handle() &&
         context.attribute(kAttributePosixDescriptors) != 0 &&
         api.cuDeviceCanAccessPeer(&reaches, context.handle(), other) == kCudaSuccess &&
         reaches != 0 &&
         api.cuDeviceGetP2PAttribute(&atomics, kPeerNativeAtomics, context.handle(), other) ==
             kCudaSuccess &&
         atomics != 0;
}

Result<SharedBuffer> allocate_shared(CudaContext& context, std::size_t bytes) {
  auto exported = make_exported(context, bytes);
  if (!exported) {
    return exported.error();
  }
  auto buffer = map(context, exported->handle, bytes);
  if (!buffer) {
    return buffer.error();
  }
  return SharedBuffer{.buffer = std::move(*buffer), .descriptor = std::move(exported->descriptor)};
}

Result<Buffer> attach_shared(CudaContext& context, const Descriptor& shared, std::size_t bytes) {
  const auto handle = import(context, shared);
  return handle ? map(context, *handle, bytes) : Result<Buffer>(handle.error());
}

Result<Descriptor> map_new_shared(CudaContext& context, CUdeviceptr at, std::size_t bytes) {
  auto exported = make_exported(context, bytes);
  if (!exported) {
    return exported.error();
  }
  if (const auto mapped = map_at(context, exported->handle, at, bytes); !mapped) {
    return mapped.error();
  }
  return std::move(exported->descriptor);
}

Result<void> map_shared(CudaContext& context,
                        CUdeviceptr at,
                        std::size_t bytes,
                        const Descriptor& shared) {
  const auto handle = import(context, shared);
  return handle ? map_at(context, *handle, at, bytes) : Result<void>(handle.error());
}

}  // namespace heddle::device
