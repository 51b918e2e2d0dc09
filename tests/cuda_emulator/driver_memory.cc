// The driver's functions for memory: pages, addresses, allocations and what is pinned.

#include <bit>

#include "cuda_emulator/driver_calls.h"

extern "C" {

EXPORT CUresult cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  return call("cuMemGetInfo_v2", Needs::kDevice, [&](Machine& here, auto&) {
    *free = here.memory.free_bytes(here_device());
    *total = here.config.memory;
    return kCudaSuccess;
  });
}

EXPORT CUresult cuMemGetAllocationGranularity(std::size_t* granularity,
                                              const CUmemAllocationProp* properties,
                                              int /*option*/) {
  return call("cuMemGetAllocationGranularity", Needs::kInit, [&](Machine& here, auto&) {
    *granularity = here.config.granularity;
    return properties->type == kAllocationPinned && properties->location.type == kLocationDevice
               ? kCudaSuccess
               : kCudaInvalidValue;
  });
}

EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle* handle,
                            std::size_t bytes,
                            const CUmemAllocationProp* properties,
                            unsigned long long flags) {
  return call("cuMemCreate", Needs::kDevice, [&](Machine& here, auto&) {
    if (here.config.vmm == 0) {
      return kCudaNotSupported;
    }
    if (flags != 0 || properties->type != kAllocationPinned ||
        properties->location.type != kLocationDevice) {
      return kCudaInvalidValue;
    }
    return here.memory.create(*handle, bytes, static_cast<std::size_t>(properties->location.id));
  });
}

EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  return call("cuMemRelease", Needs::kInit, [&](Machine& here, auto&) {
    return here.memory.release(handle);
  });
}

EXPORT CUresult cuMemExportToShareableHandle(void* descriptor,
                                             CUmemGenericAllocationHandle handle,
                                             int type,
                                             unsigned long long flags) {
  return call("cuMemExportToShareableHandle", Needs::kInit, [&](Machine& here, auto&) {
    return type != kHandlePosixDescriptor || flags != 0
               ? kCudaInvalidValue
               : here.memory.export_page(*static_cast<int*>(descriptor), handle);
  });
}

EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle,
                                               void* descriptor,
                                               int type) {
  return call("cuMemImportFromShareableHandle", Needs::kInit, [&](Machine& here, auto&) {
    const auto number = static_cast<int>(std::bit_cast<std::intptr_t>(descriptor));
    return type != kHandlePosixDescriptor ? kCudaInvalidValue
                                          : here.memory.import_page(*handle, number);
  });
}

EXPORT CUresult cuMemAddressReserve(CUdeviceptr* base,
                                    std::size_t bytes,
                                    std::size_t alignment,
                                    CUdeviceptr wish,
                                    unsigned long long flags) {
  return call("cuMemAddressReserve", Needs::kDevice, [&](Machine& here, auto&) {
    return wish != 0 || flags != 0 ? kCudaInvalidValue
                                   : here.memory.reserve(*base, bytes, alignment);
  });
}

EXPORT CUresult cuMemAddressFree(CUdeviceptr base, std::size_t bytes) {
  return call("cuMemAddressFree", Needs::kInit, [&](Machine& here, auto&) {
    return here.memory.free_addresses(base, bytes);
  });
}

EXPORT CUresult cuMemMap(CUdeviceptr at,
                         std::size_t bytes,
                         std::size_t offset,
                         CUmemGenericAllocationHandle handle,
                         unsigned long long flags) {
  return call("cuMemMap", Needs::kDevice, [&](Machine& here, auto&) {
    return flags != 0 ? kCudaInvalidValue : here.memory.map(at, bytes, offset, handle);
  });
}

EXPORT CUresult cuMemUnmap(CUdeviceptr at, std::size_t bytes) {
  return call("cuMemUnmap", Needs::kInit, [&](Machine& here, auto&) {
    return here.config.unmap_many == 0 && bytes > here.config.granularity
               ? kCudaInvalidValue
               : here.memory.unmap(at, bytes);
  });
}

EXPORT CUresult cuMemSetAccess(CUdeviceptr at,
                               std::size_t bytes,
                               const CUmemAccessDesc* rights,
                               std::size_t count) {
  return call("cuMemSetAccess", Needs::kDevice, [&](Machine& here, auto&) {
    return count == 1 && rights->location.type == kLocationDevice
               ? here.memory.set_access(
                     at, bytes, rights->flags, static_cast<std::size_t>(rights->location.id))
               : kCudaInvalidValue;
  });
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* base, std::size_t bytes) {
  return unrecordable_call("cuMemAlloc_v2", [&](Machine& here, auto&) {
    return here.memory.allocate(*base, bytes, here_device());
  });
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr base) {
  return giving_back("cuMemFree_v2", [&](Machine& here) { return here.memory.free(base); });
}

EXPORT CUresult cuMemHostAlloc(void** base, std::size_t bytes, unsigned /*flags*/) {
  return unrecordable_call("cuMemHostAlloc", [&](Machine& here, auto&) {
    return here.memory.allocate_host(*base, bytes);
  });
}

EXPORT CUresult cuMemFreeHost(void* base) {
  return giving_back("cuMemFreeHost", [&](Machine& here) { return here.memory.free_host(base); });
}

EXPORT CUresult cuMemHostRegister_v2(void* base, std::size_t bytes, unsigned /*flags*/) {
  return unrecordable_call("cuMemHostRegister_v2", [&](Machine& here, auto&) {
    return here.config.pin_max > 0 && bytes > here.config.pin_max ? kCudaOutOfMemory
                                                                  : here.memory.pin(base, bytes);
  });
}

EXPORT CUresult cuMemHostUnregister(void* base) {
  return giving_back("cuMemHostUnregister", [&](Machine& here) { return here.memory.unpin(base); });
}

}  // extern "C"
