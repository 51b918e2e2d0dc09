#pragma once

#include <cstddef>
#include <cstdint>

#include "device/cuda/driver_api.h"

// The little of cuBLASLt that we use, declared by ourselves: this is built where no toolkit is, and
// the library is found at run time. cublaslt_api_test.cc compares it with cublasLt.h where that is
// installed. Names and meaning are NVIDIA's; enumerations are ints.

// NOLINTBEGIN(readability-identifier-naming): the library's names.
struct cublasLtContext;

namespace heddle::ops::cuda {

using cublasStatus_t = int;
using cublasLtHandle_t = ::cublasLtContext*;
/// Objects of the library's, which it makes and ends.
using cublasLtMatmulDesc_t = void*;
using cublasLtMatrixLayout_t = void*;
using cublasLtMatmulPreference_t = void*;

struct cublasLtMatmulAlgo_t {
  std::uint64_t data[8];  // NOLINT(*-avoid-c-arrays): the library's layout, here and below.
};

struct cublasLtMatmulHeuristicResult_t {
  cublasLtMatmulAlgo_t algo;
  std::size_t workspaceSize;
  cublasStatus_t state;
  float wavesCount;
  int reserved[4];  // NOLINT(*-avoid-c-arrays)
};

constexpr cublasStatus_t kBlasSuccess = 0;
constexpr cublasStatus_t kBlasInvalidValue = 7;
constexpr cublasStatus_t kBlasNotSupported = 15;

/// cublasOperation_t, cublasComputeType_t (float, with no rounding to TF32), cudaDataType.
constexpr std::int32_t kBlasNormal = 0;
constexpr std::int32_t kBlasTransposed = 1;
constexpr int kBlasCompute32F = 68;
constexpr int kBlasFloat = 0;
constexpr int kBlasBf16 = 14;
constexpr int kBlasE4M3 = 28;

/// cublasLtMatmulDescAttributes_t; the first three are 32 bits, the last is a pointer.
constexpr int kBlasTransA = 3;
constexpr int kBlasTransB = 4;
constexpr int kBlasEpilogue = 7;
constexpr int kBlasBiasPointer = 8;
/// cublasLtEpilogue_t.
constexpr std::uint32_t kBlasEpilogueNone = 1;
constexpr std::uint32_t kBlasEpilogueBias = 4;
/// cublasLtMatmulPreferenceAttributes_t: a size; schemes that may be used to add up parts of a sum;
/// then the alignment in bytes of A, B, C and D. All but the first are 32 bits.
constexpr int kBlasWorkspaceMax = 1;
constexpr int kBlasReductions = 3;
constexpr int kBlasAlignmentA = 5;
constexpr int kBlasAlignmentB = 6;
constexpr int kBlasAlignmentC = 7;
constexpr int kBlasAlignmentD = 8;

/// cublasLtReductionScheme_t, beside none at all: in the workspace and as float, in a fixed order.
constexpr std::uint32_t kBlasReductionInWorkspace = 2;

/// CALL(name, types of arguments): every function that we use, by its symbol. Matrices are stored
/// by columns.
#define HEDDLE_CUBLASLT_CALLS(CALL)                                                         \
  CALL(cublasLtCreate, cublasLtHandle_t*)                                                   \
  CALL(cublasLtDestroy, cublasLtHandle_t)                                                   \
  CALL(cublasLtMatmulDescCreate, cublasLtMatmulDesc_t*, int, int)                           \
  CALL(cublasLtMatmulDescDestroy, cublasLtMatmulDesc_t)                                     \
  CALL(cublasLtMatmulDescSetAttribute, cublasLtMatmulDesc_t, int, const void*, std::size_t) \
  CALL(cublasLtMatrixLayoutCreate,                                                          \
       cublasLtMatrixLayout_t*,                                                             \
       int,                                                                                 \
       std::uint64_t,                                                                       \
       std::uint64_t,                                                                       \
       std::int64_t)                                                                        \
  CALL(cublasLtMatrixLayoutDestroy, cublasLtMatrixLayout_t)                                 \
  CALL(cublasLtMatmulPreferenceCreate, cublasLtMatmulPreference_t*)                         \
  CALL(cublasLtMatmulPreferenceDestroy, cublasLtMatmulPreference_t)                         \
  CALL(cublasLtMatmulPreferenceSetAttribute,                                                \
       cublasLtMatmulPreference_t,                                                          \
       int,                                                                                 \
       const void*,                                                                         \
       std::size_t)                                                                         \
  CALL(cublasLtMatmulAlgoGetHeuristic,                                                      \
       cublasLtHandle_t,                                                                    \
       cublasLtMatmulDesc_t,                                                                \
       cublasLtMatrixLayout_t,                                                              \
       cublasLtMatrixLayout_t,                                                              \
       cublasLtMatrixLayout_t,                                                              \
       cublasLtMatrixLayout_t,                                                              \
       cublasLtMatmulPreference_t,                                                          \
       int,                                                                                 \
       cublasLtMatmulHeuristicResult_t*,                                                    \
       int*)                                                                                \
  CALL(cublasLtMatmul,                                                                      \
       cublasLtHandle_t,                                                                    \
       cublasLtMatmulDesc_t,                                                                \
       const void*,                                                                         \
       const void*,                                                                         \
       cublasLtMatrixLayout_t,                                                              \
       const void*,                                                                         \
       cublasLtMatrixLayout_t,                                                              \
       const void*,                                                                         \
       const void*,                                                                         \
       cublasLtMatrixLayout_t,                                                              \
       void*,                                                                               \
       cublasLtMatrixLayout_t,                                                              \
       const cublasLtMatmulAlgo_t*,                                                         \
       void*,                                                                               \
       std::size_t,                                                                         \
       device::CUstream)

/// The library's functions, each under its own name.
struct CublasLtApi {
#define HEDDLE_CUBLASLT_FIELD(name, ...) cublasStatus_t (*name)(__VA_ARGS__) = nullptr;
  HEDDLE_CUBLASLT_CALLS(HEDDLE_CUBLASLT_FIELD)
#undef HEDDLE_CUBLASLT_FIELD
};
// NOLINTEND(readability-identifier-naming)

}  // namespace heddle::ops::cuda
