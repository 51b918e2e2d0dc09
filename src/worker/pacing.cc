#include "worker/pacing.h"

#include <algorithm>
#include <map>
#include <thread>

#include "base/clock.h"
#include "base/core_wait.h"
#include "base/log.h"

namespace heddle::worker {

namespace {

/// A paced step is late beyond this part of its pace: waking up always takes a little longer.
constexpr std::int64_t kLateSlack = 20;
/// And slow beyond this one.
constexpr std::int64_t kSlowSlack = 5;

}  // namespace

Duration Pacing::of(const policy::StepPlan& plan) const {
  std::int64_t tokens = 0;
  for (const policy::ModelBatch& batch : plan.batches) {
    for (const policy::StepSlice& slice : batch.slices) {
      tokens += slice.tokens;
    }
  }
  return pace_.step + pace_.token * tokens;
}

std::int64_t Pacing::positions_read(const policy::StepPlan& plan,
                                    const core::StepDone& done,
                                    const HotGuests& guests) const {
  if (pace_.context == Duration{}) {
    return 0;
  }
  std::map<core::SequenceId, std::int64_t> computed;
  for (const core::SliceDone& slice : done.slices) {
    computed[slice.sequence] = slice.computed;
  }
  std::int64_t positions = 0;
  for (const policy::ModelBatch& batch : plan.batches) {
    for (const policy::StepSlice& slice : batch.slices) {
      const auto found = computed.find(slice.sequence);
      if (found != computed.end()) {
        positions += found->second - guests.tokens(slice.sequence);
      }
    }
  }
  return positions;
}

core::GuestTimes Pacing::guest_times(const policy::StepPlan& plan,
                                     const core::StepDone& done,
                                     const HotGuests& guests,
                                     HotGuests::Times spent) const {
  if (policy::reads_prompts(plan) || spent.own + spent.waited == Duration{}) {
    return {};
  }
  if (pace_.context > Duration{}) {
    const std::int64_t positions = positions_read(plan, done, guests);
    const Duration home = pace_.context * positions;
    return {
        .home = home, .positions = positions, .waited = std::max(spent.waited - home, Duration{})};
  }
  // Before it waits, this side is at the sequences that have no guests.
  std::int64_t positions = 0;
  for (const core::SliceDone& slice : done.slices) {
    positions += guests.tokens(slice.sequence) == 0 ? slice.computed : 0;
  }
  return {.home = spent.own, .positions = positions, .waited = spent.waited};
}

Duration Pacing::keep(const policy::StepPlan& plan,
                      const Step& step,
                      rpc::WorkerStats& stats) const {
  Duration paced = of(plan);
  const Duration took = steady_now() - step.began;
  if (paced == Duration{}) {
    return took;
  }
  paced += std::max(pace_.context * step.positions_read, step.waited);
  const Duration waited = waited_for_core();
  Duration passed = took;
  for (Duration guests{}; passed < paced + guests; passed = steady_now() - step.began) {
    std::this_thread::sleep_for(paced + guests - passed);
    guests = guest_time() - step.guest_time;
  }
  paced += guest_time() - step.guest_time;
  if (!step.waits_for_weights && passed > paced + paced / kLateSlack) {
    ++stats.late_steps;
    stats.slow_steps += passed > paced + paced / kSlowSlack ? 1 : 0;
    // Who had its core as soon as it woke up, and no work left, was woken late by the machine.
    const Duration held_up = waited_for_core() - waited;
    stats.overrun_steps += took + held_up > paced + paced / kSlowSlack ? 1 : 0;
    log::info("a step was late",
              {{"pace_s", to_seconds(paced)},
               {"worked_s", to_seconds(took)},
               {"waited_s", to_seconds(held_up)},
               {"took_s", to_seconds(passed)}});
  }
  return passed;
}

}  // namespace heddle::worker
