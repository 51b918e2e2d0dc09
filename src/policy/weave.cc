#include "policy/weave.h"

#include <algorithm>
#include <utility>

namespace heddle::policy {
namespace {

constexpr double kPressed = 0.85;
constexpr double kHostLimit = 0.9;
constexpr double kLookAhead = 2.0;  // [s]
constexpr double kMostReading = 0.5;
constexpr double kLeastShare = 0.2;
constexpr double kMostShare = 0.5;

}  // namespace

double most_away(Duration attention, Duration lost) {
  if (attention <= Duration{}) {
    return kMostShare;
  }
  const double part = static_cast<double>(lost.count()) / static_cast<double>(attention.count());
  return std::clamp((1.0 - part) / 2.0, 0.0, kMostShare);
}

double spare_time(Duration own, Duration tpot) {
  constexpr double kOfObjective = 0.9;
  const double allowed = kOfObjective * static_cast<double>(tpot.count());
  if (own <= Duration{}) {
    return 1.0;
  }
  return allowed <= 0 ? 0.0
                      : std::clamp(1.0 - static_cast<double>(own.count()) / allowed, 0.0, 1.0);
}

double most_timely(const WeavePair& pair) {
  if (pair.attention <= Duration{} || pair.hot_step <= Duration{}) {
    return 1.0;
  }
  const double steps =
      static_cast<double>(pair.hot_step.count()) / static_cast<double>(pair.attention.count());
  return std::clamp(pair.cold_spare * steps, 0.0, 1.0);
}

ShareChoice choose_share(const WeavePair& pair) {
  if (!pair.peer_access) {
    return {.reason = ShareReason::kNoPeerAccess};
  }
  if (pair.cold_kv_use + kLookAhead * std::max(0.0, pair.cold_kv_growth) > kHostLimit) {
    return {.reason = ShareReason::kHostNeedsRoom};
  }
  if (pair.hot_kv_use <= kPressed && !pair.hot_queues) {
    return {.reason = ShareReason::kHotNotPressed};
  }
  if (pair.hot_reading > kMostReading) {
    return {.reason = ShareReason::kHotReads};
  }
  const auto memory = static_cast<double>(pair.cold_free_kv_bytes + pair.hot_kv_bytes);
  if (memory <= 0.0) {
    return {.reason = ShareReason::kTooSmall};
  }
  const double share = std::min({most_away(pair.attention, pair.communication + pair.margin),
                                 static_cast<double>(pair.cold_free_kv_bytes) / memory,
                                 most_timely(pair)});
  return share >= kLeastShare ? ShareChoice{.share = share}
                              : ShareChoice{.reason = ShareReason::kTooSmall};
}

std::vector<WeaveMove> choose_moves(std::span<const WeaveSequence> sequences,
                                    std::int64_t wanted,
                                    std::int64_t room,
                                    double most) {
  std::int64_t all = 0;
  std::int64_t away = 0;
  std::vector<const WeaveSequence*> longest;
  for (const WeaveSequence& sequence : sequences) {
    all += sequence.computed;
    away += sequence.away;
    longest.push_back(&sequence);
  }
  std::sort(longest.begin(), longest.end(), [](const auto* a, const auto* b) {
    return std::pair(b->computed - b->away, a->id) < std::pair(a->computed - a->away, b->id);
  });
  const auto allowed = static_cast<std::int64_t>(most * static_cast<double>(all));
  std::int64_t left = std::min(room, allowed - away);
  std::vector<WeaveMove> moves;
  for (const WeaveSequence* sequence : longest) {
    // The newest token's KV stays, as the next is written behind it.
    const std::int64_t moved = std::min(sequence->computed - 1 - sequence->away, left);
    if (wanted <= 0 || moved < kFewestMoved) {
      break;
    }
    if (!sequence->settled) {
      moves.push_back({.sequence = sequence->id, .tokens = sequence->away + moved});
      wanted -= moved;
      left -= moved;
    }
  }
  return moves;
}

}  // namespace heddle::policy
