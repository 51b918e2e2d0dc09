#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/time.h"

namespace heddle::sim {

// WEAVER's polling kernels (section 4.2): the cold side looks for guests between its own kernels,
// so that they wait for the one that runs. Per layer the hot side computes its own attention in K,
// the cold side the guests' in N; K - N is the slack in which they may wait. CPUs, and GPUs with
// operations on memory in a stream, serve guests without a look after each kernel. So splitting is
// the paper's mechanism alone, and only the simulator has it.

enum class StallForm : std::uint8_t {
  kPaper,      ///< Section 4.2 as printed, with the sum over kernels it lacks. Diverges for K < N.
  kCorrected,  ///< With the case K < N: the whole wait and the difference are stalled.
};

/// WEAVER, section 4.2: by how much the hot side stalls on one offloaded call, on average, where
/// the cold side runs kernels of these times T_i back to back and the call comes at any moment:
///   E = sum_i T_i stall(T_i) / sum_i T_i,  s = slack = K - N,
///   stall(T) = 0 if s >= T;  (T - s)^2 / (2 T) if 0 <= s < T;  T / 2 - s if s < 0.
/// The paper's objective E[W 1{K < W + N}] would count all of the wait; its formula, used here,
/// counts the part that blocks. Zero without kernels.
[[nodiscard]] Duration expected_stall(std::span<const Duration> kernels,
                                      Duration slack,
                                      StallForm form);

struct SplitOptions {
  StallForm form = StallForm::kCorrected;
  std::int64_t calls = 0;  ///< L: attention calls in one hot iteration.
  Duration threshold{};    ///< Of the stall in one hot iteration; 5 % of it.
  Duration overhead =
      std::chrono::microseconds{4};  ///< o: a piece of a halved kernel takes T/2 + o.
  Duration shortest = std::chrono::microseconds{10};  ///< Kernels no longer than this stay whole.
};

enum class SplitOutcome : std::uint8_t {
  kEnough,      ///< The stall is below the threshold.
  kExhausted,   ///< It is not, and no kernel is worth splitting further.
  kLowerShare,  ///< No slack (K <= N): splitting cannot help, a smaller share can.
};

struct SplitPlan {
  SplitOutcome outcome = SplitOutcome::kEnough;
  std::vector<std::int64_t> pieces{};  ///< Of each kernel, in the order given; 1: whole.
  Duration stall{};                    ///< Per hot iteration, afterwards.
  Duration iteration{};                ///< Of the cold side: the sum of all pieces.
  friend bool operator==(const SplitPlan&, const SplitPlan&) = default;
};

/// WEAVER, Algorithm 1: splits the longest kernel until L * E is at most the threshold. (The paper
/// does not say that its threshold is per iteration; per call it would never be reached.)
/// kPaper halves one piece at a time and knows no K <= N. kCorrected halves all pieces of a kernel,
/// so that a plan is a power of two for each, which can be captured in a graph; and it stops at
/// `shortest`, and where half a kernel and the overhead are no shorter than the whole.
/// Pure; ties by index. O((n + pieces) log n).
[[nodiscard]] SplitPlan plan_splits(std::span<const Duration> kernels,
                                    Duration slack,
                                    const SplitOptions& options);

/// Bytes that cross between the devices for one layer and `sequences` offloaded sequences:
/// q, k and v of the new token there, the result back.
[[nodiscard]] std::int64_t offload_bytes(std::int64_t sequences,
                                         std::int64_t query_heads,
                                         std::int64_t kv_heads,
                                         std::int64_t head_dim,
                                         std::int64_t element_bytes);

}  // namespace heddle::sim
