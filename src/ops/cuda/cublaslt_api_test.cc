// Our declarations of cuBLASLt against its own, where this machine has them: all of it is checked
// by the compiler.

#include "ops/cuda/cublaslt_api.h"

#include <type_traits>

#include <gtest/gtest.h>

#if __has_include(<cublasLt.h>) && __has_include(<cuda_runtime_api.h>)
#include <cublasLt.h>

namespace heddle::ops::cuda {
namespace {

/// Whether both are passed alike: pointers, or numbers of one size and kind (enumerations as ints).
template <class Ours, class Theirs>
constexpr bool alike() {
  if constexpr (std::is_pointer_v<Ours>) {
    return std::is_pointer_v<Theirs>;
  } else {
    return !std::is_pointer_v<Theirs> && sizeof(Ours) == sizeof(Theirs) &&
           std::is_floating_point_v<Ours> == std::is_floating_point_v<Theirs>;
  }
}
template <class Ours, class Theirs>
struct SameCall : std::false_type {};
template <class A, class B, class... As, class... Bs>
  requires(sizeof...(As) == sizeof...(Bs))
struct SameCall<A (*)(As...), B (*)(Bs...)>
    : std::bool_constant<(alike<As, Bs>() && ...) && alike<A, B>()> {};

#define HEDDLE_SAME(name, ...) \
  static_assert(SameCall<decltype(CublasLtApi::name), decltype(&::name)>::value);
HEDDLE_CUBLASLT_CALLS(HEDDLE_SAME)
#undef HEDDLE_SAME

static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(::cublasLtMatmulAlgo_t));
static_assert(sizeof(cublasLtMatmulHeuristicResult_t) == sizeof(::cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize) ==
              offsetof(::cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(cublasLtMatmulHeuristicResult_t, state) ==
              offsetof(::cublasLtMatmulHeuristicResult_t, state));
static_assert(kBlasSuccess == CUBLAS_STATUS_SUCCESS);
static_assert(kBlasInvalidValue == CUBLAS_STATUS_INVALID_VALUE);
static_assert(kBlasNotSupported == CUBLAS_STATUS_NOT_SUPPORTED);
static_assert(kBlasNormal == CUBLAS_OP_N && kBlasTransposed == CUBLAS_OP_T);
static_assert(sizeof(kBlasNormal) == sizeof(cublasOperation_t));
static_assert(kBlasCompute32F == CUBLAS_COMPUTE_32F);
static_assert(kBlasFloat == CUDA_R_32F && kBlasBf16 == CUDA_R_16BF);
static_assert(kBlasE4M3 == CUDA_R_8F_E4M3);
static_assert(kBlasTransA == CUBLASLT_MATMUL_DESC_TRANSA);
static_assert(kBlasTransB == CUBLASLT_MATMUL_DESC_TRANSB);
static_assert(kBlasEpilogue == CUBLASLT_MATMUL_DESC_EPILOGUE);
static_assert(kBlasBiasPointer == CUBLASLT_MATMUL_DESC_BIAS_POINTER);
static_assert(kBlasEpilogueNone == CUBLASLT_EPILOGUE_DEFAULT);
static_assert(kBlasEpilogueBias == CUBLASLT_EPILOGUE_BIAS);
static_assert(kBlasWorkspaceMax == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
static_assert(kBlasReductions == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
static_assert(kBlasReductionInWorkspace == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
static_assert(kBlasAlignmentA == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
static_assert(kBlasAlignmentB == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
static_assert(kBlasAlignmentC == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
static_assert(kBlasAlignmentD == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);

TEST(CublasLtApi, IsAsTheLibrarysOwnHeaderSays) {
  RecordProperty("cublasLt", CUBLAS_VERSION);
}

}  // namespace
}  // namespace heddle::ops::cuda

#else

TEST(CublasLtApi, IsAsTheLibrarysOwnHeaderSays) {
  GTEST_SKIP() << "no cublasLt.h when this was built";
}

#endif
