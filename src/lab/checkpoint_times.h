#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "external/device_checkpoint.h"

#include <sys/types.h>

namespace heddle::lab {

/// What saving and restoring a process with so much memory of a GPU took [s].
struct CheckpointSample {
  std::uint64_t bytes = 0;
  double save = 0;  ///< Locking included.
  double restore = 0;
  std::string skipped{};  ///< Why there are no times.
};

/// A process that holds memory of a GPU and nothing else, to be saved and restored. It ends with
/// this object, and with the process that made it.
class CheckpointSubject {
 public:
  /// Forks: to be made before this process has threads or uses the driver, which does not live on
  /// in a child.
  CheckpointSubject();
  ~CheckpointSubject();
  CheckpointSubject(const CheckpointSubject&) = delete;
  CheckpointSubject& operator=(const CheckpointSubject&) = delete;

  /// Has it hold `bytes` of GPU `ordinal`, and times its checkpoint. Where that does not go the
  /// sample says why.
  CheckpointSample time(external::DeviceCheckpoint& checkpoint, int ordinal, std::uint64_t bytes);

 private:
  pid_t pid_ = -1;
  Descriptor socket_{};  ///< Of packets: what it is to hold, and what came of it.
};

/// 4, 16 and 64 GiB by CUDA's process checkpoint, as far as driver and device have it.
[[nodiscard]] std::vector<CheckpointSample> time_checkpoints(CheckpointSubject& subject,
                                                             int ordinal,
                                                             std::uint64_t memory);

/// Rows of a table for people, the head first.
[[nodiscard]] std::vector<std::vector<std::string>> checkpoint_table(
    const std::vector<CheckpointSample>& samples);

}  // namespace heddle::lab
