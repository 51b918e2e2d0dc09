// Compares our declarations of the driver with NVIDIA's, where the toolkit is installed.

#include "device/cuda/driver_api.h"

#include <bit>
#include <cstddef>
#include <type_traits>

#include <gtest/gtest.h>

#if __has_include(<cuda.h>)
#include <cuda.h>

// Newer headers mean another symbol of the same type by this name. We take the one that drivers of
// CUDA 12.4 have as well.
#ifdef cuEventElapsedTime
#undef cuEventElapsedTime
decltype(cuEventElapsedTime_v2) cuEventElapsedTime;
#endif

namespace heddle::device {
namespace {

/// Whether values of A and B are passed alike: the same type, integers and enumerations of one
/// size, structs of one size, or pointers to such.
template <class A, class B>
constexpr bool alike() {
  if constexpr (std::is_same_v<A, B>) {
    return true;
  } else if constexpr (std::is_pointer_v<A> && std::is_pointer_v<B>) {
    using To = std::remove_pointer_t<A>;
    using From = std::remove_pointer_t<B>;
    if constexpr (std::is_const_v<To> != std::is_const_v<From>) {
      return false;
    } else {
      return alike<std::remove_cv_t<To>, std::remove_cv_t<From>>();
    }
  } else if constexpr (std::is_class_v<A> && std::is_class_v<B>) {
    return sizeof(A) == sizeof(B) && alignof(A) == alignof(B);
  } else if constexpr ((std::is_integral_v<A> || std::is_enum_v<A>) &&
                       (std::is_integral_v<B> || std::is_enum_v<B>)) {
    return sizeof(A) == sizeof(B);
  } else {
    return false;
  }
}

template <class Ours, class Theirs>
struct AlikeCalls : std::false_type {};
template <class R1, class... A1, class R2, class... A2>
  requires(sizeof...(A1) == sizeof...(A2))
struct AlikeCalls<R1 (*)(A1...), R2 (*)(A2...)>
    : std::bool_constant<alike<R1, R2>() && (alike<A1, A2>() && ...)> {};

#define HEDDLE_ALIKE(name, ...)                                             \
  static_assert(AlikeCalls<decltype(DriverApi::name), decltype(&::name)>(), \
                #name " is declared otherwise in cuda.h");
HEDDLE_CUDA_CALLS(HEDDLE_ALIKE)
#undef HEDDLE_ALIKE

static_assert(offsetof(CUmemAllocationProp, requestedHandleTypes) ==
              offsetof(::CUmemAllocationProp, requestedHandleTypes));
static_assert(offsetof(CUmemAllocationProp, location) == offsetof(::CUmemAllocationProp, location));
static_assert(offsetof(CUmemAllocationProp, allocFlags) ==
              offsetof(::CUmemAllocationProp, allocFlags));
static_assert(offsetof(CUmemLocation, id) == offsetof(::CUmemLocation, id));
static_assert(offsetof(CUmemAccessDesc, flags) == offsetof(::CUmemAccessDesc, flags));

static_assert(kCudaInvalidValue == CUDA_ERROR_INVALID_VALUE);
static_assert(kCudaOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY);
static_assert(kCudaNotInitialized == CUDA_ERROR_NOT_INITIALIZED);
static_assert(kCudaDeinitialized == CUDA_ERROR_DEINITIALIZED);
static_assert(kCudaDeviceUnavailable == CUDA_ERROR_DEVICE_UNAVAILABLE);
static_assert(kCudaNoDevice == CUDA_ERROR_NO_DEVICE);
static_assert(kCudaInvalidDevice == CUDA_ERROR_INVALID_DEVICE);
static_assert(kCudaInvalidImage == CUDA_ERROR_INVALID_IMAGE);
static_assert(kCudaInvalidContext == CUDA_ERROR_INVALID_CONTEXT);
static_assert(kCudaEccUncorrectable == CUDA_ERROR_ECC_UNCORRECTABLE);
static_assert(kCudaNvlinkUncorrectable == CUDA_ERROR_NVLINK_UNCORRECTABLE);
static_assert(kCudaContained == CUDA_ERROR_CONTAINED);
static_assert(kCudaInvalidHandle == CUDA_ERROR_INVALID_HANDLE);
static_assert(kCudaNotFound == CUDA_ERROR_NOT_FOUND);
static_assert(kCudaNotReady == CUDA_ERROR_NOT_READY);
static_assert(kCudaIllegalAddress == CUDA_ERROR_ILLEGAL_ADDRESS);
static_assert(kCudaLaunchTimeout == CUDA_ERROR_LAUNCH_TIMEOUT);
static_assert(kCudaContextIsDestroyed == CUDA_ERROR_CONTEXT_IS_DESTROYED);
static_assert(kCudaAssert == CUDA_ERROR_ASSERT);
static_assert(kCudaHostMemoryAlreadyRegistered == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
static_assert(kCudaHostMemoryNotRegistered == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
static_assert(kCudaHardwareStackError == CUDA_ERROR_HARDWARE_STACK_ERROR);
static_assert(kCudaLaunchFailed == CUDA_ERROR_LAUNCH_FAILED);
static_assert(kCudaNotSupported == CUDA_ERROR_NOT_SUPPORTED);
static_assert(kCudaMpsClientTerminated == CUDA_ERROR_MPS_CLIENT_TERMINATED);
static_assert(kCudaStreamCaptureUnsupported == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
static_assert(kCudaStreamCaptureInvalidated == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
static_assert(kCudaStreamCaptureUnmatched == CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
static_assert(kCudaUnknown == CUDA_ERROR_UNKNOWN);

static_assert(kAttributeMultiprocessorCount == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
static_assert(kAttributeUnifiedAddressing == CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING);
static_assert(kAttributeComputeCapabilityMajor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
static_assert(kAttributeComputeCapabilityMinor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
static_assert(kAttributeHostPointerForRegistered ==
              CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM);
static_assert(kAttributeSharedBytesMax == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
static_assert(kAttributeVirtualMemory == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
static_assert(kAttributePosixDescriptors ==
              CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);

static_assert(kAttributeStreamMemory64 == CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS);

static_assert(kAllocationPinned == CU_MEM_ALLOCATION_TYPE_PINNED);
static_assert(kHandlePosixDescriptor == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
static_assert(kLocationDevice == CU_MEM_LOCATION_TYPE_DEVICE);
static_assert(kAccessRead == CU_MEM_ACCESS_FLAGS_PROT_READ);
static_assert(kAccessReadWrite == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
static_assert(kGranularityMinimum == CU_MEM_ALLOC_GRANULARITY_MINIMUM);
static_assert(kHostPortable == CU_MEMHOSTALLOC_PORTABLE);
static_assert(kHostPortable == CU_MEMHOSTREGISTER_PORTABLE);
static_assert(kHostDeviceMap == CU_MEMHOSTALLOC_DEVICEMAP);
static_assert(kHostDeviceMap == CU_MEMHOSTREGISTER_DEVICEMAP);
static_assert(kStreamNonBlocking == CU_STREAM_NON_BLOCKING);
static_assert(kStreamWaitNotBelow == CU_STREAM_WAIT_VALUE_GEQ);
static_assert(kStreamWriteFenced == CU_STREAM_WRITE_VALUE_DEFAULT);
static_assert(kEventDisableTiming == CU_EVENT_DISABLE_TIMING);
static_assert(kCaptureThreadLocal == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
static_assert(kLaunchProgrammatic == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
static_assert(sizeof(CUlaunchAttribute) == sizeof(::CUlaunchAttribute));
static_assert(offsetof(CUlaunchAttribute, value) == offsetof(::CUlaunchAttribute, value));
static_assert(sizeof(CUlaunchConfig) == sizeof(::CUlaunchConfig));
static_assert(offsetof(CUlaunchConfig, hStream) == offsetof(::CUlaunchConfig, hStream));
static_assert(offsetof(CUlaunchConfig, numAttrs) == offsetof(::CUlaunchConfig, numAttrs));
static_assert(kFunctionBinaryVersion == CU_FUNC_ATTRIBUTE_BINARY_VERSION);
static_assert(kFunctionDynamicSharedBytesMax == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);

TEST(DriverApi, AgreesWithTheToolkit) {
  EXPECT_EQ(std::bit_cast<void*>(kLaunchEnd), CU_LAUNCH_PARAM_END);
  EXPECT_EQ(std::bit_cast<void*>(kLaunchParams), CU_LAUNCH_PARAM_BUFFER_POINTER);
  EXPECT_EQ(std::bit_cast<void*>(kLaunchParamsBytes), CU_LAUNCH_PARAM_BUFFER_SIZE);
}

}  // namespace
}  // namespace heddle::device

#else

TEST(DriverApi, AgreesWithTheToolkit) {
  GTEST_SKIP() << "cuda.h is not installed";
}

#endif
