#include "ops/cuda/blas.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "base/driver_library.h"
#include "base/log.h"
#include "base/tunables.h"
#include "device/cuda/cuda_device.h"
#include "ops/cuda/blas_places.h"

namespace heddle::ops::cuda {
namespace {

/// Plans that a stream remembers. Prompts have all lengths; when it has met so many it begins anew.
constexpr std::size_t kPlansMax = 4096;

/// The library and how it was asked for.
struct Loaded {
  DriverLibrary library;
  std::string name;
};

Result<Loaded> open_named(const std::string& name) {
  Result<DriverLibrary> library = DriverLibrary::open(name);
  if (!library) {
    return library.error();
  }
  return Loaded{.library = std::move(*library), .name = name};
}

Result<Loaded> load() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody sets the environment.
  const char* named = std::getenv("HEDDLE_CUBLASLT");
  if (named != nullptr && std::string(named) == "none") {
    return Error{.code = Code::kUnavailable, .message = "HEDDLE_CUBLASLT is none"};
  }
  if (named != nullptr) {
    return open_named(named);
  }
  const char* driver = std::getenv("HEDDLE_CUDA_DRIVER");  // NOLINT(concurrency-mt-unsafe)
  if (driver != nullptr && std::string(driver) != device::kDriverLibrary) {
    return Error{.code = Code::kUnavailable, .message = "HEDDLE_CUDA_DRIVER names another driver"};
  }
  std::vector<std::string> usual{
      "libcublasLt.so.13", "libcublasLt.so.12", "/usr/local/cuda/lib64/libcublasLt.so"};
  std::ranges::move(blas_in_python(PythonPlaces::of_environment()), std::back_inserter(usual));
  for (const std::string& name : usual) {
    if (Result<Loaded> loaded = open_named(name)) {
      return loaded;
    }
  }
  return Error{.code = Code::kUnavailable,
               .message =
                   "no libcublasLt.so.13 or .12, of the system or in Python's packages; "
                   "HEDDLE_CUBLASLT may name one"};
}

std::uint32_t alignment_of(const std::byte* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  constexpr std::uintptr_t kMost = 256;
  return static_cast<std::uint32_t>(std::uintptr_t{1} << std::countr_zero(address | kMost));
}

/// Makes an object of the library's; null where it does not want to.
template <class... Types, class... Args>
void* made(cublasStatus_t (*create)(void**, Types...), Args... args) {
  void* object = nullptr;
  return create(&object, static_cast<Types>(args)...) == kBlasSuccess ? object : nullptr;
}

}  // namespace

