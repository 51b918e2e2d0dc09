#pragma once

#include <cstdint>

#include "base/time.h"
#include "core/worker_core.h"
#include "policy/batching.h"
#include "rpc/messages.h"
#include "worker/guest_time.h"
#include "worker/hot_guests.h"

namespace heddle::worker {

/// Makes the steps of a scale model as slow as those of what it stands for. Engine thread.
class Pacing {
 public:
  /// `guests`: what the device does for others, which outlives this; null: nothing.
  Pacing(rpc::Pace pace, const GuestTime* guests) : pace_(pace), guests_(guests) {}

  /// How long this step has to take at least; zero where nothing is paced.
  [[nodiscard]] Duration of(const policy::StepPlan& plan) const;
  /// Positions at home whose KV a step read: a chunk of a prompt reads each once for all of its
  /// tokens. 0 where they do not count.
  [[nodiscard]] std::int64_t positions_read(const policy::StepPlan& plan,
                                            const core::StepDone& done,
                                            const HotGuests& guests) const;
  /// How long attention took in a step with guests, by the pace if it counts; `spent` in it.
  [[nodiscard]] core::GuestTimes guest_times(const policy::StepPlan& plan,
                                             const core::StepDone& done,
                                             const HotGuests& guests,
                                             HotGuests::Times spent) const;
  /// Attention over guests of other devices, so far.
  [[nodiscard]] Duration guest_time() const {
    return guests_ == nullptr ? Duration{} : guests_->total();
  }

  /// A step that has been computed.
  struct Step {
    Instant began{};
    Duration guest_time{};            ///< guest_time() as it began.
    std::int64_t positions_read = 0;  ///< At home.
    Duration waited{};                ///< For attention over the model's guests elsewhere.
    bool waits_for_weights = false;   ///< It is not late for that.
  };
  /// Waits until the step has taken as long as it has to; gives what it took in the end. Its own
  /// attention and the wait for guests go on at once: the longer of the two counts. The device's
  /// attention over guests of others comes on top. What was late is counted in `stats` and logged.
  Duration keep(const policy::StepPlan& plan, const Step& step, rpc::WorkerStats& stats) const;

 private:
  rpc::Pace pace_;
  const GuestTime* guests_;
};

}  // namespace heddle::worker
