// cuBLASLt on the emulated driver: the functions that we use, by their names, with plain loops for
// products. It checks what it is told more than the library does, and like the library it does not
// take everything: it declines bfloat16 matrices with rows of an odd number of elements, and FP8
// before compute capability 8.9 or where a side of a matrix or an address is no multiple of 16.

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "cuda_emulator/control.h"
#include "cuda_emulator/cublaslt_control.h"
#include "device/cuda/driver_api.h"
#include "ops/bf16.h"
#include "ops/cuda/cublaslt_api.h"

using namespace heddle::ops::cuda;  // NOLINT(google-build-using-namespace): the library's names.
using heddle::device::CUstream;

extern "C" heddle::device::CUresult cuDeviceGetAttribute(int* value,
                                                         int attribute,
                                                         heddle::device::CUdevice device);

struct cublasLtContext {};

namespace {

struct Description {
  std::int32_t transposed_a = kBlasNormal;
  std::int32_t transposed_b = kBlasNormal;
  std::uint32_t epilogue = kBlasEpilogueNone;
  const float* bias = nullptr;
};

struct Layout {
  int type = 0;
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
  std::int64_t stride = 0;  ///< Between columns.
};

struct Preference {
  std::uint64_t workspace = 0;
  std::uint32_t reductions = 0xffffffffU;
  std::array<std::uint32_t, 4> alignment{256, 256, 256, 256};  ///< Of A, B, C, D.
};

/// What cublasLtMatmulAlgo_t holds: what was asked about.
struct Algorithm {
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
  std::uint64_t depth = 0;
  std::array<std::uint32_t, 4> alignment{};
  std::uint32_t epilogue = 0;
  int way = 0;
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

/// One product, as the stream gets it.
struct alignas(16) Product {
  Layout a_layout, b_layout, c_layout, d_layout;
  const std::byte* a = nullptr;
  const std::byte* b = nullptr;
  const std::byte* c = nullptr;
  std::byte* d = nullptr;
  const float* bias = nullptr;  ///< Null: none.
  std::byte* workspace = nullptr;
  std::size_t workspace_bytes = 0;
  float alpha = 0.0F;
  float beta = 0.0F;
  int way = 0;
};

constexpr std::size_t kWorkspace = 1000;
/// Of all handles.  NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
std::atomic<unsigned long> products_done = 0;
/// Ways of doing a product, which differ by how long they take [s]; and the one taken last.
constexpr int kWays = 3;
// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables)
std::array<std::atomic<double>, kWays> way_seconds{30.0, 10.0, 20.0};
std::atomic<int> last_way = -1;
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

/// Makes a copy of `value` the object at `handle`.
template <class Object>
cublasStatus_t make(void** handle, const Object& value) {
  *handle = new Object(value);
  return kBlasSuccess;
}
template <class Object>
cublasStatus_t drop(void* handle) {
  delete static_cast<Object*>(handle);
  return kBlasSuccess;
}
template <class Value>
cublasStatus_t assign(Value& to, const void* from, std::size_t bytes) {
  if (bytes != sizeof(to)) {
    return kBlasInvalidValue;
  }
  std::memcpy(&to, from, bytes);
  return kBlasSuccess;
}

/// Of E4M3 as NVIDIA has it, by code.
std::array<float, 256> e4m3_numbers() {
  std::array<float, 256> numbers{};
  for (unsigned code = 0; code < numbers.size(); ++code) {
    const int exponent = static_cast<int>(code >> 3U & 15U);
    const int mantissa = static_cast<int>(code & 7U);
    const float magnitude = (code & 0x7FU) == 0x7FU ? NAN
                            : exponent == 0
                                ? std::ldexp(static_cast<float>(mantissa), -9)
                                : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
    numbers.at(code) = (code & 0x80U) != 0 ? -magnitude : magnitude;
  }
  return numbers;
}
// NOLINTNEXTLINE(bugprone-throwing-static-initialization)
const std::array<float, 256> kE4m3 = e4m3_numbers();

float element(const std::byte* matrix,
              const Layout& layout,
              std::uint64_t row,
              std::uint64_t column) {
  const auto at = static_cast<std::size_t>(layout.stride) * column + row;
  if (layout.type == kBlasE4M3) {
    return kE4m3[std::to_integer<std::size_t>(matrix[at])];
  }
  if (layout.type == kBlasBf16) {
    return heddle::ops::from_bf16(reinterpret_cast<const std::uint16_t*>(matrix)[at]);
  }
  return reinterpret_cast<const float*>(matrix)[at];
}

void set_element(
    std::byte* matrix, const Layout& layout, std::uint64_t row, std::uint64_t column, float value) {
  const auto at = static_cast<std::size_t>(layout.stride) * column + row;
  if (layout.type == kBlasBf16) {
    reinterpret_cast<std::uint16_t*>(matrix)[at] = heddle::ops::to_bf16(value);
  } else {
    reinterpret_cast<float*>(matrix)[at] = value;
  }
}

bool run(const void* context) {
  const Product& p = *static_cast<const Product*>(context);
  std::memset(p.workspace, 0xff, p.workspace_bytes);
  for (std::uint64_t column = 0; column < p.d_layout.columns; ++column) {
    for (std::uint64_t row = 0; row < p.d_layout.rows; ++row) {
      float sum = 0.0F;
      for (std::uint64_t k = 0; k < p.a_layout.rows; ++k) {
        sum = std::fma(element(p.a, p.a_layout, k, row), element(p.b, p.b_layout, k, column), sum);
      }
      sum *= p.alpha;
      if (p.beta != 0.0F) {
        sum += p.beta * element(p.c, p.c_layout, row, column);
      }
      if (p.bias != nullptr) {
        sum += p.bias[row];
      }
      set_element(p.d, p.d_layout, row, column, sum);
    }
  }
  ++products_done;
  last_way = p.way;
  heddle_cuda_emulator_take(way_seconds[static_cast<std::size_t>(p.way)]);
  return true;
}

/// Whether the matrices are those of d = a^T b + c.
bool fit(
    const Description& what, const Layout& a, const Layout& b, const Layout& c, const Layout& d) {
  const bool input = a.type == kBlasBf16 || a.type == kBlasFloat || a.type == kBlasE4M3;
  const bool output = d.type == kBlasFloat || (d.type == kBlasBf16 && a.type == kBlasBf16);
  // A bias is of the result's type, and of FP8's bfloat16.
  const bool bias = d.type == kBlasFloat && a.type != kBlasE4M3;
  const bool typed = input && b.type == a.type && output && c.type == d.type &&
                     (bias || what.epilogue != kBlasEpilogueBias);
  return typed && what.transposed_a == kBlasTransposed && what.transposed_b == kBlasNormal &&
         a.rows == b.rows && d.rows == a.columns && d.columns == b.columns && c.rows == d.rows &&
         c.columns == d.columns;
}

int capability() {
  int major = 0;
  int minor = 0;
  const bool told =
      cuDeviceGetAttribute(&major, heddle::device::kAttributeComputeCapabilityMajor, 0) == 0 &&
      cuDeviceGetAttribute(&minor, heddle::device::kAttributeComputeCapabilityMinor, 0) == 0;
  return told ? 10 * major + minor : 0;
}

bool takes_f8(const Layout& a, const Layout& b, const Layout& d, const Preference& wish) {
  constexpr int kAda = 89;
  constexpr std::int64_t kSides = 16;
  const bool placed =
      std::ranges::all_of(wish.alignment, [](std::uint32_t bytes) { return bytes >= kSides; });
  return capability() >= kAda && placed && a.rows % kSides == 0 && a.columns % kSides == 0 &&
         a.stride % kSides == 0 && b.stride % kSides == 0 && d.stride % kSides == 0;
}

bool takes(const Layout& a, const Layout& b, const Layout& d, const Preference& wish) {
  if (a.type == kBlasE4M3) {
    return takes_f8(a, b, d, wish);
  }
  return a.type == kBlasFloat || (a.stride % 2 == 0 && b.stride % 2 == 0);
}

bool is_aligned(const void* data, std::uint32_t bytes) {
  return reinterpret_cast<std::uintptr_t>(data) % bytes == 0;
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming, readability-function-size): the library's functions.
#define EXPORT __attribute__((visibility("default")))

extern "C" {

EXPORT unsigned long heddle_cublaslt_emulator_products() {
  return products_done;
}

EXPORT void heddle_cublaslt_emulator_set_time(int way, double seconds) {
  way_seconds.at(static_cast<std::size_t>(way)) = seconds;
}

EXPORT int heddle_cublaslt_emulator_last_way() {
  return last_way;
}

// No call of the product's: tools/gpu_bundle/libraries.py asks for it.
EXPORT std::size_t cublasLtGetVersion() {
  return 130000;
}

EXPORT cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new cublasLtContext;
  return kBlasSuccess;
}
EXPORT cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return kBlasSuccess;
}

EXPORT cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* handle,
                                               int compute,
                                               int scale) {
  return compute == kBlasCompute32F && scale == kBlasFloat ? make(handle, Description{})
                                                           : kBlasNotSupported;
}
EXPORT cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t handle) {
  return drop<Description>(handle);
}
EXPORT cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle,
                                                     int attribute,
                                                     const void* value,
                                                     std::size_t bytes) {
  Description& what = *static_cast<Description*>(handle);
  switch (attribute) {
    case kBlasTransA:
      return assign(what.transposed_a, value, bytes);
    case kBlasTransB:
      return assign(what.transposed_b, value, bytes);
    case kBlasEpilogue:
      return assign(what.epilogue, value, bytes);
    case kBlasBiasPointer:
      return assign(what.bias, value, bytes);
    default:
      return kBlasInvalidValue;
  }
}

