#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "policy/admission.h"

namespace heddle::policy {

/// A request that waits for its prefill on one device.
struct QueuedRequest {
  RequestId id{};
  ModelId model{};
  Instant arrived{};
  Instant deadline{};         ///< Of its first token: arrival + the objective.
  Duration prefill{};         ///< e = prompt / speed at the present number of engines; > 0.
  std::int64_t kv_pages = 0;  ///< For its prompt and kExpectedTokens; no more than the device has.
  bool late = false;          ///< A pass before this one gave up its deadline. It stays so.
};

enum class QueueRule : std::uint8_t {
  kMooreHodgson,  ///< Most requests on time.
  kArrival,       ///< First come, first served; nobody is given up. The ablation.
};

struct QueueOptions {
  QueueRule rule = QueueRule::kMooreHodgson;
  /// Prefill work kept with the engines: what they would run at once.
  Duration ahead{};
  /// What is dispatched in one pass is read in one step and has its first tokens together, as that
  /// ends: nothing is added that would make it end after a deadline that it could keep.
  bool together = false;
  /// Late ones go first while all on time are in time all the same: else who may wait for long
  /// would go before who waits too long already.
  bool spare_time = false;
  /// One part in so many of the time given to requests on time is earned by the late ones while
  /// there are any, so that they never starve. > 0.
  std::int64_t late_part = 8;
  /// Lateness by which a late request gets before one that is a second shorter [s]. > 0.
  std::int64_t ageing = 8;
  /// Late requests are aborted once even an immediate start misses by more; nullopt: never.
  std::optional<Duration> abort_after{};
};

/// One device at one moment.
struct QueueView {
  Instant now{};
  Duration dispatched{};        ///< Prefill given to engines before and not done yet.
  std::int64_t free_pages = 0;  ///< For admission: free pages less the growth reserves.
  Duration late_credit{};       ///< QueuePlan::late_credit of the pass before; zero at first.
  std::span<const QueuedRequest> requests{};
};

/// A request in the order of service, and when its prefill would end.
struct PlannedRequest {
  RequestId id{};
  Instant finish{};
  friend bool operator==(const PlannedRequest&, const PlannedRequest&) = default;
};

struct QueuePlan {
  std::vector<RequestId> dispatch{};      ///< To hand to engines now, in this order.
  std::vector<PlannedRequest> on_time{};  ///< All that will be in time, those in `dispatch` too.
  std::vector<RequestId> refused{};       ///< Given up in this pass: late from now on.
  std::vector<RequestId> late{};          ///< What stays on the late list, in its order.
  std::vector<RequestId> blocked{};       ///< Neither: their pages are not there. Still on time.
  std::vector<RequestId> aborted{};       ///< Late beyond abort_after.
  Duration late_credit{};
  friend bool operator==(const QueuePlan&, const QueuePlan&) = default;
};

/// Orders the requests that wait on one device: Prism, Algorithm 2, which is Moore-Hodgson (J. M.
/// Moore, "An n Job, One Machine Sequencing Algorithm for Minimizing the Number of Late Jobs",
/// 1968). Requests are taken by deadline; where the sum of prefill times passes a deadline, the
/// longest request so far is given up (of equals the one with the later deadline). No order of
/// service meets more deadlines, as long as every step carries prefill.
///
/// Ours, where the paper is silent:
///  - Time starts behind the prefill already dispatched.
///  - What is given up goes to a late list, which is served when nobody on time can run: shortest
///    first, a longer one before it once it is older by ageing * the difference. It stays late, and
///    it earns one part in late_part of the time of those on time; with its own prefill earned, the
///    head of the list goes before everyone and, where pages are short, keeps them for itself. So
///    it does not starve.
///  - A request whose pages are not free waits, and with it those behind it of its own model only.
///
/// Pure; independent of the order of `requests` (ties by id). O(n log n).
[[nodiscard]] QueuePlan plan_queue(const QueueView& view, const QueueOptions& options);

/// A model's running requests for whose growth pages are kept: a quarter of its batch, at least
/// one, by that many tokens each.
inline constexpr std::int64_t kReservedBatchPart = 4;
inline constexpr std::int64_t kReservedTokens = 64;

/// Pages kept back from admission so that the oldest running requests of a model can go on when
/// memory runs out (Prism 6.2): the blocks that they need for kReservedTokens more, at least one
/// each, packed. `lengths` [tokens] of its running requests, oldest first. O(batch).
[[nodiscard]] std::int64_t growth_reserve(std::span<const KvGroup> kv,
                                          std::span<const std::int64_t> lengths);

/// How fast one model prefills on one device, by how many engines prefill there at once; measured.
/// A value: copy it, compare it. Not for more than kMostEngines, beyond which the last counts.
class PrefillSpeed {
 public:
  static constexpr std::size_t kMostEngines = 16;

  /// `guess` [tokens/s] for one engine alone, used until something is measured; > 0.
  explicit PrefillSpeed(double guess) : guess_(guess) {}

  /// A step of `engines` >= 1 engines gave this model a full chunk of `tokens` in `took` > 0.
  void observe_step(std::size_t engines, std::int64_t tokens, Duration took);
  /// A request's prefill was planned to take `planned` > 0 and took `took`. When the median of the
  /// last kFinishes is off by more than a fifth, the speed is scaled by it.
  void observe_finish(Duration planned, Duration took);

  /// [tokens/s] while `engines` >= 1 prefill: the measured average, times the correction. Where
  /// nothing was measured for that many, the nearest smaller measured number shared out evenly,
  /// since the GPU time of engines adds up.
  [[nodiscard]] double tokens_per_second(std::size_t engines) const;
  /// The prefill of `tokens` >= 1 at that speed, rounded up to a nanosecond.
  [[nodiscard]] Duration time(std::int64_t tokens, std::size_t engines) const;

 private:
  static constexpr std::size_t kFinishes = 15;

  double guess_;
  double correction_ = 1.0;
  std::array<double, kMostEngines> measured_{};  ///< [tokens/s], 0: nothing yet.
  std::array<double, kFinishes> ratios_{};       ///< took / planned of the last requests.
  std::size_t ratio_count_ = 0;
};

}  // namespace heddle::policy
