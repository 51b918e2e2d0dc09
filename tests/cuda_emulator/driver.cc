// The driver's functions, by their names, over the emulated machine. What the real driver refuses
// is refused with the same status, as far as our code could tell.

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <cstring>
#include <string>

#include "cuda_emulator/control.h"
#include "cuda_emulator/machine.h"
#include "cuda_emulator/threads.h"

#include <dlfcn.h>

using namespace heddle::device;  // NOLINT(google-build-using-namespace): the driver's names.
using emulator::current_context;
using emulator::machine;
using emulator::Machine;
using emulator::Operation;
using emulator::Queue;

namespace {

enum class Needs { kNothing, kInit, kDevice };

/// Runs `body(machine, lock)` as the call named so, if it is to run.
template <class Body>
CUresult call(const char* name, Needs needs, const Body& body) {
  Machine& here = machine();
  std::unique_lock lock(here.machinery.mutex);
  const CUresult status = here.enter(name, needs != Needs::kNothing, needs == Needs::kDevice);
  return status == kCudaSuccess ? body(here, lock) : status;
}

/// The same for calls that wait or allocate, which spoil what the thread records.
template <class Body>
CUresult unrecordable_call(const char* name, const Body& body) {
  return call(name, Needs::kDevice, [&](Machine& here, std::unique_lock<std::mutex>& lock) {
    return here.spoils_recording() ? kCudaStreamCaptureUnsupported : body(here, lock);
  });
}

/// The same for calls that give memory back. On a lost device they report its loss, but do it all
/// the same, so that tests find what was forgotten.
template <class Body>
CUresult giving_back(const char* name, const Body& body) {
  return call(name, Needs::kInit, [&](Machine& here, std::unique_lock<std::mutex>& lock) {
    if (current_context() == nullptr) {
      return kCudaInvalidContext;
    }
    if (here.spoils_recording()) {
      return kCudaStreamCaptureUnsupported;
    }
    const std::size_t device = current_context()->device;
    (void)here.run_device(lock, device);  // It waits for all that may use the memory.
    const CUresult status = body(here);
    return status == kCudaSuccess ? here.lost[device] : status;
  });
}

/// What went wrong in a stream is the device's from then on.
CUresult settle(Machine& here, std::size_t device, CUresult status) {
  if (status != kCudaSuccess) {
    here.lose(device, status);
  }
  return status;
}

std::size_t here_device() {
  return current_context()->device;
}

/// Enqueues on `stream`, or records.
CUresult push(Machine& here, CUstream stream, Operation operation) {
  if (!here.streams.has(stream)) {
    return kCudaInvalidHandle;
  }
  if (stream->queue->spoiled()) {
    return kCudaStreamCaptureInvalidated;
  }
  stream->queue->push(std::move(operation));
  return kCudaSuccess;
}

struct Known {
  CUresult status;
  const char* name;
  const char* text;
};
constexpr std::array kKnown = {
    Known{kCudaSuccess, "CUDA_SUCCESS", "no error"},
    Known{kCudaInvalidValue, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    Known{kCudaOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    Known{kCudaNotInitialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    Known{kCudaNoDevice, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    Known{kCudaInvalidDevice, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    Known{kCudaInvalidImage, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    Known{kCudaInvalidContext, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    Known{kCudaEccUncorrectable, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error"},
    Known{kCudaInvalidHandle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    Known{kCudaNotFound, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    Known{kCudaIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access"},
    Known{kCudaLaunchFailed, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    Known{kCudaNotSupported, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    Known{kCudaStreamCaptureUnsupported,
          "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
          "operation not permitted when stream is capturing"},
    Known{kCudaStreamCaptureInvalidated,
          "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
          "operation failed due to a previous error during capture"},
};

const Known* known(CUresult status) {
  const auto* const found =
      std::ranges::find_if(kKnown, [&](const Known& each) { return each.status == status; });
  return found == kKnown.end() ? nullptr : found;
}

/// The two ends of a copy are looked at when it runs: by then they must be mapped.
CUresult run_copy(CUdeviceptr target, CUdeviceptr source, std::size_t bytes) {
  Machine& here = machine();
  {
    const std::lock_guard lock(here.machinery.mutex);
    const emulator::Memory& memory = here.memory;
    if ((memory.belongs_to_device(target) && !memory.is_device(target, bytes, true)) ||
        (memory.belongs_to_device(source) && !memory.is_device(source, bytes, false))) {
      std::fprintf(stderr, "emulated copy: touched what is not mapped\n");
      return kCudaIllegalAddress;
    }
  }
  std::memcpy(std::bit_cast<void*>(target), std::bit_cast<const void*>(source), bytes);
  return kCudaSuccess;
}

CUresult run_kernel(void* entry,
                    emulator::Dim grid,
                    emulator::Dim block,
                    std::size_t shared_bytes,
                    const std::vector<std::byte>& params) {
  {
    const std::lock_guard lock(machine().machinery.mutex);
    if (const CUresult status = machine().planned("kernel"); status != kCudaSuccess) {
      return status;
    }
  }
  return emulator::run(entry, grid, block, shared_bytes, params.data(), params.size())
             ? kCudaSuccess
             : kCudaIllegalAddress;
}

bool shape_fits(emulator::Dim grid, emulator::Dim block) {
  const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
  return threads > 0 && threads <= emulator::kBlockThreadsMax && block.z <= 64 && grid.x > 0 &&
         grid.x <= 0x7fffffffU && grid.y > 0 && grid.y <= 65535 && grid.z > 0 && grid.z <= 65535;
}

/// The struct that cuLaunchKernel's `extra` holds; kernels of ours take one.
bool read_params(void** extra, std::vector<std::byte>& params) {
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  for (; extra != nullptr && *extra != nullptr; extra += 2) {
    const auto key = std::bit_cast<std::uintptr_t>(extra[0]);
    if (key == kLaunchParams) {
      data = static_cast<const std::byte*>(extra[1]);
    } else if (key == kLaunchParamsBytes) {
      bytes = *static_cast<const std::size_t*>(extra[1]);
    } else {
      return false;
    }
  }
  if (data == nullptr || bytes == 0 || bytes > 4096) {
    return false;
  }
  params.assign(data, data + bytes);
  return true;
}

/// Whether something among the parameters is an address of ordinary memory, which a GPU could not
/// reach though the emulated one could.
bool has_ordinary_address(const emulator::Memory& memory, const std::vector<std::byte>& params) {
  for (std::size_t at = 0; at + 8 <= params.size(); at += 8) {
    CUdeviceptr word = 0;
    std::memcpy(&word, &params[at], 8);
    if (memory.is_ordinary(word)) {
      std::fprintf(stderr, "emulated launch: byte %zu of the parameters is no GPU's address\n", at);
      return true;
    }
  }
  return false;
}

}  // namespace

#define EXPORT __attribute__((visibility("default")))
#pragma clang diagnostic ignored "-Wmissing-prototypes"

extern "C" {

EXPORT CUresult cuGetErrorName(CUresult status, const char** name) {
  const Known* const found = known(status);
  *name = found == nullptr ? nullptr : found->name;
  return found == nullptr ? kCudaInvalidValue : kCudaSuccess;
}

EXPORT CUresult cuGetErrorString(CUresult status, const char** text) {
  const Known* const found = known(status);
  *text = found == nullptr ? nullptr : found->text;
  return found == nullptr ? kCudaInvalidValue : kCudaSuccess;
}

EXPORT CUresult cuInit(unsigned flags) {
  return call("cuInit", Needs::kNothing, [&](Machine& here, auto&) {
    if (flags != 0) {
      return kCudaInvalidValue;
    }
    here.initialised = true;
    return here.config.devices == 0 ? kCudaNoDevice : kCudaSuccess;
  });
}

EXPORT CUresult cuDriverGetVersion(int* version) {
  return call("cuDriverGetVersion", Needs::kNothing, [&](Machine& here, auto&) {
    *version = static_cast<int>(here.config.driver);
    return kCudaSuccess;
  });
}

EXPORT CUresult cuDeviceGetCount(int* count) {
  return call("cuDeviceGetCount", Needs::kInit, [&](Machine& here, auto&) {
    *count = static_cast<int>(here.config.devices);
    return kCudaSuccess;
  });
}

EXPORT CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return call("cuDeviceGet", Needs::kInit, [&](Machine& here, auto&) {
    *device = ordinal;
    return ordinal >= 0 && static_cast<std::size_t>(ordinal) < here.config.devices
               ? kCudaSuccess
               : kCudaInvalidDevice;
  });
}

EXPORT CUresult cuDeviceGetName(char* name, int length, CUdevice /*device*/) {
  return call("cuDeviceGetName", Needs::kInit, [&](Machine&, auto&) {
    std::snprintf(name, static_cast<std::size_t>(length), "emulated GPU");
    return kCudaSuccess;
  });
}

EXPORT CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  return call("cuDeviceGetUuid_v2", Needs::kInit, [&](Machine&, auto&) {
    *uuid = {};
    uuid->bytes[0] = 0xe0;
    uuid->bytes[15] = static_cast<unsigned char>(device);
    return kCudaSuccess;
  });
}

EXPORT CUresult cuDeviceGetPCIBusId(char* id, int length, CUdevice device) {
  return call("cuDeviceGetPCIBusId", Needs::kInit, [&](Machine&, auto&) {
    std::snprintf(id, static_cast<std::size_t>(length), "0000:%02X:00.0", device + 1);
    return kCudaSuccess;
  });
}

EXPORT CUresult cuDeviceGetAttribute(int* value, int attribute, CUdevice /*device*/) {
  return call("cuDeviceGetAttribute", Needs::kInit, [&](Machine& here, auto&) {
    const auto capability = static_cast<int>(here.config.capability);
    switch (attribute) {
      case kAttributeMultiprocessorCount:
        *value = 4;
        return kCudaSuccess;
      case kAttributeUnifiedAddressing:
      case kAttributeHostPointerForRegistered:
      case kAttributePosixDescriptors:
        *value = 1;
        return kCudaSuccess;
      case kAttributeComputeCapabilityMajor:
        *value = capability / 10;
        return kCudaSuccess;
      case kAttributeComputeCapabilityMinor:
        *value = capability % 10;
        return kCudaSuccess;
      case kAttributeSharedBytesMax:
        *value = static_cast<int>(emulator::kSharedBytesMax);
        return kCudaSuccess;
      case kAttributeVirtualMemory:
        *value = static_cast<int>(here.config.vmm);
        return kCudaSuccess;
      default:
        return kCudaInvalidValue;
    }
  });
}

EXPORT CUresult cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice /*device*/) {
  return call("cuDeviceTotalMem_v2", Needs::kInit, [&](Machine& here, auto&) {
    *bytes = here.config.memory;
    return kCudaSuccess;
  });
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return call("cuDevicePrimaryCtxRetain", Needs::kInit, [&](Machine& here, auto&) {
    const auto at = static_cast<std::size_t>(device);
    if (at >= here.contexts.size()) {
      return kCudaInvalidDevice;
    }
    ++here.retained[at];
    *context = &here.contexts[at];
    return kCudaSuccess;
  });
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return call("cuDevicePrimaryCtxRelease_v2", Needs::kInit, [&](Machine& here, auto&) {
    const auto at = static_cast<std::size_t>(device);
    if (at >= here.contexts.size() || here.retained[at] == 0) {
      return kCudaInvalidContext;
    }
    --here.retained[at];
    return kCudaSuccess;
  });
}

EXPORT CUresult cuCtxSetCurrent(CUcontext context) {
  return call("cuCtxSetCurrent", Needs::kInit, [&](Machine& here, auto&) {
    const bool ours = context != nullptr && context >= here.contexts.data() &&
                      context < here.contexts.data() + here.contexts.size();
    if (context != nullptr && !ours) {
      return kCudaInvalidContext;
    }
    current_context() = context;
    return kCudaSuccess;
  });
}

EXPORT CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return call("cuCtxGetStreamPriorityRange", Needs::kDevice, [&](Machine&, auto&) {
    *least = 0;
    *greatest = -5;
    return kCudaSuccess;
  });
}

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
    return here.memory.unmap(at, bytes);
  });
}

EXPORT CUresult cuMemSetAccess(CUdeviceptr at,
                               std::size_t bytes,
                               const CUmemAccessDesc* rights,
                               std::size_t count) {
  return call("cuMemSetAccess", Needs::kDevice, [&](Machine& here, auto&) {
    return count == 1 && rights->location.type == kLocationDevice
               ? here.memory.set_access(at, bytes, rights->flags)
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
  return unrecordable_call("cuMemHostRegister_v2",
                           [&](Machine& here, auto&) { return here.memory.pin(base, bytes); });
}

EXPORT CUresult cuMemHostUnregister(void* base) {
  return giving_back("cuMemHostUnregister", [&](Machine& here) { return here.memory.unpin(base); });
}

EXPORT CUresult cuMemcpyAsync(CUdeviceptr target,
                              CUdeviceptr source,
                              std::size_t bytes,
                              CUstream stream) {
  return call("cuMemcpyAsync", Needs::kDevice, [&](Machine& here, auto& lock) {
    const emulator::Memory& memory = here.memory;
    const auto pageable = [&](CUdeviceptr at) {
      return !memory.belongs_to_device(at) && !memory.is_pinned(at, bytes);
    };
    if (!here.streams.has(stream)) {
      return kCudaInvalidHandle;
    }
    const bool from = pageable(source);
    const bool to = pageable(target);
    const std::shared_ptr<Queue> queue = stream->queue;
    if ((from || to) && queue->recording()) {
      queue->spoil();
      return kCudaStreamCaptureUnsupported;
    }
    Operation copy;
    if (from) {
      // The source is read before the call returns, and after what was enqueued before.
      const CUresult status = settle(here, queue->device(), queue->run_all(lock));
      if (status != kCudaSuccess) {
        return status;
      }
      const auto* const first = std::bit_cast<const std::byte*>(source);
      const auto staged = std::make_shared<std::vector<std::byte>>(first, first + bytes);
      copy.run = [=] {
        return run_copy(target, std::bit_cast<CUdeviceptr>(staged->data()), bytes);
      };
    } else {
      copy.run = [=] { return run_copy(target, source, bytes); };
    }
    const CUresult status = push(here, stream, std::move(copy));
    return to && status == kCudaSuccess ? settle(here, queue->device(), queue->run_all(lock))
                                        : status;
  });
}

EXPORT CUresult cuMemsetD8Async(CUdeviceptr target,
                                unsigned char value,
                                std::size_t bytes,
                                CUstream stream) {
  return call("cuMemsetD8Async", Needs::kDevice, [&](Machine& here, auto&) {
    return push(here, stream, {.run = [=] {
                  {
                    const std::lock_guard lock(machine().machinery.mutex);
                    if (!machine().memory.is_device(target, bytes, true)) {
                      return kCudaIllegalAddress;
                    }
                  }
                  std::memset(std::bit_cast<void*>(target), value, bytes);
                  return kCudaSuccess;
                }});
  });
}

EXPORT CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  return call("cuStreamCreateWithPriority", Needs::kDevice, [&](Machine& here, auto&) {
    if (flags > kStreamNonBlocking || priority > 0 || priority < -5) {
      return kCudaInvalidValue;
    }
    *stream = here.streams.make({std::make_shared<Queue>(here.machinery, here_device())});
    return kCudaSuccess;
  });
}

EXPORT CUresult cuStreamDestroy_v2(CUstream stream) {
  return call("cuStreamDestroy_v2", Needs::kInit, [&](Machine& here, auto& lock) {
    if (!here.streams.has(stream)) {
      return kCudaInvalidHandle;
    }
    const std::shared_ptr<Queue> queue = stream->queue;
    here.streams.drop(stream);
    (void)settle(here, queue->device(), queue->run_all(lock));
    return kCudaSuccess;
  });
}

EXPORT CUresult cuStreamSynchronize(CUstream stream) {
  return unrecordable_call("cuStreamSynchronize", [&](Machine& here, auto& lock) {
    if (!here.streams.has(stream)) {
      return kCudaInvalidHandle;
    }
    const std::shared_ptr<Queue> queue = stream->queue;
    return settle(here, queue->device(), queue->run_all(lock));
  });
}

EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  return call("cuStreamWaitEvent", Needs::kDevice, [&](Machine& here, auto&) {
    if (flags != 0 || !here.events.has(event) || !here.streams.has(stream)) {
      return kCudaInvalidHandle;
    }
    if (stream->queue->recording()) {
      stream->queue->spoil();
      return kCudaStreamCaptureUnsupported;  // The real one would record the other stream too.
    }
    return event->queue == nullptr
               ? kCudaSuccess
               : push(here, stream, {.other = event->queue, .count = event->count});
  });
}

EXPORT CUresult cuEventCreate(CUevent* event, unsigned /*flags*/) {
  return call("cuEventCreate", Needs::kDevice, [&](Machine& here, auto&) {
    *event = here.events.make({});
    return kCudaSuccess;
  });
}

EXPORT CUresult cuEventDestroy_v2(CUevent event) {
  return call("cuEventDestroy_v2", Needs::kInit, [&](Machine& here, auto&) {
    return here.events.drop(event) ? kCudaSuccess : kCudaInvalidHandle;
  });
}

EXPORT CUresult cuEventRecord(CUevent event, CUstream stream) {
  return call("cuEventRecord", Needs::kDevice, [&](Machine& here, auto&) {
    if (!here.events.has(event) || !here.streams.has(stream)) {
      return kCudaInvalidHandle;
    }
    if (stream->queue->recording()) {
      stream->queue->spoil();
      return kCudaStreamCaptureUnsupported;
    }
    *event = {.queue = stream->queue, .count = stream->queue->enqueued()};
    return kCudaSuccess;
  });
}

EXPORT CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  return unrecordable_call("cuModuleLoadData", [&](Machine& here, auto&) {
    if (image == nullptr) {
      return kCudaInvalidValue;
    }
    *module = here.modules.make({});  // All kernels are in this library, whatever the image.
    return kCudaSuccess;
  });
}

EXPORT CUresult cuModuleUnload(CUmodule module) {
  return call("cuModuleUnload", Needs::kInit, [&](Machine& here, auto&) {
    return here.modules.drop(module) ? kCudaSuccess : kCudaInvalidHandle;
  });
}

EXPORT CUresult cuModuleGetFunctionCount(unsigned* count, CUmodule /*module*/) {
  return call("cuModuleGetFunctionCount", Needs::kDevice, [&](Machine&, auto&) {
    *count = 0;  // Nothing is left to be loaded.
    return kCudaSuccess;
  });
}

EXPORT CUresult cuModuleEnumerateFunctions(CUfunction* /*functions*/,
                                           unsigned /*count*/,
                                           CUmodule /*module*/) {
  return kCudaSuccess;
}

EXPORT CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  return call("cuModuleGetFunction", Needs::kDevice, [&](Machine& here, auto&) {
    Dl_info self{};
    if (!here.modules.has(module) ||
        ::dladdr(reinterpret_cast<const void*>(&heddle_cuda_emulator_alive), &self) == 0) {
      return kCudaInvalidHandle;
    }
    void* const library = ::dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    void* const entry = library == nullptr ? nullptr : ::dlsym(library, name);
    if (entry == nullptr || std::string_view(name).substr(0, 7) != "heddle_") {
      return kCudaNotFound;
    }
    CUfunc_st& found = here.functions[name];
    found.entry = entry;
    *function = &found;
    return kCudaSuccess;
  });
}

EXPORT CUresult cuFuncLoad(CUfunction /*function*/) {
  return kCudaSuccess;
}

EXPORT CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value) {
  return call("cuFuncSetAttribute", Needs::kDevice, [&](Machine&, auto&) {
    if (attribute != kFunctionDynamicSharedBytesMax || value < 0 ||
        static_cast<std::size_t>(value) > emulator::kSharedBytesMax) {
      return kCudaInvalidValue;
    }
    function->shared_bytes_max =
        std::max(function->shared_bytes_max, static_cast<std::size_t>(value));
    return kCudaSuccess;
  });
}

EXPORT CUresult cuLaunchKernel(CUfunction function,
                               unsigned grid_x,
                               unsigned grid_y,
                               unsigned grid_z,
                               unsigned block_x,
                               unsigned block_y,
                               unsigned block_z,
                               unsigned shared_bytes,
                               CUstream stream,
                               void** params,
                               void** extra) {
  return call("cuLaunchKernel", Needs::kDevice, [&](Machine& here, auto&) {
    const emulator::Dim grid{grid_x, grid_y, grid_z};
    const emulator::Dim block{block_x, block_y, block_z};
    std::vector<std::byte> bytes;
    if (params != nullptr || !read_params(extra, bytes) || !shape_fits(grid, block) ||
        shared_bytes > function->shared_bytes_max) {
      return kCudaInvalidValue;
    }
    if (here.streams.has(stream) && stream->queue->device() != here_device()) {
      return kCudaInvalidContext;
    }
    if (here.config.addresses != 0 && has_ordinary_address(here.memory, bytes)) {
      return push(here, stream, {.run = [] { return kCudaIllegalAddress; }});
    }
    return push(here, stream, {.run = [entry = function->entry, grid, block, shared_bytes, bytes] {
                  return run_kernel(entry, grid, block, shared_bytes, bytes);
                }});
  });
}

EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, int mode) {
  return call("cuStreamBeginCapture_v2", Needs::kDevice, [&](Machine& here, auto&) {
    if (!here.streams.has(stream) || mode != kCaptureThreadLocal || stream->queue->recording()) {
      return kCudaInvalidValue;
    }
    stream->queue->begin_recording();
    return kCudaSuccess;
  });
}

EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  return call("cuStreamEndCapture", Needs::kDevice, [&](Machine& here, auto&) {
    if (!here.streams.has(stream) || !stream->queue->recording()) {
      return kCudaStreamCaptureUnmatched;
    }
    const bool spoiled = stream->queue->spoiled();
    auto recorded = stream->queue->end_recording();
    if (spoiled) {
      stream->queue->begin_recording();  // Forgets that it was.
      (void)stream->queue->end_recording();
      return kCudaStreamCaptureInvalidated;
    }
    *graph =
        here.graphs.make({std::make_shared<const std::vector<Operation>>(std::move(recorded))});
    return kCudaSuccess;
  });
}

EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec* executable,
                                            CUgraph graph,
                                            unsigned long long flags) {
  return call("cuGraphInstantiateWithFlags", Needs::kDevice, [&](Machine& here, auto&) {
    if (!here.graphs.has(graph) || flags != 0) {
      return kCudaInvalidValue;
    }
    *executable = here.executables.make({graph->operations});
    return kCudaSuccess;
  });
}

EXPORT CUresult cuGraphDestroy(CUgraph graph) {
  return call("cuGraphDestroy", Needs::kInit, [&](Machine& here, auto&) {
    return here.graphs.drop(graph) ? kCudaSuccess : kCudaInvalidValue;
  });
}

EXPORT CUresult cuGraphExecDestroy(CUgraphExec executable) {
  return call("cuGraphExecDestroy", Needs::kInit, [&](Machine& here, auto&) {
    return here.executables.drop(executable) ? kCudaSuccess : kCudaInvalidValue;
  });
}

EXPORT CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream) {
  return call("cuGraphLaunch", Needs::kDevice, [&](Machine& here, auto&) {
    if (!here.executables.has(executable)) {
      return kCudaInvalidValue;
    }
    CUresult status = kCudaSuccess;
    for (const Operation& each : *executable->operations) {
      status = status == kCudaSuccess ? push(here, stream, each) : status;
    }
    return status;
  });
}

