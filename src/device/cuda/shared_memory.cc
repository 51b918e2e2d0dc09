#include "device/cuda/shared_memory.h"

#include <cstdint>
#include <string>

#include "device/cuda/cuda_values.h"

namespace heddle::device {
namespace {

/// Maps memory at addresses of its own, which the buffer gives back. Takes `handle` over in any
/// case: what is mapped stays until it is unmapped.
Result<Buffer> map(CudaContext& context,
                   CUmemGenericAllocationHandle handle,
                   std::size_t bytes,
                   int access) {
  const DriverApi& api = context.api();
  CUdeviceptr at = 0;
  CUresult status = api.cuMemAddressReserve(&at, bytes, 0, 0, 0);
  if (status != kCudaSuccess) {
    (void)api.cuMemRelease(handle);
    return context.failure("map shared memory: cuMemAddressReserve", status);
  }
  status = api.cuMemMap(at, bytes, 0, handle, 0);
  (void)api.cuMemRelease(handle);
  if (status == kCudaSuccess) {
    const CUmemAccessDesc rights{.location = {.type = kLocationDevice, .id = context.handle()},
                                 .flags = access};
    status = api.cuMemSetAccess(at, bytes, &rights, 1);
    if (status != kCudaSuccess) {
      (void)api.cuMemUnmap(at, bytes);
    }
  }
  if (status != kCudaSuccess) {
    (void)api.cuMemAddressFree(at, bytes);
    return context.failure("map shared memory: cuMemMap, cuMemSetAccess", status);
  }
  return Buffer(device_pointer(at), bytes, [&context, bytes](std::byte* data) {
    context.make_current();
    const auto mapped = device_address(data);
    (void)context.api().cuMemUnmap(mapped, bytes);
    (void)context.api().cuMemAddressFree(mapped, bytes);
  });
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
  Descriptor descriptor(fd);
  auto buffer = map(context, handle, bytes, kAccessReadWrite);
  if (!buffer) {
    return buffer.error();
  }
  return SharedBuffer{.buffer = std::move(*buffer), .descriptor = std::move(descriptor)};
}

Result<Buffer> attach_shared(CudaContext& context, const Descriptor& shared, std::size_t bytes) {
  context.make_current();
  CUmemGenericAllocationHandle handle = 0;
  void* const descriptor = std::bit_cast<void*>(static_cast<std::intptr_t>(shared.get()));
  if (const CUresult status =
          context.api().cuMemImportFromShareableHandle(&handle, descriptor, kHandlePosixDescriptor);
      status != kCudaSuccess) {
    return context.failure("open what another GPU shares: cuMemImportFromShareableHandle", status);
  }
  // Not read-only: some devices know no such mappings.
  return map(context, handle, bytes, kAccessReadWrite);
}

}  // namespace heddle::device