Result<std::unique_ptr<BlasLibrary>> BlasLibrary::open() {
  Result<Loaded> loaded = load();
  if (!loaded) {
    return loaded.error();
  }
  std::unique_ptr<BlasLibrary> blas(new BlasLibrary);
  blas->name_ = loaded->name;
#define HEDDLE_CUBLASLT_FIND(name, ...)                                                  \
  if (const Result<void> found = loaded->library.find(#name, blas->api_.name); !found) { \
    return found.error();                                                                \
  }
  HEDDLE_CUBLASLT_CALLS(HEDDLE_CUBLASLT_FIND)
#undef HEDDLE_CUBLASLT_FIND
  if (const cublasStatus_t status = blas->api_.cublasLtCreate(&blas->handle_);
      status != kBlasSuccess) {
    return Error{.code = Code::kUnavailable,
                 .message = "cuBLASLt does not start: status " + std::to_string(status)};
  }
  return blas;
}

BlasLibrary::~BlasLibrary() {
  if (handle_ != nullptr) {
    (void)api_.cublasLtDestroy(handle_);
  }
}

Blas::~Blas() {
  for (const auto& [product, plan] : plans_) {
    drop(plan);
  }
}

void Blas::drop(const Plan& plan) {
  const CublasLtApi& api = library_->api();
  if (plan.product != nullptr) {
    (void)api.cublasLtMatmulDescDestroy(plan.product);
  }
  for (void* layout : {plan.weight, plan.x, plan.residual, plan.out}) {
    if (layout != nullptr) {
      (void)api.cublasLtMatrixLayoutDestroy(layout);
    }
  }
}

bool Blas::open_library(device::CudaStream& stream) {
  if (!tried_) {
    tried_ = true;
    stream.device().context().make_current();
    Result<std::unique_ptr<BlasLibrary>> library = BlasLibrary::open();
    if (library) {
      library_ = std::move(*library);
      log::info("cuBLASLt does large products", {{"library", library_->name()}});
    } else {
      log::warning("no cuBLASLt: large products take our own, slower kernels",
                   {{"why", library.error().message}});
    }
  }
  return library_ != nullptr;
}

Blas::Product Blas::product_of(const LinearArgs& args, std::size_t workspace) {
  return {.tokens = args.x.shape[0],
          .outputs = args.weight.shape[0],
          .inputs = args.weight.shape[1],
          .x_stride = args.x.stride[0],
          .residual_stride = args.residual.present() ? args.residual.stride[0] : 0,
          .out_stride = args.out.stride[0],
          .workspace = workspace,
          .bf16 = args.weight.dtype == DType::kBf16,
          .out_bf16 = args.out.dtype == DType::kBf16,
          .bias = args.bias.present(),
          .alignment = {alignment_of(args.weight.data),
                        alignment_of(args.x.data),
                        alignment_of(args.residual.present() ? args.residual.data : args.out.data),
                        alignment_of(args.out.data)}};
}

// Stored by rows, a matrix is to the library its transpose: x is [inputs, tokens], the weight
// [inputs, outputs] and to be transposed, out is [outputs, tokens], and its rows are what a bias is
// added to.
Blas::Plan Blas::make_plan(const Product& product, std::uintptr_t bias) {
  const CublasLtApi& api = library_->api();
  const int type = product.bf16 ? kBlasBf16 : kBlasFloat;
  const int out = product.out_bf16 ? kBlasBf16 : kBlasFloat;
  const std::int64_t c_stride =
      product.residual_stride != 0 ? product.residual_stride : product.out_stride;
  const auto layout = [&](int of, std::int64_t rows, std::int64_t columns, std::int64_t stride) {
    return made(api.cublasLtMatrixLayoutCreate, of, rows, columns, std::max(stride, rows));
  };
  Plan plan{.product = made(api.cublasLtMatmulDescCreate, kBlasCompute32F, kBlasFloat),
            .weight = layout(type, product.inputs, product.outputs, product.inputs),
            .x = layout(type, product.inputs, product.tokens, product.x_stride),
            .residual = layout(out, product.outputs, product.tokens, c_stride),
            .out = layout(out, product.outputs, product.tokens, product.out_stride)};
  const auto set = [&](int attribute, const auto& value) {
    return api.cublasLtMatmulDescSetAttribute(plan.product, attribute, &value, sizeof(value)) ==
           kBlasSuccess;
  };
  plan.usable = plan.product != nullptr && plan.weight != nullptr && plan.x != nullptr &&
                plan.residual != nullptr && plan.out != nullptr &&
                set(kBlasTransA, kBlasTransposed) && set(kBlasTransB, kBlasNormal) &&
                set(kBlasEpilogue, product.bias ? kBlasEpilogueBias : kBlasEpilogueNone) &&
                (!product.bias || set(kBlasBiasPointer, bias)) && take_advice(product, plan);
  if (!plan.usable && !told_) {
    told_ = true;
    log::warning("cuBLASLt has nothing for a product, and maybe for others: our own kernels do it",
                 {{"tokens", product.tokens},
                  {"outputs", product.outputs},
                  {"inputs", product.inputs},
                  {"bf16", product.bf16}});
  }
  return plan;
}

bool Blas::take_advice(const Product& product, Plan& plan) {
  const CublasLtApi& api = library_->api();
  void* preference = made(api.cublasLtMatmulPreferenceCreate);
  if (preference == nullptr) {
    return false;
  }
  const auto set = [&](int attribute, const auto& value) {
    return api.cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)) ==
           kBlasSuccess;
  };
  int found = 0;
  const bool advised =
      set(kBlasWorkspaceMax, product.workspace) &&
      set(kBlasReductions, kBlasReductionInWorkspace) &&
      set(kBlasAlignmentA, product.alignment[0]) && set(kBlasAlignmentB, product.alignment[1]) &&
      set(kBlasAlignmentC, product.alignment[2]) && set(kBlasAlignmentD, product.alignment[3]) &&
      api.cublasLtMatmulAlgoGetHeuristic(library_->handle(),
                                         plan.product,
                                         plan.weight,
                                         plan.x,
                                         plan.residual,
                                         plan.out,
                                         preference,
                                         1,
                                         &plan.advice,
                                         &found) == kBlasSuccess;
  (void)api.cublasLtMatmulPreferenceDestroy(preference);
  return advised && found == 1 && plan.advice.state == kBlasSuccess &&
         plan.advice.workspaceSize <= product.workspace;
}

