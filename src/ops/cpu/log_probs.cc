#include "ops/log_probs.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/cpu/kernels.h"

namespace heddle::ops::cpu {
namespace {

/// log(sum(exp(logits)))
double log_total(const float* logits, std::int64_t n) {
  const auto largest = static_cast<double>(*std::max_element(logits, logits + n));
  double total = 0.0;
  for (std::int64_t i = 0; i < n; ++i) {
    total += std::exp(static_cast<double>(logits[i]) - largest);
  }
  return largest + std::log(total);
}

/// The `count` tokens with the largest logits, in order.
std::vector<std::int32_t> likeliest(const float* logits, std::int64_t n, std::int32_t count) {
  const auto before = [logits](std::int32_t a, std::int32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  };
  std::vector<std::int32_t> best;
  for (std::int32_t token = 0; token < n && count > 0; ++token) {
    if (std::ssize(best) == count) {
      if (!before(token, best.back())) {
        continue;
      }
      best.pop_back();
    }
    best.insert(std::upper_bound(best.begin(), best.end(), token, before), token);
  }
  return best;
}

}  // namespace

void log_probs(device::Stream& stream, const LogProbsArgs& args) {
  cpu_stream(stream).enqueue([args](device::ThreadPool& pool) {
    const std::int64_t vocab = args.logits.shape[1];
    pool.parallel_for(args.logits.shape[0], 1, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t r = begin; r < end; ++r) {
        const std::int32_t choice = args.choices.as<std::int32_t>()[args.rows[r].choice];
        std::int32_t* tokens = args.tokens + r * kLogProbsWidth;
        float* values = args.log_probs + r * kLogProbsWidth;
        std::fill_n(tokens, kLogProbsWidth, -1);
        if (choice < 0) {
          continue;
        }
        const float* logits = args.logits.as<float>() + r * args.logits.stride[0];
        const double total = log_total(logits, vocab);
        std::vector<std::int32_t> told = likeliest(logits, vocab, args.rows[r].top);
        told.insert(told.begin(), choice);
        for (std::size_t i = 0; i < told.size(); ++i) {
          tokens[i] = told[i];
          values[i] = static_cast<float>(static_cast<double>(logits[told[i]]) - total);
        }
      }
    });
  });
}

}  // namespace heddle::ops::cpu
