#pragma once

namespace heddle::worker {

/// Has this thread, and those that it starts from now on, go before all that is as urgent as it
/// was: one step of priority more, where it has one (SCHED_RR or SCHED_FIFO, as under `chrt`). A
/// paced step stands for an accelerator's, which no program on the host holds up; on few cores the
/// gateway would. Does nothing elsewhere, and where it may not.
void take_precedence();

}  // namespace heddle::worker
