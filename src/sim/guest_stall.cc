#include "sim/guest_stall.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace heddle::sim {
namespace {

/// T * stall(T) in ns^2.
double weighted_stall(Duration kernel, Duration slack, StallForm form) {
  const auto t = static_cast<double>(kernel.count());
  const auto s = static_cast<double>(slack.count());
  if (s >= t) {
    return 0.0;
  }
  if (s < 0.0 && form == StallForm::kCorrected) {
    return t * (t / 2.0 - s);
  }
  return (t - s) * (t - s) / 2.0;
}

Duration rounded(double ns) {
  return Duration(static_cast<std::int64_t>(ns + 0.5));
}

/// Algorithm 1, with the sums of the stall kept up as pieces change.
class Splitter {
 public:
  Splitter(std::span<const Duration> kernels, Duration slack, const SplitOptions& options)
      : slack_(slack),
        options_(options),
        plan_{.pieces = std::vector<std::int64_t>(kernels.size(), 1)} {
    for (std::size_t i = 0; i < kernels.size(); ++i) {
      HEDDLE_CHECK(kernels[i] > Duration{});
      push({kernels[i], i, 1});
      add(kernels[i], 1);
    }
  }

  SplitPlan run() {
    const bool paper = options_.form == StallForm::kPaper;
    if (!paper && slack_ <= Duration{}) {
      plan_.outcome = SplitOutcome::kLowerShare;
    }
    while (plan_.outcome == SplitOutcome::kEnough && stall() > limit()) {
      if (heap_.empty() || !worth_splitting(heap_.front().time)) {
        plan_.outcome = SplitOutcome::kExhausted;
        break;
      }
      split(paper ? 1 : heap_.front().count);
    }
    plan_.stall = rounded(stall());
    plan_.iteration = total_;
    return std::move(plan_);
  }

 private:
  /// `count` equal pieces of one kernel.
  struct Pieces {
    Duration time{};
    std::size_t kernel = 0;
    std::int64_t count = 0;
  };

  static bool less(const Pieces& a, const Pieces& b) {
    return a.time != b.time ? a.time < b.time : a.kernel > b.kernel;
  }

  void push(const Pieces& pieces) {
    heap_.push_back(pieces);
    std::push_heap(heap_.begin(), heap_.end(), less);
  }

  void add(Duration time, std::int64_t count) {
    total_ += count * time;
    weighted_ += static_cast<double>(count) * weighted_stall(time, slack_, options_.form);
  }

  [[nodiscard]] double stall() const {
    return total_ == Duration{} ? 0.0
                                : static_cast<double>(options_.calls) * weighted_ /
                                      static_cast<double>(total_.count());
  }

  [[nodiscard]] double limit() const { return static_cast<double>(options_.threshold.count()); }

  [[nodiscard]] bool worth_splitting(Duration longest) const {
    return longest > std::max(slack_, options_.shortest) &&
           longest / 2 + options_.overhead < longest;
  }

  void split(std::int64_t count) {
    std::pop_heap(heap_.begin(), heap_.end(), less);
    Pieces whole = heap_.back();
    heap_.pop_back();
    const Duration half = whole.time / 2 + options_.overhead;
    add(whole.time, -count);
    add(half, 2 * count);
    plan_.pieces[whole.kernel] += count;
    push({half, whole.kernel, 2 * count});
    if (whole.count > count) {
      whole.count -= count;
      push(whole);
    }
  }

  Duration slack_;
  const SplitOptions& options_;
  SplitPlan plan_;
  std::vector<Pieces> heap_{};
  Duration total_{};
  double weighted_ = 0.0;
};

}  // namespace

Duration expected_stall(std::span<const Duration> kernels, Duration slack, StallForm form) {
  double weighted = 0.0;
  Duration total{};
  for (const Duration kernel : kernels) {
    weighted += weighted_stall(kernel, slack, form);
    total += kernel;
  }
  return total == Duration{} ? Duration{} : rounded(weighted / static_cast<double>(total.count()));
}

SplitPlan plan_splits(std::span<const Duration> kernels,
                      Duration slack,
                      const SplitOptions& options) {
  return Splitter(kernels, slack, options).run();
}

std::int64_t offload_bytes(std::int64_t sequences,
                           std::int64_t query_heads,
                           std::int64_t kv_heads,
                           std::int64_t head_dim,
                           std::int64_t element_bytes) {
  const std::int64_t there = (query_heads + 2 * kv_heads) * head_dim;
  const std::int64_t back = query_heads * head_dim;
  return sequences * (there + back) * element_bytes;
}

}  // namespace heddle::sim
