#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/time.h"
#include "policy/batching.h"

namespace heddle::policy {

// WEAVER: the device of a cold model runs part of the decode attention of a hot model's sequences.
// Per layer the hot side computes its own part in K, the cold side the guests' in N.

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
  bool peer_access = false;     ///< Each can write the other's memory.
  Duration hot_step{};          ///< A step of the hot side; 0: nobody has measured.
  double cold_spare = 1.0;      ///< Of the cold side's time, what its objective leaves to guests.
};

/// Of a host's time, what guests may have: its own steps take `own / (1 - part)` beside them, and
/// that shall stay below 0.9 of the objective `tpot`. In [0, 1]; 1 as long as `own` is 0.
[[nodiscard]] double spare_time(Duration own, Duration tpot);

/// Of all attention, what may be with a host: K = (1 - f) A >= N + lost, N = f A, so that nobody
/// waits: f = (1 - lost / A) / 2, in [0, 0.5]. `attention`: A, as long as `lost` is counted; 0
/// where nobody has measured, which gives a half.
[[nodiscard]] double most_away(Duration attention, Duration lost);

/// Of all attention, what may be with the host for the sake of its objective: that takes
/// f A / hot_step <= cold_spare of its time. In [0, 1]; 1 as long as nobody has measured.
[[nodiscard]] double most_timely(const WeavePair& pair);

enum class ShareReason : std::uint8_t {
  kWorthIt,
  kNoPeerAccess,
  kHostNeedsRoom,  ///< Its own KV will want the memory.
  kHotNotPressed,  ///< The hot side is not short of KV.
  kHotReads,       ///< Prompts take its time: more sequences would only be in their way.
  kTooSmall,       ///< The best share is below the least that pays.
};

struct ShareChoice {
  double share = 0.0;  ///< f, of the hot side's KV; what is there already stays.
  ShareReason reason = ShareReason::kWorthIt;
  friend bool operator==(const ShareChoice&, const ShareChoice&) = default;
};

/// The share of the hot side's KV that goes to the cold host. The paper (section 4.2) fixes 45 % of
/// new sequences and leaves the choice open; ours, re-chosen as memory changes:
///   f = min(most_away(A, comm + margin), M_c / (M_c + M_h), most_timely()).
/// None unless the hot side is short of KV (use above 0.85, or a queue), reading prompts takes at
/// most half of its time, and the host's own KV use would stay below 0.9 for two seconds; and none
/// rather than less than 0.2.
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

/// KV is short where less than one in so many of the pages for it is free.
inline constexpr std::int64_t kShortBelow = 8;
/// And of the memory that a host has for KV, its own included, one in so many stays free of guests.
inline constexpr std::int64_t kHostKeeps = 8;
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
