#include "core/manager/passes/passes.h"

namespace heddle::core::manager {

void expire(const Parts& core) {
  const State& state = core.state;
  while (!state.deadlines.empty() && state.deadlines.begin()->first <= state.now) {
    const RequestId id = state.deadlines.begin()->second;
    const RequestState& request = state.requests.at(id);
    const bool waits = !request.device && !request.lost;
    core.queues.fail(id,
                     {Code::kDeadlineExceeded,
                      waits ? "the deadline passed while the request waited for its model"
                            : "the deadline passed while the request ran"});
  }
  if (!state.deadlines.empty()) {
    core.out.wake_by(state.deadlines.begin()->first);
  }
}

}  // namespace heddle::core::manager
