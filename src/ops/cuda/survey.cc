#include "ops/cuda/survey.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/tunables.h"
#include "device/cuda/cuda_device.h"
#include "ops/add_norm.h"
#include "ops/attention.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/products.h"
#include "ops/cuda/skinny.h"
#include "ops/exchange.h"
#include "ops/fused.h"
#include "ops/gated_delta.h"
#include "ops/gather_rows.h"
#include "ops/gelu_mul.h"
#include "ops/rescale.h"
#include "ops/rms_norm.h"
#include "ops/rope_append.h"
#include "ops/sigmoid_mul.h"
#include "ops/silu_mul.h"
#include "ops/wait.h"

namespace heddle::ops::cuda {
namespace {

/// What stands in for weights at most. A larger product, of heads of large vocabularies, is done as
/// the library advises.
constexpr std::size_t kStandInBytesMax = std::size_t{256} << 20U;

/// A survey that is under way.
struct Survey {
  Instant until{};
  device::Buffer weights{};
  bool refused = false;  ///< There is no memory for weights.
};

/// `args` over memory that stands in for the weight; none where there is no time or memory left.
std::optional<LinearArgs> stand_in(device::CudaStream& stream, LinearArgs args) {
  auto& survey = stream.attachment<Survey>();
  const auto bytes = static_cast<std::size_t>(args.weight.shape[0] * args.weight.shape[1] *
                                              dtype_size(args.weight.dtype));
  if (survey.refused || bytes > kStandInBytesMax || steady_now() >= survey.until) {
    return std::nullopt;
  }
  if (survey.weights.bytes() < bytes) {
    survey.weights = {};
    auto weights = stream.device().allocate(device::Place::kDevice, bytes);
    survey.refused = !weights;
    if (!weights) {
      return std::nullopt;
    }
    survey.weights = std::move(*weights);
  }
  args.weight.data = survey.weights.data();
  return args;
}

/// The time of the best way [ms], where the library does such products: of its own, and of our
/// skinny kernel where that is for so many tokens.
std::optional<float> survey_product(device::CudaStream& stream, const LinearArgs& args) {
  const bool plain = args.weight.dtype == DType::kBf16 || args.weight.dtype == DType::kF32;
  if (!plain || args.x.shape[0] <= tuned(Tuned::kThinBeforeBlas)) {
    return std::nullopt;
  }
  const auto over = stand_in(stream, args);
  if (!over) {
    return std::nullopt;
  }
  auto& blas = stream.attachment<Blas>();
  const std::optional<float> best =
      blas.choose(stream, args, over->weight.data, stream.attachment<Survey>().until);
  if (!best || !skinny_takes(args) || blas.own_is_faster(stream, args)) {
    return best;
  }
  const auto own = [&] { launch_plain(stream, *over); };
  own();
  const std::optional<float> took = stream.time(own);
  blas.settle_own(stream, args, took && *took < *best);
  return took ? std::min(*took, *best) : best;
}

void survey_linear(device::Stream& stream, const LinearArgs& args) {
  (void)survey_product(cuda_stream(stream), args);  // What it has chosen counts.
}

/// Also whether a product that gates at its end is faster than the library's and silu_mul.
bool survey_linear_silu(device::Stream& stream, const LinearSiluArgs& args) {
  device::CudaStream& cuda = cuda_stream(stream);
  const std::optional<float> product = survey_product(cuda, args.linear);
  const auto over = product ? stand_in(cuda, args.linear) : std::nullopt;
  if (!over || args.linear.weight.dtype != DType::kBf16) {
    return true;
  }
  const std::optional<float> gate =
      cuda.time([&] { silu_mul(stream, {.gate_up = args.linear.out, .out = args.out}); });
  const auto gated = [&] { launch_gated(cuda, {.linear = *over, .out = args.out}); };
  gated();
  const std::optional<float> own = cuda.time(gated);
  if (gate && own && *own < *product + *gate) {
    cuda.attachment<Blas>().prefer_gated(cuda, args.linear);
  }
  return true;
}

template <class Args>
void nothing(device::Stream& /*stream*/, const Args& /*args*/) {}

}  // namespace

const KernelTable* begin_survey(device::Stream& stream, Duration most) {
  device::CudaStream& cuda = cuda_stream(stream);
  if (tuned(Tuned::kBlasCandidates) < 2 || !cuda.attachment<Blas>().opens(cuda)) {
    return nullptr;
  }
  cuda.attachment<Survey>() = {.until = steady_now() + most};
  static const KernelTable kTable = [] {
    KernelTable table = cuda_kernels();
    table.add_norm = nothing<AddNormArgs>;
    table.all_gather = nothing<AllGatherArgs>;
    table.all_reduce = nothing<AllReduceArgs>;
    table.attention = nothing<AttentionArgs>;
    table.gated_delta = nothing<GatedDeltaArgs>;
    table.gather_rows = nothing<GatherRowsArgs>;
    table.gelu_mul = nothing<GeluMulArgs>;
    table.linear = survey_linear;
    table.linear_norm = nullptr;
    table.linear_silu = survey_linear_silu;
    table.rescale = nothing<RescaleArgs>;
    table.rms_norm = nothing<RmsNormArgs>;
    table.rope_append = nothing<RopeAppendArgs>;
    table.sigmoid_mul = nothing<SigmoidMulArgs>;
    table.silu_mul = nothing<SiluMulArgs>;
    table.wait = nothing<WaitArgs>;
    return table;
  }();
  return &kTable;
}

std::int64_t end_survey(device::Stream& stream) {
  device::CudaStream& cuda = cuda_stream(stream);
  cuda.attachment<Survey>() = {};
  return cuda.attachment<Blas>().take_timed();
}

}  // namespace heddle::ops::cuda
