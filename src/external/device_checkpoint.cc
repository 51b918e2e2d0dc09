#include "external/device_checkpoint.h"

#include <string>

namespace heddle::external {

namespace {

/// Says of which process an error is.
Error of(pid_t pid, const Error& error) {
  return {error.code, "process " + std::to_string(pid) + ": " + error.message};
}

/// What cannot be undone is said with why it had to be.
void add_trouble(Error& error, const std::string& what, pid_t pid, const Result<void>& result) {
  if (!result) {
    error.message += "; " + what + " process " + std::to_string(pid) +
                     " then failed too: " + result.error().message;
  }
}

}  // namespace

Result<Saved> save_all(DeviceCheckpoint& checkpoint,
                       const std::vector<pid_t>& pids,
                       Duration lock_patience) {
  PhaseTimer timer;
  std::vector<pid_t> locked;
  std::vector<pid_t> saved;
  const auto undo = [&](Error error) {
    for (const pid_t pid : saved) {
      add_trouble(error, "restoring", pid, checkpoint.restore(pid));
    }
    for (const pid_t pid : locked) {
      add_trouble(error, "unlocking", pid, checkpoint.unlock(pid));
    }
    return error;
  };
  for (const pid_t pid : pids) {
    if (!checkpoint.uses_device(pid)) {
      continue;
    }
    if (const Result<void> result = checkpoint.lock(pid, lock_patience); !result) {
      return undo(of(pid, result.error()));
    }
    locked.push_back(pid);
  }
  if (locked.empty()) {
    return Error{Code::kFailedPrecondition, "none of its processes uses an accelerator"};
  }
  timer.note("lock");
  for (const pid_t pid : locked) {
    if (const Result<void> result = checkpoint.save(pid); !result) {
      return undo(of(pid, result.error()));
    }
    saved.push_back(pid);
  }
  timer.note("save");
  return Saved{.pids = std::move(saved), .phases = timer.phases()};
}

Result<std::vector<Phase>> restore_all(DeviceCheckpoint& checkpoint,
                                       const std::vector<pid_t>& pids) {
  PhaseTimer timer;
  for (const pid_t pid : pids) {
    if (const Result<void> result = checkpoint.restore(pid); !result) {
      return of(pid, result.error());
    }
  }
  timer.note("restore");
  for (const pid_t pid : pids) {
    if (const Result<void> result = checkpoint.unlock(pid); !result) {
      return of(pid, result.error());
    }
  }
  timer.note("unlock");
  return timer.phases();
}

}  // namespace heddle::external