EXPORT cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* handle,
                                                 int type,
                                                 std::uint64_t rows,
                                                 std::uint64_t columns,
                                                 std::int64_t stride) {
  if (rows == 0 || columns == 0 || stride < static_cast<std::int64_t>(rows)) {
    return kBlasInvalidValue;
  }
  return make(handle, Layout{.type = type, .rows = rows, .columns = columns, .stride = stride});
}
EXPORT cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t handle) {
  return drop<Layout>(handle);
}

EXPORT cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* handle) {
  return make(handle, Preference{});
}
EXPORT cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t handle) {
  return drop<Preference>(handle);
}
EXPORT cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t handle,
                                                           int attribute,
                                                           const void* value,
                                                           std::size_t bytes) {
  Preference& wish = *static_cast<Preference*>(handle);
  if (attribute == kBlasWorkspaceMax) {
    return assign(wish.workspace, value, bytes);
  }
  if (attribute == kBlasReductions) {
    return assign(wish.reductions, value, bytes);
  }
  if (attribute >= kBlasAlignmentA && attribute <= kBlasAlignmentD) {
    return assign(
        wish.alignment[static_cast<std::size_t>(attribute - kBlasAlignmentA)], value, bytes);
  }
  return kBlasInvalidValue;
}

EXPORT cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle,
                                                     cublasLtMatmulDesc_t description,
                                                     cublasLtMatrixLayout_t a_layout,
                                                     cublasLtMatrixLayout_t b_layout,
                                                     cublasLtMatrixLayout_t c_layout,
                                                     cublasLtMatrixLayout_t d_layout,
                                                     cublasLtMatmulPreference_t preference,
                                                     int wanted,
                                                     cublasLtMatmulHeuristicResult_t* results,
                                                     int* found) {
  const auto& what = *static_cast<const Description*>(description);
  const auto& a = *static_cast<const Layout*>(a_layout);
  const auto& b = *static_cast<const Layout*>(b_layout);
  const auto& wish = *static_cast<const Preference*>(preference);
  *found = 0;
  if (handle == nullptr || wanted < 1 ||
      !fit(what,
           a,
           b,
           *static_cast<const Layout*>(c_layout),
           *static_cast<const Layout*>(d_layout))) {
    return kBlasInvalidValue;
  }
  if (!takes(a, b, *static_cast<const Layout*>(d_layout), wish) || wish.workspace < kWorkspace) {
    return kBlasNotSupported;
  }
  for (; *found < std::min(wanted, kWays); ++*found) {
    const Algorithm algorithm{.rows = a.columns,
                              .columns = b.columns,
                              .depth = a.rows,
                              .alignment = wish.alignment,
                              .epilogue = what.epilogue,
                              .way = *found};
    cublasLtMatmulHeuristicResult_t& result = results[*found];
    result = {};
    std::memcpy(&result.algo, &algorithm, sizeof(algorithm));
    result.workspaceSize = kWorkspace;
  }
  return kBlasSuccess;
}

