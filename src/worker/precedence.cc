#include "worker/precedence.h"

#include <sched.h>

namespace heddle::worker {

void take_precedence() {
  const int policy = ::sched_getscheduler(0);
  sched_param urgency{};
  const bool urgent = (policy == SCHED_RR || policy == SCHED_FIFO) &&
                      ::sched_getparam(0, &urgency) == 0 &&
                      urgency.sched_priority < ::sched_get_priority_max(policy);
  if (urgent) {
    ++urgency.sched_priority;
    (void)::sched_setscheduler(0, policy, &urgency);  // Where it may not, all stays as it was.
  }
}

}  // namespace heddle::worker
