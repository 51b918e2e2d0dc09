#include "ops/exchange.h"

#include <algorithm>
#include <span>

#include "base/div_up.h"
#include "base/tunables.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/kernels/exchange_params.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/staging.h"

namespace heddle::ops::cuda {
namespace {

static_assert(sizeof(ExchangeArea) <= PeerArea::kBytes);
static_assert(offsetof(ExchangeArea, given) <= PeerArea::kZeroBytes);
static_assert(static_cast<std::size_t>(kExchangeRanks) == PeerArea::kRanksMax);

/// Has `exchange` change a copy of `data` that host code can use, and brings it back. All ranks
/// meet there whatever their devices are.
template <class Exchange>
void on_host(device::CudaStream& stream, const TensorRef& data, const Exchange& exchange) {
  const auto count = static_cast<std::size_t>(data.shape[0] * data.shape[1]);
  const std::size_t bytes = count * sizeof(float);
  std::byte* const staged = stream.attachment<Staging>().memory(stream, bytes);
  if (staged == nullptr) {
    return;
  }
  stream.copy(staged, data.data, bytes);
  Result<void> done = stream.synchronize();
  if (done) {
    done = exchange(std::span<float>(reinterpret_cast<float*>(staged), count));
  }
  if (!done) {
    stream.fail(done.error());
    return;
  }
  stream.copy(data.data, staged, bytes);
}

ExchangeGroup group_of(const PeerArea& peers) {
  ExchangeGroup group{.areas = {},
                      .abandoned = peers.abandoned,
                      .rank = static_cast<std::int32_t>(peers.rank),
                      .ranks = static_cast<std::int32_t>(peers.ranks)};
  for (std::size_t rank = 0; rank < PeerArea::kRanksMax; ++rank) {
    group.areas[rank] = reinterpret_cast<ExchangeArea*>(peers.memory[rank]);
  }
  return group;
}

/// Blocks for so many floats of a rank: the same on all ranks.
device::LaunchShape shape_of(std::int64_t floats) {
  const std::int64_t blocks = div_up(floats, std::int64_t{4 * kExchangeThreads});
  return {.grid = {static_cast<std::uint32_t>(
              std::clamp(blocks, std::int64_t{1}, std::int64_t{kExchangeBlocks}))},
          .block = {kExchangeThreads}};
}

}  // namespace

void all_reduce(device::Stream& stream, const AllReduceArgs& args) {
  device::CudaStream& cuda = cuda_stream(stream);
  if (args.peers == nullptr) {
    on_host(cuda, args.data, [&](std::span<float> data) { return args.group->all_reduce(data); });
    return;
  }
  const std::int64_t count = args.data.shape[0] * args.data.shape[1];
  if (count == 0) {
    return;
  }
  // Of two ranks, each reads as much either way.
  const bool two_shot = args.peers->ranks > 2 && count * static_cast<std::int64_t>(sizeof(float)) >
                                                     tuned(Tuned::kOneShotKib) << 10;
  cuda.launch(kernel("heddle_all_reduce"),
              shape_of(count),
              AllReduceParams{.group = group_of(*args.peers),
                              .data = args.data.as<float>(),
                              .count = count,
                              .quads = moves_by(4, args.data.data, DType::kF32, count),
                              .two_shot = two_shot});
}

void all_gather(device::Stream& stream, const AllGatherArgs& args) {
  device::CudaStream& cuda = cuda_stream(stream);
  if (args.peers == nullptr) {
    on_host(cuda, args.data, [&](std::span<float> data) {
      return args.group->all_gather(data, *args.ends);
    });
    return;
  }
  AllGatherParams params{.group = group_of(*args.peers),
                         .data = args.data.as<float>(),
                         .rows = args.data.shape[0],
                         .columns = static_cast<std::int32_t>(args.data.shape[1]),
                         .ends = {},
                         .widest = 0};
  std::int64_t begin = 0;
  std::int64_t widest = 0;
  for (std::size_t rank = 0; rank < args.ends->size(); ++rank) {
    const std::int64_t end = (*args.ends)[rank];
    params.ends[rank] = static_cast<std::int32_t>(end);
    widest = std::max(widest, end - begin);
    begin = end;
  }
  params.widest = static_cast<std::int32_t>(widest);
  if (params.rows * widest > 0) {
    cuda.launch(kernel("heddle_all_gather"), shape_of(params.rows * widest), params);
  }
}

}  // namespace heddle::ops::cuda
