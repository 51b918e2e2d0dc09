#pragma once

#include <cstddef>
#include <cstdint>

// The little of CUDA's driver interface that we use, declared by ourselves: this is built where no
// toolkit is, and the library is found at run time. driver_api_test.cc compares it with cuda.h
// where that is installed. Types, names and meaning are NVIDIA's; enumerations are ints.

// NOLINTBEGIN(readability-identifier-naming): the driver's names.
struct CUctx_st;
struct CUstream_st;
struct CUevent_st;
struct CUmod_st;
struct CUfunc_st;
struct CUgraph_st;
struct CUgraphExec_st;
struct CUgraphNode_st;

namespace heddle::device {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = std::uint64_t;
using CUcontext = ::CUctx_st*;
using CUstream = ::CUstream_st*;
using CUevent = ::CUevent_st*;
using CUmodule = ::CUmod_st*;
using CUfunction = ::CUfunc_st*;
using CUgraph = ::CUgraph_st*;
using CUgraphExec = ::CUgraphExec_st*;
using CUgraphNode = ::CUgraphNode_st*;
using CUmemGenericAllocationHandle = std::uint64_t;
using CUhostFn = void (*)(void* context);

struct CUuuid {
  unsigned char bytes[16];  // NOLINT(*-avoid-c-arrays): the driver's layout, here and below.
};

struct CUmemLocation {
  int type;
  int id;
};

struct CUmemAllocationProp {
  int type;
  int requestedHandleTypes;
  CUmemLocation location;
  void* win32HandleMetaData;
  struct {
    unsigned char compressionType;
    unsigned char gpuDirectRDMACapable;
    unsigned short usage;
    unsigned char reserved[4];  // NOLINT(*-avoid-c-arrays)
  } allocFlags;
};

struct CUmemAccessDesc {
  CUmemLocation location;
  int flags;
};

struct CUlaunchAttribute {
  int id;
  char pad[8 - sizeof(int)];  // NOLINT(*-avoid-c-arrays)
  union {
    char pad[64];  // NOLINT(*-avoid-c-arrays)
    int programmaticStreamSerializationAllowed;
  } value;
};

struct CUlaunchConfig {
  unsigned gridDimX;
  unsigned gridDimY;
  unsigned gridDimZ;
  unsigned blockDimX;
  unsigned blockDimY;
  unsigned blockDimZ;
  unsigned sharedMemBytes;
  CUstream hStream;
  CUlaunchAttribute* attrs;
  unsigned numAttrs;
};
// NOLINTEND(readability-identifier-naming)

/// CUresult. Those that some code of ours asks for.
constexpr CUresult kCudaSuccess = 0;
constexpr CUresult kCudaInvalidValue = 1;
constexpr CUresult kCudaOutOfMemory = 2;
constexpr CUresult kCudaNotInitialized = 3;
constexpr CUresult kCudaDeinitialized = 4;
constexpr CUresult kCudaDeviceUnavailable = 46;
constexpr CUresult kCudaNoDevice = 100;
constexpr CUresult kCudaInvalidDevice = 101;
constexpr CUresult kCudaInvalidImage = 200;
constexpr CUresult kCudaInvalidContext = 201;
constexpr CUresult kCudaEccUncorrectable = 214;
constexpr CUresult kCudaNvlinkUncorrectable = 220;
constexpr CUresult kCudaContained = 226;
constexpr CUresult kCudaInvalidHandle = 400;
constexpr CUresult kCudaNotFound = 500;
constexpr CUresult kCudaNotReady = 600;
constexpr CUresult kCudaIllegalAddress = 700;
constexpr CUresult kCudaLaunchTimeout = 702;
constexpr CUresult kCudaContextIsDestroyed = 709;
constexpr CUresult kCudaAssert = 710;
constexpr CUresult kCudaHostMemoryAlreadyRegistered = 712;
constexpr CUresult kCudaHostMemoryNotRegistered = 713;
constexpr CUresult kCudaHardwareStackError = 714;
constexpr CUresult kCudaLaunchFailed = 719;
constexpr CUresult kCudaNotSupported = 801;
constexpr CUresult kCudaMpsClientTerminated = 810;
constexpr CUresult kCudaStreamCaptureUnsupported = 900;
constexpr CUresult kCudaStreamCaptureInvalidated = 901;
constexpr CUresult kCudaStreamCaptureUnmatched = 903;
constexpr CUresult kCudaUnknown = 999;

/// CUdevice_attribute.
constexpr int kAttributeMultiprocessorCount = 16;
constexpr int kAttributeUnifiedAddressing = 41;
constexpr int kAttributeComputeCapabilityMajor = 75;
constexpr int kAttributeComputeCapabilityMinor = 76;
constexpr int kAttributeHostPointerForRegistered = 91;
constexpr int kAttributeSharedBytesMax = 97;  ///< Of a block, static and dynamic.
constexpr int kAttributeVirtualMemory = 102;
constexpr int kAttributePosixDescriptors = 103;
/// Of the stream's operations on memory those of 32 bits have no attribute of their own: where
/// there are these there are those.
constexpr int kAttributeStreamMemory64 = 122;

/// CUdevice_P2PAttribute. Of the links between GPUs NVLink alone has all atomic operations.
constexpr int kPeerNativeAtomics = 3;

/// CUmemAllocationType, CUmemAllocationHandleType, CUmemLocationType, CUmemAccess_flags,
/// CUmemAllocationGranularity_flags.
constexpr int kAllocationPinned = 1;
constexpr int kHandlePosixDescriptor = 1;
constexpr int kLocationDevice = 1;
constexpr int kAccessRead = 1;
constexpr int kAccessReadWrite = 3;
constexpr int kGranularityMinimum = 0;

/// Flags of cuMemHostAlloc and cuMemHostRegister: pinned for all contexts, usable by kernels.
constexpr unsigned kHostPortable = 1;
constexpr unsigned kHostDeviceMap = 2;
constexpr unsigned kStreamNonBlocking = 1;
constexpr unsigned kStreamWaitNotBelow = 0;  ///< Counting round.
constexpr unsigned kStreamWriteFenced = 0;   ///< After all that the stream wrote before.
constexpr unsigned kEventDisableTiming = 2;
constexpr int kCaptureThreadLocal = 1;     ///< CUstreamCaptureMode.
constexpr int kFunctionBinaryVersion = 6;  ///< 90 is 9.0.
constexpr int kFunctionDynamicSharedBytesMax = 8;

/// CUlaunchAttributeID: the kernel may begin before the one before it in the stream has ended.
constexpr int kLaunchProgrammatic = 6;

/// Keys of cuLaunchKernelEx's `extra`, as pointers: a list of key and value, closed by kLaunchEnd.
constexpr std::uintptr_t kLaunchEnd = 0;
constexpr std::uintptr_t kLaunchParams = 1;
constexpr std::uintptr_t kLaunchParamsBytes = 2;

/// CALL(name, types of arguments): every function that we use, by its symbol.
#define HEDDLE_CUDA_CALLS(CALL)                                                                    \
  CALL(cuGetErrorName, CUresult, const char**)                                                     \
  CALL(cuGetErrorString, CUresult, const char**)                                                   \
  CALL(cuInit, unsigned)                                                                           \
  CALL(cuDriverGetVersion, int*)                                                                   \
  CALL(cuDeviceGetCount, int*)                                                                     \
  CALL(cuDeviceGet, CUdevice*, int)                                                                \
  CALL(cuDeviceGetName, char*, int, CUdevice)                                                      \
  CALL(cuDeviceGetUuid_v2, CUuuid*, CUdevice)                                                      \
  CALL(cuDeviceGetPCIBusId, char*, int, CUdevice)                                                  \
  CALL(cuDeviceGetAttribute, int*, int, CUdevice)                                                  \
  CALL(cuDeviceTotalMem_v2, std::size_t*, CUdevice)                                                \
  CALL(cuDeviceCanAccessPeer, int*, CUdevice, CUdevice)                                            \
  CALL(cuDeviceGetP2PAttribute, int*, int, CUdevice, CUdevice)                                     \
  CALL(cuDevicePrimaryCtxRetain, CUcontext*, CUdevice)                                             \
  CALL(cuDevicePrimaryCtxRelease_v2, CUdevice)                                                     \
  CALL(cuCtxSetCurrent, CUcontext)                                                                 \
  CALL(cuCtxGetStreamPriorityRange, int*, int*)                                                    \
  CALL(cuMemGetInfo_v2, std::size_t*, std::size_t*)                                                \
  CALL(cuMemGetAllocationGranularity, std::size_t*, const CUmemAllocationProp*, int)               \
  CALL(cuMemCreate,                                                                                \
       CUmemGenericAllocationHandle*,                                                              \
       std::size_t,                                                                                \
       const CUmemAllocationProp*,                                                                 \
       unsigned long long)                                                                         \
  CALL(cuMemRelease, CUmemGenericAllocationHandle)                                                 \
  CALL(cuMemExportToShareableHandle, void*, CUmemGenericAllocationHandle, int, unsigned long long) \
  CALL(cuMemImportFromShareableHandle, CUmemGenericAllocationHandle*, void*, int)                  \
  CALL(cuMemAddressReserve,                                                                        \
       CUdeviceptr*,                                                                               \
       std::size_t,                                                                                \
       std::size_t,                                                                                \
       CUdeviceptr,                                                                                \
       unsigned long long)                                                                         \
  CALL(cuMemAddressFree, CUdeviceptr, std::size_t)                                                 \
  CALL(cuMemMap,                                                                                   \
       CUdeviceptr,                                                                                \
       std::size_t,                                                                                \
       std::size_t,                                                                                \
       CUmemGenericAllocationHandle,                                                               \
       unsigned long long)                                                                         \
  CALL(cuMemUnmap, CUdeviceptr, std::size_t)                                                       \
  CALL(cuMemSetAccess, CUdeviceptr, std::size_t, const CUmemAccessDesc*, std::size_t)              \
  CALL(cuMemAlloc_v2, CUdeviceptr*, std::size_t)                                                   \
  CALL(cuMemFree_v2, CUdeviceptr)                                                                  \
  CALL(cuMemHostAlloc, void**, std::size_t, unsigned)                                              \
  CALL(cuMemFreeHost, void*)                                                                       \
  CALL(cuMemHostRegister_v2, void*, std::size_t, unsigned)                                         \
  CALL(cuMemHostUnregister, void*)                                                                 \
  CALL(cuMemcpyAsync, CUdeviceptr, CUdeviceptr, std::size_t, CUstream)                             \
  CALL(cuMemsetD8Async, CUdeviceptr, unsigned char, std::size_t, CUstream)                         \
  CALL(cuStreamCreateWithPriority, CUstream*, unsigned, int)                                       \
  CALL(cuStreamDestroy_v2, CUstream)                                                               \
  CALL(cuStreamSynchronize, CUstream)                                                              \
  CALL(cuStreamWaitEvent, CUstream, CUevent, unsigned)                                             \
  CALL(cuStreamWaitValue32_v2, CUstream, CUdeviceptr, std::uint32_t, unsigned)                     \
  CALL(cuStreamWriteValue32_v2, CUstream, CUdeviceptr, std::uint32_t, unsigned)                    \
  CALL(cuEventCreate, CUevent*, unsigned)                                                          \
  CALL(cuEventDestroy_v2, CUevent)                                                                 \
  CALL(cuEventRecord, CUevent, CUstream)                                                           \
  CALL(cuEventSynchronize, CUevent)                                                                \
  CALL(cuEventElapsedTime, float*, CUevent, CUevent)                                               \
  CALL(cuModuleLoadData, CUmodule*, const void*)                                                   \
  CALL(cuModuleUnload, CUmodule)                                                                   \
  CALL(cuModuleGetFunctionCount, unsigned*, CUmodule)                                              \
  CALL(cuModuleEnumerateFunctions, CUfunction*, unsigned, CUmodule)                                \
  CALL(cuModuleGetFunction, CUfunction*, CUmodule, const char*)                                    \
  CALL(cuFuncLoad, CUfunction)                                                                     \
  CALL(cuFuncGetAttribute, int*, int, CUfunction)                                                  \
  CALL(cuFuncSetAttribute, CUfunction, int, int)                                                   \
  CALL(cuLaunchKernelEx, const CUlaunchConfig*, CUfunction, void**, void**)                        \
  CALL(cuStreamBeginCapture_v2, CUstream, int)                                                     \
  CALL(cuStreamEndCapture, CUstream, CUgraph*)                                                     \
  CALL(cuGraphGetNodes, CUgraph, CUgraphNode*, std::size_t*)                                       \
  CALL(cuGraphInstantiateWithFlags, CUgraphExec*, CUgraph, unsigned long long)                     \
  CALL(cuGraphDestroy, CUgraph)                                                                    \
  CALL(cuGraphExecDestroy, CUgraphExec)                                                            \
  CALL(cuGraphLaunch, CUgraphExec, CUstream)

/// The driver's functions, each under its own name.
// NOLINTBEGIN(readability-identifier-naming): the driver's names.
struct DriverApi {
#define HEDDLE_CUDA_FIELD(name, ...) CUresult (*name)(__VA_ARGS__) = nullptr;
  HEDDLE_CUDA_CALLS(HEDDLE_CUDA_FIELD)
#undef HEDDLE_CUDA_FIELD
};
// NOLINTEND(readability-identifier-naming)

}  // namespace heddle::device
