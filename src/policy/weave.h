#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "policy/batching.h"

namespace heddle::policy {

// WEAVER: the device of a cold model runs the decode attention of a share f of a hot model's
// sequences, between its own kernels. Per layer the hot side computes its own part in K, the cold
// side the guests' in N; K - N is the slack in which the guests may wait for the kernel running.

enum class StallForm : std::uint8_t {
  kPaper,      ///< Section 4.2 as printed, with the sum over kernels it lacks. Diverges for K < N.
  kCorrected,  ///< With the case K < N: the whole wait and the difference are stalled.
};

/// By how much the hot side stalls on one offloaded call, on average, where the cold side runs
/// kernels of these times T_i back to back and the call comes at any moment:
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

/// A hot model, and a cold one whose device could take guests, as of the last second.
struct WeavePair {
  /// A = K + N: of all sequences of the hot side, one layer; 0: nobody has measured.
  Duration attention{};
  Duration communication{};             ///< Of the guests' part, one layer.
  Duration margin{};                    ///< For the wait: E at this slack, or a guess.
  std::int64_t hot_kv_bytes = 0;        ///< M_h: the hot side's KV memory.
  std::int64_t cold_free_kv_bytes = 0;  ///< M_c: that guests could have.
  double hot_kv_use = 0.0;              ///< Of its KV memory, in [0, 1].
  bool hot_queues = false;              ///< It has requests waiting for KV.
  double hot_reading = 0.0;             ///< Part of the time that it reads prompts.
  double cold_kv_use = 0.0;
  double cold_kv_growth = 0.0;  ///< Of cold_kv_use per second, lately.
  bool cold_drains = false;     ///< In its grace period.
  bool peer_access = false;     ///< Each can write the other's memory.
};

/// Of all attention, what may be with a host: K = (1 - f) A >= N + lost, N = f A, so that nobody
/// waits: f = (1 - lost / A) / 2, in [0, 0.5]. `attention`: A, as long as `lost` is counted; 0
/// where nobody has measured, which gives a half.
[[nodiscard]] double most_away(Duration attention, Duration lost);

enum class ShareReason : std::uint8_t {
  kWorthIt,
  kNoPeerAccess,
  kHostDrains,     ///< Guests would outstay the grace period.
  kHostNeedsRoom,  ///< Its own KV will want the memory.
  kHotNotPressed,  ///< The hot side is not short of KV.
  kHotReads,       ///< Prompts take its time: more sequences would only be in their way.
  kTooSmall,       ///< The best share is below the least that pays.
};
/// "host_needs_room".
[[nodiscard]] std::string_view reason_name(ShareReason reason);

struct ShareChoice {
  double share = 0.0;  ///< f, of new sequences; those there stay where they are.
  ShareReason reason = ShareReason::kWorthIt;
  friend bool operator==(const ShareChoice&, const ShareChoice&) = default;
};

/// The paper's fixed share.
inline constexpr double kPaperShare = 0.45;

/// The share of the hot side's new sequences that goes to the cold host. The paper fixes 45 % and
/// leaves the choice open; ours, re-chosen every second:
///   f = min(most_away(A, comm + margin), M_c / (M_c + M_h)). None unless the hot side
/// is short of KV (use above 0.85, or a queue), reading prompts takes at most half of its time, the
/// host does not drain, and its own KV use would stay below 0.9 for two seconds; and none rather
/// than less than 0.2.
[[nodiscard]] ShareChoice choose_share(const WeavePair& pair);

/// A decoding sequence of a hot model.
struct WeaveSequence {
  SequenceId id{};
  std::int64_t computed = 0;  ///< Tokens that have KV.
  std::int64_t away = 0;      ///< The first of them, with the host.
  bool settled = false;       ///< It was asked to move more since it last grew by a block.
  friend bool operator==(const WeaveSequence&, const WeaveSequence&) = default;
};

/// The KV of the first `tokens` positions goes to the host.
struct WeaveMove {
  SequenceId sequence{};
  std::int64_t tokens = 0;
  friend bool operator==(const WeaveMove&, const WeaveMove&) = default;
};

/// Fewer tokens than this are not worth a move.
inline constexpr std::int64_t kFewestMoved = 32;

/// Whose KV goes to the host, so that `wanted` tokens have room at home: of those that have most at
/// home, until there is as much, the host's `room` [tokens] is used up, or `most` of all tokens are
/// away, by most_away(): more would have the hot side wait. Pure; ties by id. O(n log n).
[[nodiscard]] std::vector<WeaveMove> choose_moves(std::span<const WeaveSequence> sequences,
                                                  std::int64_t wanted,
                                                  std::int64_t room,
                                                  double most = 0.5);

}  // namespace heddle::policy
