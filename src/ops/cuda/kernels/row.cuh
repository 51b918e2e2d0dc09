#pragma once

#include <cstdint>

#include "ops/cuda/kernels/row_threads.h"
#include "ops/cuda/kernels/warp.cuh"

/// What one block finds out about one row of logits. All sums are of whole numbers, so that they
/// are exact and the same in whatever order threads add them.
namespace heddle::ops::cuda {

using Sum = unsigned long long;

constexpr int kRowBinBits = 11;
constexpr int kRowBins = 1 << kRowBinBits;

/// Sums of bins. Shared memory adds 32 bits by itself, but 64 only by trying until nobody else
/// did: so a sum is two numbers, and what the lower one carries is added to the upper.
struct RowBins {
  std::uint32_t low[kRowBins];
  std::uint32_t high[kRowBins];

  __device__ void clear(int bin) {
    low[bin] = 0;
    high[bin] = 0;
  }
  __device__ void add(int bin, Sum amount) {
    const auto added = static_cast<std::uint32_t>(amount);
    const std::uint32_t before = atomicAdd(&low[bin], added);
    const auto carried = static_cast<std::uint32_t>(amount >> 32U) + (before + added < before);
    if (carried != 0) {
      atomicAdd(&high[bin], carried);
    }
  }
  __device__ Sum sum(int bin) const { return static_cast<Sum>(high[bin]) << 32U | low[bin]; }
};

/// A token of the bin in which a cut falls.
struct Candidate {
  Sum amount;
  std::uint32_t key;
  std::int32_t token;
};
constexpr int kCandidatesMax = 512;

/// Shared memory of the functions below. None of them leaves something in it for another.
struct RowShared {
  union {
    RowBins bins;
    Candidate candidates[kCandidatesMax];
  };
  Sum warps[kRowThreadsMax / 32];
  int found;  ///< Candidates, also those that there is no room for.
  Candidate last;
};

/// A row, and which of its tokens count.
struct Row {
  const float* logits = nullptr;
  const std::uint32_t* mask = nullptr;  ///< Bit i % 32 of word i / 32; nullptr: all.
  int vocab = 0;

