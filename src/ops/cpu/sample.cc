#include "ops/sample.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/cpu/kernels.h"

namespace heddle::ops::cpu {
namespace {

struct Candidate {
  std::int32_t token = 0;
  double weight = 0.0;  ///< exp((logit - largest) / temperature)
};

/// The tokens that a row may draw; all of them where `words` is null.
struct Mask {
  const std::uint32_t* words = nullptr;

  [[nodiscard]] bool allows(std::int64_t token) const {
    return words == nullptr || ((words[token / 32] >> (token % 32)) & 1U) != 0;
  }
};

/// Index of the largest logit, lowest on ties; kNoToken where there is none.
std::int32_t largest(const float* logits, std::int64_t n, Mask mask) {
  std::int32_t best = kNoToken;
  for (std::int64_t i = 0; i < n; ++i) {
    if (std::isnan(logits[i])) {
      return kNoToken;
    }
    if (mask.allows(i) && (best == kNoToken || logits[i] > logits[best])) {
      best = static_cast<std::int32_t>(i);
    }
  }
  return best != kNoToken && std::isfinite(logits[best]) ? best : kNoToken;
}

bool more_likely(const Candidate& a, const Candidate& b) {
  return a.weight != b.weight ? a.weight > b.weight : a.token < b.token;
}

double total_of(const std::vector<Candidate>& candidates) {
  double total = 0.0;
  for (const Candidate& candidate : candidates) {
    total += candidate.weight;
  }
  return total;
}

/// Keeps the fewest most likely candidates whose share of the total reaches `top_p`.
void cut_nucleus(std::vector<Candidate>& candidates, double top_p) {
  const double goal = top_p * total_of(candidates);
  double reached = 0.0;
  std::size_t sorted = 0;
  std::size_t kept = 0;
  while (kept < candidates.size() && (kept == 0 || reached < goal)) {
    if (kept == sorted) {  // Sorts as much as it turns out to need.
      sorted = std::min(candidates.size(), std::max<std::size_t>(64, 4 * sorted));
      std::partial_sort(candidates.begin() + static_cast<std::ptrdiff_t>(kept),
                        candidates.begin() + static_cast<std::ptrdiff_t>(sorted),
                        candidates.end(),
                        more_likely);
    }
    reached += candidates[kept].weight;
    ++kept;
  }
  candidates.resize(kept);
}

void cut_top_k(std::vector<Candidate>& candidates, std::size_t k) {
  if (k < candidates.size()) {
    const auto cut = candidates.begin() + static_cast<std::ptrdiff_t>(k);
    std::nth_element(candidates.begin(), cut, candidates.end(), more_likely);
    candidates.resize(k);
  }
}

/// Drops candidates below min_p times the largest weight, which is 1.
void cut_min_p(std::vector<Candidate>& candidates, double min_p) {
  std::erase_if(candidates, [min_p](const Candidate& c) { return c.weight < min_p; });
}

std::vector<Candidate> candidates_of(
    const float* logits, std::int64_t n, float largest_logit, float temperature, Mask mask) {
  std::vector<Candidate> candidates;
  candidates.reserve(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) {
    if (!mask.allows(i)) {
      continue;
    }
    const double gap = static_cast<double>(logits[i]) - static_cast<double>(largest_logit);
    candidates.push_back({.token = static_cast<std::int32_t>(i),
                          .weight = std::exp(gap / static_cast<double>(temperature))});
  }
  return candidates;
}

std::int32_t draw(const float* logits, std::int64_t n, const SampleRow& row, Mask mask) {
  const std::int32_t best = largest(logits, n, mask);
  if (best == kNoToken || row.temperature == 0.0F) {
    return best;
  }
  auto candidates = candidates_of(logits, n, logits[best], row.temperature, mask);
  if (row.top_k > 0) {
    cut_top_k(candidates, static_cast<std::size_t>(row.top_k));
  }
  if (row.top_p < 1.0F) {
    cut_nucleus(candidates, static_cast<double>(row.top_p));
  }
  cut_min_p(candidates, static_cast<double>(row.min_p));
  if (row.top_k > 0 || row.top_p < 1.0F) {  // Those cuts leave an order of their own.
    std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
      return a.token < b.token;
    });
  }
  const double goal = row.uniform * total_of(candidates);
  double reached = 0.0;
  std::int32_t drawn = best;  // Only where rounding keeps the sum from exceeding the goal.
  for (const Candidate& candidate : candidates) {
    reached += candidate.weight;
    if (reached > goal) {
      drawn = candidate.token;
      break;
    }
  }
  return drawn;
}

}  // namespace

void sample(device::Stream& stream, const SampleArgs& args) {
  cpu_stream(stream).enqueue([args](device::ThreadPool& pool) {
    auto* tokens = args.tokens.as<std::int32_t>();
    pool.parallel_for(args.logits.shape[0], 1, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t r = begin; r < end; ++r) {
        const std::int64_t vocab = args.logits.shape[1];
        const SampleRow& row = args.rows[r];
        const Mask mask{row.mask < 0 ? nullptr : args.masks + row.mask * mask_words(vocab)};
        tokens[r] = draw(args.logits.as<float>() + r * args.logits.stride[0], vocab, row, mask);
      }
    });
  });
}

}  // namespace heddle::ops::cpu
