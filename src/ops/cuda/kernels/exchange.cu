#include "ops/cuda/kernels/elements.cuh"
#include "ops/cuda/kernels/exchange_params.h"

/// Exchanges of ranks whose memory all reach. A block goes in rounds: it puts its numbers where the
/// others read them, tells who has its channel there that they are there, waits for theirs, and
/// reads. What it gives alternates between two places, so that one is read while the other is
/// filled: it comes back to a place when all have told that they are a round further. Sums are in
/// the order of ranks, so that all ranks have the same bits, and the same again.
namespace heddle::ops::cuda {
namespace {

/// Looks at the host's memory, which is far, once in so many looks at a flag.
constexpr int kLooksBetween = 256;

/// The block's channel. All threads call it once; `shared` is shared memory.
__device__ __forceinline__ std::uint32_t take_channel(const ExchangeGroup& group,
                                                      std::uint32_t& shared) {
  std::uint32_t* const channels = &group.areas[group.rank]->channels;
  if (threadIdx.x == 0) {
    shared = atomicAdd(channels, 1U);
    if (shared == gridDim.x - 1) {
      *channels = 0;
    }
  }
  __syncthreads();
  return shared;
}

/// A block's meetings with those of the other ranks that have its channel. All threads call what is
/// here.
class Meeting {
 public:
  __device__ Meeting(const ExchangeGroup& group, std::uint32_t channel)
      : group_(group), channel_(channel), turn_(group.areas[group.rank]->turns[channel]) {}

  /// Where the block of a rank gives, and sums, in this round.
  __device__ float* given(std::int32_t rank) const {
    return group_.areas[rank]->given[place()][channel_];
  }
  __device__ float* sums(std::int32_t rank) const {
    return group_.areas[rank]->sums[place()][channel_];
  }

  /// Returns when all ranks' blocks have come so far, and sees what they wrote: after the numbers
  /// are given (1) and after parts are summed (2).
  __device__ void meet(std::uint32_t stage) const {
    const auto other = static_cast<std::int32_t>(threadIdx.x);
    const bool has_other = other < group_.ranks && other != group_.rank;
    __syncthreads();
    if (has_other) {
      __threadfence_system();
      tell(&group_.areas[other]->flags[group_.rank][channel_], turn_ + stage);
    }
    __syncthreads();  // All are told before anybody waits.
    if (has_other) {
      await(&group_.areas[group_.rank]->flags[other][channel_], turn_ + stage);
      __threadfence_system();
    }
    __syncthreads();
  }
  __device__ void end_round() { turn_ += 2; }
  /// After the last round.
  __device__ void leave() const {
    if (threadIdx.x == 0) {
      group_.areas[group_.rank]->turns[channel_] = turn_;
    }
  }

 private:
  __device__ std::uint32_t place() const { return turn_ / 2 % 2; }
  __device__ static void tell(volatile std::uint32_t* flag, std::uint32_t turn) { *flag = turn; }
  __device__ void await(const volatile std::uint32_t* flag, std::uint32_t turn) const {
    const volatile std::uint32_t* abandoned = group_.abandoned;
    for (int looks = 1; static_cast<std::int32_t>(*flag - turn) < 0; ++looks) {
      if (looks % kLooksBetween == 0 && (*abandoned & 1U) != 0) {
        return;
      }
      pause_waiting();
    }
  }

  const ExchangeGroup& group_;
  std::uint32_t channel_;
  std::uint32_t turn_;
};

/// A channel's share of `count` items, in whole quads.
struct Share {
  std::int64_t begin;
  std::int64_t end;

