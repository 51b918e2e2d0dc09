// The driver's functions, by their names, over the emulated machine. What the real driver refuses
// is refused with the same status, as far as our code could tell. Here: errors, devices, contexts.

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>

#include "cuda_emulator/control.h"
#include "cuda_emulator/driver_calls.h"
#include "cuda_emulator/threads.h"

namespace {

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

}  // namespace

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
      case kAttributeStreamMemory64:
        *value = static_cast<int>(here.config.flags);
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

EXPORT CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  return call("cuDeviceCanAccessPeer", Needs::kInit, [&](Machine& here, auto&) {
    *can = here.config.peers != 0 && device != peer ? 1 : 0;
    return kCudaSuccess;
  });
}

EXPORT CUresult cuDeviceGetP2PAttribute(int* value, int attribute, CUdevice device, CUdevice peer) {
  return call("cuDeviceGetP2PAttribute", Needs::kInit, [&](Machine& here, auto&) {
    *value = here.config.peers == 1 ? 1 : 0;
    return attribute == kPeerNativeAtomics && device != peer ? kCudaSuccess : kCudaInvalidValue;
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

EXPORT const char* heddle_cuda_emulator_configure(const char* text) {
  static std::string wrong;
  wrong = emulator::make_machine(text);
  return wrong.c_str();
}

EXPORT void heddle_cuda_emulator_fail(const char* name, unsigned nth, CUresult status) {
  const std::lock_guard lock(machine().machinery.mutex);
  machine().plans[name] = {.in = nth, .status = status};
}

EXPORT void heddle_cuda_emulator_hold(const char* name, int held) {
  emulator::Holds& holds = machine().holds;
  if (held == 0) {
    holds.let_go(name);
  } else if (held == 1) {
    holds.hold(name);
  } else {
    holds.wait(name);
  }
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
