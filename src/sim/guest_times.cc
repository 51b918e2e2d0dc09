#include "sim/guest_times.h"

#include <algorithm>
#include <utility>

#include "sim/guest_stall.h"

namespace heddle::sim {
namespace {

using namespace std::chrono_literals;

/// Of norms, rotations and activations.
constexpr Duration kSmallKernel = 3us;
constexpr std::int64_t kSmallPerLayer = 8;
/// A message between GPUs of one server.
constexpr Duration kMessage = 2us;
/// Of the hot iteration, how much stalling is borne (WEAVER, Algorithm 1).
constexpr std::int64_t kStallPart = 20;

std::int64_t picoseconds(Duration time) {
  return time.count() * 1000;
}

/// The pieces of all kernels once they are split.
std::vector<Duration> pieces_of(std::span<const Duration> kernels,
                                const SplitPlan& plan,
                                Duration overhead) {
  std::vector<Duration> pieces;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const std::int64_t count = plan.pieces[i];
    const Duration piece = kernels[i] / count + overhead * 2 * (count - 1) / count;
    pieces.insert(pieces.end(), static_cast<std::size_t>(count), piece);
  }
  return pieces;
}

}  // namespace

std::vector<Duration> step_kernels(const ModelShape& shape, Duration step) {
  std::vector<Duration> kernels;
  if (step <= Duration{}) {
    return kernels;
  }
  const std::int64_t per_head = shape.hidden * shape.head_dim;
  const std::vector<std::int64_t> products{per_head * (shape.heads + 2 * shape.kv_heads),
                                           per_head * shape.heads,
                                           2 * shape.hidden * shape.intermediate,
                                           shape.hidden * shape.intermediate};
  const std::int64_t head = shape.hidden * shape.vocab;
  const std::int64_t weights = shape.layers * linear_parameters(shape) + head;
  const Duration small = std::min(kSmallKernel, step / (2 * kSmallPerLayer * shape.layers));
  const Duration rest = step - kSmallPerLayer * shape.layers * small;
  const auto share = [&](std::int64_t parameters) {
    const double part = static_cast<double>(parameters) / static_cast<double>(weights);
    return std::max(Duration(1), from_seconds(to_seconds(rest) * part));
  };
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    for (const std::int64_t product : products) {
      kernels.push_back(share(product));
    }
    kernels.insert(kernels.end(), kSmallPerLayer, std::max(Duration(1), small));
  }
  kernels.push_back(share(head));
  return kernels;
}

GuestTimes guest_times(const GuestPair& pair) {
  const SplitOptions options{.calls = pair.hot.layers, .threshold = pair.hot_step / kStallPart};
  const Duration slack = pair.home - pair.away;
  std::vector<Duration> kernels(pair.kernels.begin(), pair.kernels.end());
  GuestTimes times;
  if (pair.split && !pair.first_positions && !kernels.empty()) {
    Duration whole{};
    for (const Duration kernel : kernels) {
      whole += kernel;
    }
    // Where attention away takes longer anyway, the wait for a kernel comes on top of that.
    const SplitPlan plan = plan_splits(kernels, std::max(slack, Duration(1)), options);
    times.host_overhead = plan.iteration - whole;
    kernels = pieces_of(kernels, plan, options.overhead);
  }
  if (!pair.first_positions) {
    times.host_overhead += static_cast<std::int64_t>(kernels.size()) * pair.poll;
  }
  const auto stall = [&kernels](Duration with) {
    return expected_stall(kernels, with, StallForm::kCorrected);
  };
  const std::int64_t kv_heads = pair.first_positions ? 0 : pair.hot.kv_heads;
  const auto bytes =
      static_cast<double>(offload_bytes(1, pair.hot.heads, kv_heads, pair.hot.head_dim, 2));
  const auto token = static_cast<double>(kv_bytes_per_token(pair.hot));
  times.hot = {.per_layer_ps = picoseconds(kMessage + stall(Duration{})),
               .stall_ps = picoseconds(stall(std::max(slack, Duration{}))),
               .per_sequence_ps = static_cast<std::int64_t>(bytes / pair.link * 1e12),
               .context_ps = pair.context_ps,
               .move_ps = static_cast<std::int64_t>(token / pair.link * 1e12)};
  return times;
}

}  // namespace heddle::sim