  __device__ bool allows(int token) const {
    return mask == nullptr || ((mask[token / 32] >> (token % 32)) & 1U) != 0;
  }
};

/// Unsigned integers in the order of the floats; 0 and -0, which are equal, have the same.
__device__ inline std::uint32_t order_key(float logit) {
  const std::uint32_t bits = float_bits(logit == 0.0F ? 0.0F : logit);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

__device__ inline int thread_index() {
  return static_cast<int>(threadIdx.x);
}
__device__ inline int thread_count() {
  return static_cast<int>(blockDim.x);
}

/// The largest of what the threads have, in all threads.
__device__ inline Sum block_largest(RowShared& shared, Sum value) {
  for (unsigned mask = kWarpThreads / 2; mask > 0; mask /= 2) {
    const Sum other = shuffle_xor(value, mask);
    value = other > value ? other : value;
  }
  if (thread_index() % 32 == 0) {
    shared.warps[thread_index() / 32] = value;
  }
  __syncthreads();
  for (int warp = 0; warp < thread_count() / 32; ++warp) {
    value = shared.warps[warp] > value ? shared.warps[warp] : value;
  }
  __syncthreads();
  return value;
}

/// The allowed token with the largest logit, lowest id on ties; -1 where none is allowed or any
/// logit is a NaN.
__device__ inline int largest_token(RowShared& shared, const Row& row) {
  Sum best = 0;  // Key above, id below, the latter so that the lowest is the largest.
  bool nan = false;
  for (int token = thread_index(); token < row.vocab; token += thread_count()) {
    const float logit = row.logits[token];
    nan = nan || logit != logit;
    const Sum candidate =
        static_cast<Sum>(order_key(logit)) << 32U | (0xffffffffU - static_cast<unsigned>(token));
    best = row.allows(token) && candidate > best ? candidate : best;
  }
  best = block_largest(shared, nan ? ~Sum{0} : best);
  const bool none = best == 0 || best == ~Sum{0};
  return none ? -1 : static_cast<int>(0xffffffffU - static_cast<unsigned>(best & 0xffffffffU));
}

/// Where a running sum goes beyond something.
struct Place {
  int index = 0;   ///< `count` where it never does.
  Sum before = 0;  ///< The sum of what stands before it.
};

/// Of `count` things, in order, the first with which the running sum of measure(i) exceeds
/// goal(total). Every warp sums a part, the part in which it happens is cut again, so that it takes
/// two warps. The same in all threads.
template <class Measure, class Goal>
__device__ Place first_beyond(RowShared& shared, int count, Measure measure, Goal goal_of) {
  const int warps = thread_count() / 32;
  const int warp = thread_index() / 32;
  Place place{.index = 0, .before = 0};
  Sum goal = 0;
  int end = count;
  bool first = true;
  while (true) {
    const int part = (end - place.index + warps - 1) / warps;
    const int part_begin = place.index + warp * part;
    const int part_end = part_begin + part < end ? part_begin + part : end;
    Sum sum = 0;
    for (int i = part_begin + thread_index() % 32; i < part_end; i += 32) {
      sum += measure(i);
    }
    sum = warp_sum(sum);
    if (thread_index() % 32 == 0) {
      shared.warps[warp] = sum;
    }
    __syncthreads();
    if (first) {
      Sum total = 0;
      for (int w = 0; w < warps; ++w) {
        total += shared.warps[w];
      }
      goal = goal_of(total);
      if (total <= goal) {
        __syncthreads();
        return {.index = count, .before = total};
      }
      first = false;
    }
    int w = 0;
    while (place.before + shared.warps[w] <= goal) {
      place.before += shared.warps[w];
      ++w;
    }
    __syncthreads();
    place.index += w * part;
    end = place.index + part < end ? place.index + part : end;
    if (part == 1) {
      return place;
    }
  }
}

/// The most likely tokens of a row: those with larger logits than one, and some that equal it.
struct Cut {
  std::uint32_t key = 0;           ///< order_key of that one.
  std::int32_t last = 0x7fffffff;  ///< Of those that equal it, ids up to this one.

  __device__ bool keeps(int token, float logit) const {
    const std::uint32_t its = order_key(logit);
    return its > key || (its == key && token <= last);
  }
};

/// Bins of about equal width in logits, the likeliest first: most logits lie within a few units of
/// each other, where their bits as they stand would crowd into few bins. Monotone in the logit;
/// negative for some that are larger than `largest`.
__device__ inline int gap_bin(float largest, float logit) {
  constexpr float kBinsPerUnit = 64.0F;
  return static_cast<int>(fmaxf(fminf((largest - logit) * kBinsPerUnit, kRowBins - 1.0F), -1.0F));
}

/// Calls visit(token, exists) for all tokens of a row, with all lanes of a warp together.
template <class Visit>
__device__ void visit_together(const Row& row, Visit visit) {
  const int lane = static_cast<int>(lane_index());
  for (int first = thread_index() - lane; first < row.vocab; first += thread_count()) {
    visit(first + lane, first + lane < row.vocab);
  }
}

/// Adds `amount` of each lane to its bin, 0 for nothing: at once, where many lanes of the warp have
/// the same bin. Most tokens of a vocabulary are in the last one.
__device__ inline void add_together(RowBins& bins, int bin, Sum amount) {
  constexpr int kWorthASum = 8;
  const unsigned some = warp_ballot(amount != 0);
  if (some == 0) {
    return;
  }
  const int first = shuffle(bin, lowest_bit(some));
  const bool common = amount != 0 && bin == first;
  if (count_bits(warp_ballot(common)) >= kWorthASum) {
    const Sum sum = warp_sum(common ? amount : Sum{0});
    amount = !common ? amount : lane_index() == lowest_bit(some) ? sum : 0;
  }
  if (amount != 0) {
    bins.add(bin, amount);
  }
}

/// Whether the tokens of gap bin `gap` are few, and then where among them `need`, which they reach
/// together, is reached. Each is measured against all others, as that takes no further look at the
/// row.
template <class Measure>
__device__ bool cut_candidates(RowShared& shared,
                               const Row& row,
                               float largest,
                               int gap,
                               Sum need,
                               Measure measure,
                               Cut& cut) {
  if (thread_index() == 0) {
    shared.found = 0;
  }
  __syncthreads();
  visit_together(row, [&](int token, bool exists) {
    const float logit = exists ? row.logits[token] : 0.0F;
    const bool within = exists && gap_bin(largest, logit) == gap;
    const Sum amount = within ? measure(token, logit) : 0;
    const unsigned some = warp_ballot(amount != 0);
    if (some == 0) {
      return;
    }
    int place = lane_index() == 0 ? atomicAdd(&shared.found, count_bits(some)) : 0;
    place = shuffle(place, 0) + count_bits(some & ((1U << lane_index()) - 1U));
    if (amount != 0 && place < kCandidatesMax) {
      shared.candidates[place] = {amount, order_key(logit), token};
    }
  });
  __syncthreads();
  if (shared.found > kCandidatesMax) {
    return false;
  }
  for (int i = thread_index(); i < shared.found; i += thread_count()) {
    const Candidate own = shared.candidates[i];
    Sum before = 0;
    for (int j = 0; j < shared.found; ++j) {
      const Candidate& other = shared.candidates[j];
      const bool first = other.key > own.key || (other.key == own.key && other.token < own.token);
      before += first ? other.amount : 0;
    }
    if (before < need && need <= before + own.amount) {
      shared.last = own;
    }
  }
  __syncthreads();
  cut = {.key = shared.last.key, .last = shared.last.token};
  return true;
}

/// The fewest most likely tokens whose measures reach need(total), which is at least 1; all where
/// they do not. measure(token, logit) is the same for tokens of equal logits, but 0 for such as do
/// not count. No sorting: a histogram of gaps, and then the tokens of the bin in which the need is
/// reached, or, where they are many, three histograms more, each of such a bin of the one before.
template <class Measure, class Need>
__device__ Cut
most_likely(RowShared& shared, const Row& row, float largest, Measure measure, Need need_of) {
  constexpr int kKeyLevels = 3;  // Of 11, 11 and 10 bits, after that of gaps.
  int gap = 0;
  std::uint32_t rank = 0;  // ~key down to the bits that are known: the likeliest have the lowest.
  Sum need = 0;
  for (int level = 0; level <= kKeyLevels; ++level) {
    const int shift = level == kKeyLevels ? 0 : 32 - kRowBinBits * level;  // 32, 21, 10, 0
    const int width = level == kKeyLevels ? 32 - kRowBinBits * (kKeyLevels - 1) : kRowBinBits;
    for (int bin = thread_index(); bin < kRowBins; bin += thread_count()) {
      shared.bins.clear(bin);
    }
    __syncthreads();
    visit_together(row, [&](int token, bool exists) {
      const float logit = exists ? row.logits[token] : 0.0F;
      int bin = exists ? gap_bin(largest, logit) : -1;
      if (level > 0) {
        const std::uint32_t its = ~order_key(logit);
        const bool within = exists && bin == gap &&
                            (level == 1 || its >> (shift + width) == rank >> (shift + width));
        bin = within ? static_cast<int>((its >> shift) & ((1U << width) - 1U)) : -1;
      }
      add_together(shared.bins, bin, bin < 0 ? 0 : measure(token, logit));
    });
    __syncthreads();
    const Place place = first_beyond(
        shared,
        kRowBins,
        [&](int bin) { return shared.bins.sum(bin); },
        [&](Sum total) {
          need = level == 0 ? need_of(total) : need;
          return need - 1;
        });
    if (place.index == kRowBins) {
      return {};
    }
    need -= place.before;
    if (level == 0) {
      gap = place.index;
      if (Cut cut; cut_candidates(shared, row, largest, gap, need, measure, cut)) {
        return cut;
      }
    } else {
      rank |= static_cast<std::uint32_t>(place.index) << shift;
    }
  }
  const std::uint32_t key = ~rank;
  const Place last = first_beyond(
      shared,
      row.vocab,
      [&](int token) {
        const float logit = row.logits[token];
        return order_key(logit) == key ? measure(token, logit) : 0;
      },
      [&](Sum) { return need - 1; });
  return {.key = key, .last = last.index};
}

}  // namespace heddle::ops::cuda
