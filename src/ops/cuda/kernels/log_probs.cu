#include "ops/cuda/kernels/log_probs_params.h"
#include "ops/cuda/kernels/row.cuh"

namespace heddle::ops::cuda {

/// Of the likeliest tokens, and of doubles on their way to a sum.
struct LogProbsShared {
  RowShared row;
  double partial[kRowThreadsMax / 32];
  int likely[kLogProbsTopMax];
  int count;
};

/// log(sum(exp(logits))), in all threads: in the order of a thread's tokens, of the lanes' tree, of
/// the warps.
__device__ inline double log_total(LogProbsShared& shared, const Row& row, float largest) {
  double sum = 0.0;
  for (int token = thread_index(); token < row.vocab; token += thread_count()) {
    sum += static_cast<double>(expf(row.logits[token] - largest));  // As sample.cu, in float.
  }
  sum = warp_sum(sum);
  if (thread_index() % 32 == 0) {
    shared.partial[thread_index() / 32] = sum;
  }
  __syncthreads();
  sum = 0.0;
  for (int warp = 0; warp < thread_count() / 32; ++warp) {
    sum += shared.partial[warp];
  }
  return static_cast<double>(largest) + log(sum);
}

/// Leaves the `top` likeliest tokens in `shared.likely`, in any order, and their number.
__device__ inline void find_likely(LogProbsShared& shared, const Row& row, float largest, int top) {
  const Cut cut = most_likely(
      shared.row,
      row,
      largest,
      [](int, float) { return Sum{1}; },
      [top](Sum) { return static_cast<Sum>(top); });
  if (thread_index() == 0) {
    shared.count = 0;
  }
  __syncthreads();
  for (int token = thread_index(); token < row.vocab; token += thread_count()) {
    if (cut.keeps(token, row.logits[token])) {
      const int place = atomicAdd(&shared.count, 1);
      if (place < kLogProbsTopMax) {
        shared.likely[place] = token;
      }
    }
  }
  __syncthreads();
}

/// Whether token `a` stands before `b`.
__device__ inline bool before(const Row& row, int a, int b) {
  return row.logits[a] != row.logits[b] ? row.logits[a] > row.logits[b] : a < b;
}

}  // namespace heddle::ops::cuda

HEDDLE_KERNEL(heddle_log_probs,
              heddle::ops::cuda::LogProbsParams,
              heddle::ops::cuda::kRowThreadsMax) {
  using namespace heddle::ops;
  using namespace heddle::ops::cuda;
  __shared__ LogProbsShared shared;
  const LogProbRow asked = params.rows[blockIdx.x];
  const int choice = params.choices[asked.choice];
  std::int32_t* tokens = params.tokens + blockIdx.x * kLogProbsWidth;
  float* values = params.log_probs + blockIdx.x * kLogProbsWidth;
  for (int i = thread_index(); i < kLogProbsWidth; i += thread_count()) {
    tokens[i] = -1;
  }
  if (choice < 0) {
    return;
  }
  const Row row{.logits = params.logits + blockIdx.x * params.stride, .vocab = params.vocab};
  const int likeliest = largest_token(shared.row, row);
  if (likeliest < 0) {
    return;  // A NaN, from which no choice comes.
  }
  const float largest = row.logits[likeliest];
  const double total = log_total(shared, row, largest);
  const auto tell = [&](std::int64_t place, int token) {
    tokens[place] = token;
    values[place] = static_cast<float>(static_cast<double>(row.logits[token]) - total);
  };
  if (thread_index() == 0) {
    tell(0, choice);
  }
  const int top = asked.top < kLogProbsTopMax ? asked.top : kLogProbsTopMax;
  if (top <= 0) {
    return;
  }
  find_likely(shared, row, largest, top);
  const int count = shared.count < top ? shared.count : top;
  for (int i = thread_index(); i < count; i += thread_count()) {
    int place = 1;
    for (int j = 0; j < count; ++j) {
      place += before(row, shared.likely[j], shared.likely[i]) ? 1 : 0;
    }
    tell(place, shared.likely[i]);
  }
}