EXPORT cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle,
                                     cublasLtMatmulDesc_t description,
                                     const void* alpha,
                                     const void* a,
                                     cublasLtMatrixLayout_t a_layout,
                                     const void* b,
                                     cublasLtMatrixLayout_t b_layout,
                                     const void* beta,
                                     const void* c,
                                     cublasLtMatrixLayout_t c_layout,
                                     void* d,
                                     cublasLtMatrixLayout_t d_layout,
                                     const cublasLtMatmulAlgo_t* algo,
                                     void* workspace,
                                     std::size_t workspace_bytes,
                                     CUstream stream) {
  const auto& what = *static_cast<const Description*>(description);
  Product product{.a_layout = *static_cast<const Layout*>(a_layout),
                  .b_layout = *static_cast<const Layout*>(b_layout),
                  .c_layout = *static_cast<const Layout*>(c_layout),
                  .d_layout = *static_cast<const Layout*>(d_layout),
                  .a = static_cast<const std::byte*>(a),
                  .b = static_cast<const std::byte*>(b),
                  .c = static_cast<const std::byte*>(c),
                  .d = static_cast<std::byte*>(d),
                  .bias = what.epilogue == kBlasEpilogueBias ? what.bias : nullptr,
                  .workspace = static_cast<std::byte*>(workspace),
                  .workspace_bytes = workspace_bytes};
  std::memcpy(&product.alpha, alpha, sizeof(float));
  std::memcpy(&product.beta, beta, sizeof(float));
  Algorithm algorithm;
  std::memcpy(&algorithm, algo, sizeof(algorithm));
  product.way = algorithm.way;
  const bool asked =
      algorithm.rows == product.d_layout.rows && algorithm.columns == product.d_layout.columns &&
      algorithm.depth == product.a_layout.rows && algorithm.epilogue == what.epilogue &&
      algorithm.way >= 0 && algorithm.way < kWays;
  const bool placed =
      is_aligned(a, algorithm.alignment[0]) && is_aligned(b, algorithm.alignment[1]) &&
      is_aligned(c, algorithm.alignment[2]) && is_aligned(d, algorithm.alignment[3]) &&
      workspace_bytes >= kWorkspace && workspace != nullptr;
  const bool in_place = c != d || product.c_layout.stride == product.d_layout.stride;
  const bool bias = what.epilogue != kBlasEpilogueBias || what.bias != nullptr;
  if (handle == nullptr || !asked || !placed || !in_place || !bias ||
      !fit(what, product.a_layout, product.b_layout, product.c_layout, product.d_layout)) {
    return kBlasInvalidValue;
  }
  return heddle_cuda_emulator_enqueue(stream, run, &product, sizeof(product)) == 0
             ? kBlasSuccess
             : kBlasInvalidValue;
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming, readability-function-size)
