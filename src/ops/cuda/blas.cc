#include "ops/cuda/blas.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
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

std::string_view dtype_name_of(int type) {
  return spec::dtype_name(type == kBlasE4M3   ? DType::kF8
                          : type == kBlasBf16 ? DType::kBf16
                                              : DType::kF32);
}

/// Runs of a way that is timed.
constexpr int kTimedTurns = 2;

std::uintptr_t address_of(const ConstTensorRef& tensor) {
  return reinterpret_cast<std::uintptr_t>(tensor.data);  // 0: it is absent.
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

bool Blas::opens(device::CudaStream& stream) {
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

Blas::Product Blas::product_of(const device::CudaStream& stream,
                               const LinearArgs& args,
                               std::size_t kept) {
  const std::size_t wanted = static_cast<std::size_t>(tuned(Tuned::kBlasWorkspaceMib)) << 20U;
  const std::size_t limit = stream.scratch_limit();
  return {.tokens = args.x.shape[0],
          .outputs = args.weight.shape[0],
          .inputs = args.weight.shape[1],
          .x_stride = args.x.stride[0],
          .residual_stride = args.residual.present() ? args.residual.stride[0] : 0,
          .out_stride = args.out.stride[0],
          .workspace = std::min(wanted, limit > kept ? limit - kept : 0),
          .type = args.weight.dtype == DType::kF8     ? kBlasE4M3
                  : args.weight.dtype == DType::kBf16 ? kBlasBf16
                                                      : kBlasFloat,
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
Blas::Plan Blas::describe(const Product& product, std::uintptr_t bias) {
  const CublasLtApi& api = library_->api();
  const int out = product.out_bf16 ? kBlasBf16 : kBlasFloat;
  const std::int64_t c_stride =
      product.residual_stride != 0 ? product.residual_stride : product.out_stride;
  const auto layout = [&](int of, std::int64_t rows, std::int64_t columns, std::int64_t stride) {
    return made(api.cublasLtMatrixLayoutCreate, of, rows, columns, std::max(stride, rows));
  };
  Plan plan{.product = made(api.cublasLtMatmulDescCreate, kBlasCompute32F, kBlasFloat),
            .weight = layout(product.type, product.inputs, product.outputs, product.inputs),
            .x = layout(product.type, product.inputs, product.tokens, product.x_stride),
            .residual = layout(out, product.outputs, product.tokens, c_stride),
            .out = layout(out, product.outputs, product.tokens, product.out_stride)};
  const auto set = [&](int attribute, const auto& value) {
    return api.cublasLtMatmulDescSetAttribute(plan.product, attribute, &value, sizeof(value)) ==
           kBlasSuccess;
  };
  plan.described = plan.product != nullptr && plan.weight != nullptr && plan.x != nullptr &&
                   plan.residual != nullptr && plan.out != nullptr &&
                   set(kBlasTransA, kBlasTransposed) && set(kBlasTransB, kBlasNormal) &&
                   set(kBlasEpilogue, product.bias ? kBlasEpilogueBias : kBlasEpilogueNone) &&
                   (!product.bias || set(kBlasBiasPointer, bias));
  return plan;
}

/// At most so many ways to do what a plan describes, the most promising first.
std::vector<Blas::Advice> Blas::advice_for(const Product& product,
                                           const Plan& plan,
                                           std::int64_t most) {
  const CublasLtApi& api = library_->api();
  void* preference = plan.described ? made(api.cublasLtMatmulPreferenceCreate) : nullptr;
  if (preference == nullptr) {
    return {};
  }
  const auto set = [&](int attribute, const auto& value) {
    return api.cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)) ==
           kBlasSuccess;
  };
  std::vector<Advice> advice(static_cast<std::size_t>(most));
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
                                         static_cast<int>(most),
                                         advice.data(),
                                         &found) == kBlasSuccess;
  (void)api.cublasLtMatmulPreferenceDestroy(preference);
  advice.resize(advised ? static_cast<std::size_t>(found) : 0);
  std::erase_if(advice, [&](const Advice& one) {
    return one.state != kBlasSuccess || one.workspaceSize > product.workspace;
  });
  return advice;
}

/// What was chosen, or else is advised first.
void Blas::take_advice(const Product& product, Plan& plan) {
  if (const auto choice = chosen_.find(product); choice != chosen_.end()) {
    plan.advice = choice->second.advice;
    plan.usable = plan.described;
    return;
  }
  const std::vector<Advice> advice = advice_for(product, plan, 1);
  plan.usable = !advice.empty();
  if (plan.usable) {
    plan.advice = advice.front();
  }
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
  Plan plan = describe(product, bias);
  take_advice(product, plan);
  return plans_.emplace(product, plan).first->second;
}

bool Blas::does(const LinearArgs& args) {
  constexpr std::uintptr_t kBiasAlignment = 16;  // Its epilogues load as much at once.
  // To a result in bfloat16 the library adds no bias but such.
  const bool float_bias = args.bias.present() && args.out.dtype == DType::kBf16;
  return !float_bias && address_of(args.bias) % kBiasAlignment == 0;
}

/// Fails the stream where there is no workspace.
cublasStatus_t Blas::enqueue(device::CudaStream& stream,
                             const LinearArgs& args,
                             const std::byte* weight,
                             const Plan& plan,
                             const Advice& advice,
                             std::size_t kept) {
  std::byte* workspace = nullptr;
  if (advice.workspaceSize > 0) {
    workspace = stream.scratch(kept + advice.workspaceSize);
    if (workspace == nullptr) {
      return kBlasSuccess;  // The stream has failed.
    }
    workspace += kept;
  }
  const CublasLtApi& api = library_->api();
  const std::uintptr_t bias = address_of(args.bias);
  if (args.bias.present()) {
    if (const cublasStatus_t status =
            api.cublasLtMatmulDescSetAttribute(plan.product, kBlasBiasPointer, &bias, sizeof(bias));
        status != kBlasSuccess) {
      return status;
    }
  }
  const float one = 1.0F;
  const float added = args.residual.present() ? 1.0F : 0.0F;
  return api.cublasLtMatmul(library_->handle(),
                            plan.product,
                            &one,
                            weight,
                            plan.weight,
                            args.x.data,
                            plan.x,
                            &added,
                            args.residual.present() ? args.residual.data : args.out.data,
                            plan.residual,
                            args.out.data,
                            plan.out,
                            &advice.algo,
                            workspace,
                            advice.workspaceSize,
                            stream.handle());
}

bool Blas::takes(device::CudaStream& stream, const LinearArgs& args, std::size_t kept) {
  if (!does(args) || !opens(stream)) {
    return false;
  }
  stream.device().context().make_current();
  return plan_of(product_of(stream, args, kept), address_of(args.bias)).usable;
}

void Blas::tell_of(const Product& product) {
  if (!std::exchange(told_, true)) {
    log::warning("cuBLASLt has nothing for a product, and maybe for others: our own kernels do it",
                 {{"tokens", product.tokens},
                  {"outputs", product.outputs},
                  {"inputs", product.inputs},
                  {"type", dtype_name_of(product.type)}});
  }
}

bool Blas::multiply(device::CudaStream& stream, const LinearArgs& args, std::size_t kept) {
  if (!does(args) || !opens(stream)) {
    return false;
  }
  stream.device().context().make_current();
  const Product product = product_of(stream, args, kept);
  const Plan& plan = plan_of(product, address_of(args.bias));
  if (!plan.usable) {
    tell_of(product);
    return false;
  }
  if (const cublasStatus_t status =
          enqueue(stream, args, args.weight.data, plan, plan.advice, kept);
      status != kBlasSuccess) {
    stream.fail({.code = Code::kUnavailable,
                 .message = "cuBLASLt: a product failed: status " + std::to_string(status)});
  }
  return true;
}

std::optional<float> Blas::choose(device::CudaStream& stream,
                                  const LinearArgs& args,
                                  const std::byte* weight,
                                  Instant until) {
  if (!does(args) || !opens(stream)) {
    return std::nullopt;
  }
  const Product product = product_of(stream, args);
  if (const auto known = chosen_.find(product); known != chosen_.end()) {
    return known->second.took;
  }
  if (plans_.contains(product)) {
    return std::nullopt;  // Its results stay what they are.
  }
  stream.device().context().make_current();
  const Plan plan = describe(product, address_of(args.bias));
  std::optional<Choice> best;
  for (const Advice& advice : advice_for(product, plan, tuned(Tuned::kBlasCandidates))) {
    if (best && steady_now() >= until) {
      break;
    }
    const auto run = [&] { return enqueue(stream, args, weight, plan, advice); };
    if (run() != kBlasSuccess) {  // Loads its kernel.
      continue;
    }
    const auto took = stream.time([&] {
      for (int turn = 0; turn < kTimedTurns; ++turn) {
        (void)run();  // It has run before.
      }
    });
    ++timed_;
    if (took && (!best || *took / kTimedTurns < best->took)) {
      best = Choice{.advice = advice, .took = *took / kTimedTurns};
    }
  }
  drop(plan);
  if (!best) {
    return std::nullopt;
  }
  chosen_.emplace(product, *best);
  return best->took;
}

void Blas::prefer_gated(device::CudaStream& stream, const LinearArgs& args) {
  gated_.insert(product_of(stream, args));
}

bool Blas::prefers_gated(device::CudaStream& stream, const LinearArgs& args) const {
  return gated_.contains(product_of(stream, args));
}

void Blas::settle_own(device::CudaStream& stream, const LinearArgs& args, bool faster) {
  own_.emplace(product_of(stream, args), faster);
}

std::optional<bool> Blas::own_is_faster(device::CudaStream& stream, const LinearArgs& args) const {
  const auto settled = own_.find(product_of(stream, args));
  return settled == own_.end() ? std::nullopt : std::optional(settled->second);
}

}  // namespace heddle::ops::cuda