EXPORT const char* heddle_cuda_emulator_configure(const char* text) {
  static std::string wrong;
  wrong = emulator::make_machine(text);
  return wrong.c_str();
}

EXPORT void heddle_cuda_emulator_fail(const char* name, unsigned nth, CUresult status) {
  const std::lock_guard lock(machine().machinery.mutex);
  machine().plans[name] = {.in = nth, .status = status};
}

EXPORT unsigned long heddle_cuda_emulator_calls(const char* name) {
  const std::lock_guard lock(machine().machinery.mutex);
  return machine().calls[name];
}

EXPORT const char* heddle_cuda_emulator_alive() {
  static std::string text;
  const std::lock_guard lock(machine().machinery.mutex);
  text = machine().alive();
  return text.c_str();
}

EXPORT CUresult heddle_cuda_emulator_enqueue(CUstream stream,
                                             bool (*work)(const void* context),
                                             const void* context,
                                             std::size_t bytes) {
  return call("enqueue", Needs::kDevice, [&](Machine& here, auto&) {
    const auto* const first = static_cast<const std::byte*>(context);
    std::vector<std::byte> copy(first, first + bytes);
    return push(here, stream, {.run = [work, copy = std::move(copy)] {
                  return work(copy.data()) ? kCudaSuccess : kCudaIllegalAddress;
                }});
  });
}

}  // extern "C"

// The functions are what the driver's declarations say.
#define HEDDLE_SAME(name, ...) \
  static_assert(std::is_same_v<decltype(&name), decltype(DriverApi::name)>);
HEDDLE_CUDA_CALLS(HEDDLE_SAME)
#undef HEDDLE_SAME
