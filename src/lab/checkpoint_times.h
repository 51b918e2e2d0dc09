#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "external/device_checkpoint.h"
#include "lab/forked_process.h"

namespace heddle::lab {

/// What saving and restoring a process with so much memory of a GPU took [s].
struct CheckpointSample {
  std::uint64_t bytes = 0;
  double save = 0;  ///< Locking included.
  double restore = 0;
  std::string skipped{};  ///< Why there are no times.
};

/// A process that holds memory of a GPU and nothing else, to be saved and restored.
class CheckpointSubject {
 public:
  /// Forks, as ForkedProcess says.
  CheckpointSubject();

  /// Has it hold `bytes` of GPU `ordinal`, and times its checkpoint. Where that does not go the
  /// sample says why.
  CheckpointSample time(external::DeviceCheckpoint& checkpoint, int ordinal, std::uint64_t bytes);

 private:
  ForkedProcess process_;
};

/// 4, 16 and 64 GiB by CUDA's process checkpoint, as far as driver and device have it.
[[nodiscard]] std::vector<CheckpointSample> time_checkpoints(CheckpointSubject& subject,
                                                             int ordinal,
                                                             std::uint64_t memory);

/// Rows of a table for people, the head first.
[[nodiscard]] std::vector<std::vector<std::string>> checkpoint_table(
    const std::vector<CheckpointSample>& samples);

}  // namespace heddle::lab
