#pragma once

#include <memory>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "external/phase_timer.h"

#include <sys/types.h>

namespace heddle::external {

/// Moves what a process has on accelerators into host memory, and back, while it lives: the steps
/// of CUDA's process checkpoint. The process must be able to run meanwhile, since its driver does
/// the work in a thread of its own: never while it is frozen. Calls block for as long as the memory
/// takes to be moved. Any thread, one call at a time for each process.
class DeviceCheckpoint {
 public:
  virtual ~DeviceCheckpoint() = default;
  /// Whether it uses an accelerator at all.
  [[nodiscard]] virtual bool uses_device(pid_t pid) = 0;
  /// Lets it begin nothing new on its devices, and waits until what it began has ended.
  virtual Result<void> lock(pid_t pid, Duration patience) = 0;
  /// Its device memory goes to the host; then it holds nothing of its devices.
  virtual Result<void> save(pid_t pid) = 0;
  virtual Result<void> restore(pid_t pid) = 0;
  virtual Result<void> unlock(pid_t pid) = 0;
};

/// By the CUDA driver, which is looked for at run time. kUnavailable, with the reason, where there
/// is none, or one too old (before 570).
[[nodiscard]] Result<std::unique_ptr<DeviceCheckpoint>> open_cuda_checkpoint();

/// Those whose device memory is in the host's.
struct Saved {
  std::vector<pid_t> pids{};
  std::vector<Phase> phases{};  ///< "lock", "save".
};

/// Saves those of `pids` that use devices: all are locked before any is saved, since they may wait
/// for each other. Where one fails, what was done to the others is undone and they run on.
/// kFailedPrecondition where none uses a device.
[[nodiscard]] Result<Saved> save_all(DeviceCheckpoint& checkpoint,
                                     const std::vector<pid_t>& pids,
                                     Duration lock_patience);
/// Undoes it: all are restored before any is unlocked. Returns its phases, "restore" and "unlock".
/// On an error the processes are of no use any more.
[[nodiscard]] Result<std::vector<Phase>> restore_all(DeviceCheckpoint& checkpoint,
                                                     const std::vector<pid_t>& pids);

}  // namespace heddle::external
