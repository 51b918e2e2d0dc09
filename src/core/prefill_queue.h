#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "policy/device_queue.h"

namespace heddle::core {

/// A sequence that waits for its prefill.
struct QueuedPrefill {
  policy::SequenceId id{};
  ModelId model{};
  std::int32_t priority = 0;  ///< Lower goes first.
  std::uint64_t client = 0;   ///< Whose it is.
  Instant arrived{};
  Instant due{};              ///< Its first token.
  Duration prefill{};         ///< What that takes; > 0.
  std::int64_t kv_pages = 0;  ///< In any unit, the same for all; no more than the device has.
};

/// The device at the moment of a pass.
struct PrefillState {
  Instant now{};
  Duration dispatched{};        ///< Prefill of those admitted that is not done.
  Duration ahead{};             ///< How much of it the engine runs at once.
  std::int64_t free_pages = 0;  ///< In the unit of QueuedPrefill.
};

/// What waits on a device for its prefill, of all models: policy::plan_queue, with what it wants
/// remembered from pass to pass. Priorities go one after the other. So do turns where several
/// clients wait: a client has kTurn sequences in each, and one that comes joins the turn that is
/// on. So who asks for much at once holds up nobody else for long; within a turn, and where one
/// client waits alone, deadlines decide. (It is fair queueing by start times, counted in sequences:
/// P. Goyal, H. M. Vin and H. Cheng, "Start-time Fair Queueing", 1996.)
///
/// Nobody starves of the same priority. Whose first token is late anyway is served by the late
/// list, which earns its part of the time; so is who was on time and is overdue for want of pages,
/// and the list earns by those of it that overtake its head, too. With its prefill earned, the head
/// keeps all pages that come free.
class PrefillQueue {
 public:
  /// Sequences of a client that make a turn.
  static constexpr std::size_t kTurn = 4;

  /// Those to admit now, in this order. `waiting`: all that wait. O(n log n).
  [[nodiscard]] std::vector<policy::SequenceId> pass(const PrefillState& state,
                                                     const std::vector<QueuedPrefill>& waiting);
  /// Of one that waits: whether its first token will not be there in time, as the last pass saw.
  [[nodiscard]] bool late(policy::SequenceId id) const { return late_.contains(id); }

 private:
  struct Rest;
  /// Lower goes first. Turns are counted while anybody waits.
  struct Place {
    std::int32_t priority = 0;
    std::size_t turn = 0;
    friend auto operator<=>(const Place&, const Place&) = default;
  };
  void give_turns(const std::vector<const QueuedPrefill*>& waiting);
  [[nodiscard]] std::map<Place, std::vector<const QueuedPrefill*>> places(
      const std::vector<QueuedPrefill>& waiting);
  void pass_one(Place place,
                std::vector<policy::QueuedRequest> requests,
                Rest& rest,
                std::vector<policy::SequenceId>& admit);

  std::map<policy::SequenceId, std::size_t> turns_{};  ///< Of all that wait.
  std::set<policy::SequenceId> late_{};
  std::map<Place, Duration> credits_{};  ///< QueuePlan::late_credit.
};

}  // namespace heddle::core
