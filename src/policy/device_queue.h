#pragma once

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

}  // namespace heddle::policy