  __device__ Share(std::int64_t count, std::uint32_t channel) {
    const std::int64_t quads = (count + kQuad - 1) / kQuad;
    const std::int64_t each = (quads + gridDim.x - 1) / gridDim.x * kQuad;
    begin = min(count, channel * each);
    end = min(count, begin + each);
  }
};

__device__ __forceinline__ float4 plus(const float4& a, const float4& b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

/// out_i = f(i) of [0, n), by the threads of the block.
template <class F, class F4>
__device__ __forceinline__ void fill(
    float* out, std::int32_t n, bool quads, const F& f, const F4& f4) {
  fill_row(out, n, quads, threadIdx.x, blockDim.x, f, f4);
}
__device__ __forceinline__ void copy(float* out, const float* from, std::int32_t n, bool quads) {
  fill(
      out,
      n,
      quads,
      [&](std::int64_t i) { return from[i]; },
      [&](std::int64_t i) { return load_quad(from, i); });
}

/// The sums of what all ranks have given, from number `first` on.
__device__ __forceinline__ void sum(const AllReduceParams& params,
                                    const Meeting& meeting,
                                    float* out,
                                    std::int32_t first,
                                    std::int32_t n) {
  fill(
      out,
      n,
      params.quads != 0,
      [&](std::int64_t i) {
        float total = meeting.given(0)[first + i];
        for (std::int32_t rank = 1; rank < params.group.ranks; ++rank) {
          total += meeting.given(rank)[first + i];
        }
        return total;
      },
      [&](std::int64_t i) {
        float4 total = load_quad(meeting.given(0), first + i);
        for (std::int32_t rank = 1; rank < params.group.ranks; ++rank) {
          total = plus(total, load_quad(meeting.given(rank), first + i));
        }
        return total;
      });
}

/// Each rank sums a part of the `n` numbers that all have given, and has the others' from them.
__device__ __forceinline__ void sum_parts(const AllReduceParams& params,
                                          const Meeting& meeting,
                                          float* out,
                                          std::int32_t n) {
  const std::int32_t ranks = params.group.ranks;
  const std::int32_t each = (n / ranks + kQuad) / kQuad * kQuad;
  const auto first_of = [&](std::int32_t rank) { return min(n, rank * each); };
  const auto count_of = [&](std::int32_t rank) { return first_of(rank + 1) - first_of(rank); };
  const std::int32_t own = params.group.rank;
  sum(params, meeting, meeting.sums(own), first_of(own), count_of(own));
  meeting.meet(2);
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    copy(out + first_of(rank), meeting.sums(rank), count_of(rank), params.quads != 0);
  }
}

}  // namespace

HEDDLE_KERNEL(heddle_all_reduce, AllReduceParams, kExchangeThreads) {
  __shared__ std::uint32_t shared;
  const std::uint32_t channel = take_channel(params.group, shared);
  Meeting meeting(params.group, channel);
  const Share share(params.count, channel);
  for (std::int64_t first = share.begin; first < share.end; first += kExchangeFloats) {
    const auto n = static_cast<std::int32_t>(min(share.end - first, std::int64_t{kExchangeFloats}));
    float* data = params.data + first;
    copy(meeting.given(params.group.rank), data, n, params.quads != 0);
    meeting.meet(1);
    if (params.two_shot != 0) {
      sum_parts(params, meeting, data, n);
    } else {
      sum(params, meeting, data, 0, n);
    }
    meeting.end_round();
  }
  meeting.leave();
}

HEDDLE_KERNEL(heddle_all_gather, AllGatherParams, kExchangeThreads) {
  __shared__ std::uint32_t shared;
  const std::uint32_t channel = take_channel(params.group, shared);
  Meeting meeting(params.group, channel);
  const Share share(params.rows * params.widest, channel);
  for (std::int64_t first = share.begin; first < share.end; first += kExchangeFloats) {
    const std::int64_t until = min(share.end, first + kExchangeFloats);
    // Calls move(number of the round, place in the matrix) for what a rank has of these.
    const auto each = [&](std::int32_t rank, const auto& move) {
      const std::int32_t begin = rank == 0 ? 0 : params.ends[rank - 1];
      const std::int32_t width = params.ends[rank] - begin;
      const std::int64_t end = min(until, params.rows * width);
      for (std::int64_t i = first + threadIdx.x; i < end; i += blockDim.x) {
        const std::int64_t row = i / width;
        move(i - first, row * params.columns + begin + (i - row * width));
      }
    };
    float* given = meeting.given(params.group.rank);
    each(params.group.rank,
         [&](std::int64_t i, std::int64_t place) { given[i] = params.data[place]; });
    meeting.meet(1);
    for (std::int32_t rank = 0; rank < params.group.ranks; ++rank) {
      if (rank != params.group.rank) {
        const float* theirs = meeting.given(rank);
        each(rank, [&](std::int64_t i, std::int64_t place) { params.data[place] = theirs[i]; });
      }
    }
    meeting.end_round();
  }
  meeting.leave();
}

}  // namespace heddle::ops::cuda