const Blas::Plan& Blas::plan_of(const Product& product, std::uintptr_t bias) {
  const auto known = plans_.find(product);
  if (known != plans_.end()) {
    return known->second;
  }
  if (plans_.size() >= kPlansMax) {
    for (const auto& [old, plan] : plans_) {
      drop(plan);
    }
    plans_.clear();
  }
  return plans_.emplace(product, make_plan(product, bias)).first->second;
}

bool Blas::multiply(device::CudaStream& stream, const LinearArgs& args, std::size_t kept) {
  constexpr std::uintptr_t kBiasAlignment = 16;  // Its epilogues load as much at once.
  const auto bias = reinterpret_cast<std::uintptr_t>(args.bias.data);  // A pointer, as a value.
  // To a result in bfloat16 the library adds no bias but such.
  const bool float_bias = bias != 0 && args.out.dtype == DType::kBf16;
  if (float_bias || bias % kBiasAlignment != 0 || !open_library(stream)) {
    return false;
  }
  stream.device().context().make_current();
  const std::size_t wanted = static_cast<std::size_t>(tuned(Tuned::kBlasWorkspaceMib)) << 20U;
  const std::size_t limit = stream.scratch_limit();
  const std::size_t most = std::min(wanted, limit > kept ? limit - kept : 0);
  const Plan& plan = plan_of(product_of(args, most), bias);
  if (!plan.usable) {
    return false;
  }
  std::byte* workspace = nullptr;
  if (plan.advice.workspaceSize > 0) {
    workspace = stream.scratch(kept + plan.advice.workspaceSize);
    if (workspace == nullptr) {
      return true;  // The stream has failed.
    }
    workspace += kept;
  }
  const CublasLtApi& api = library_->api();
  cublasStatus_t status = kBlasSuccess;
  if (args.bias.present()) {
    status =
        api.cublasLtMatmulDescSetAttribute(plan.product, kBlasBiasPointer, &bias, sizeof(bias));
  }
  const float one = 1.0F;
  const float added = args.residual.present() ? 1.0F : 0.0F;
  if (status == kBlasSuccess) {
    status = api.cublasLtMatmul(library_->handle(),
                                plan.product,
                                &one,
                                args.weight.data,
                                plan.weight,
                                args.x.data,
                                plan.x,
                                &added,
                                args.residual.present() ? args.residual.data : args.out.data,
                                plan.residual,
                                args.out.data,
                                plan.out,
                                &plan.advice.algo,
                                workspace,
                                plan.advice.workspaceSize,
                                stream.handle());
  }
  if (status != kBlasSuccess) {
    stream.fail({.code = Code::kUnavailable,
                 .message = "cuBLASLt: a product failed: status " + std::to_string(status)});
  }
  return true;
}

}  // namespace heddle::ops::cuda
