#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>

#include "base/ids.h"

namespace heddle::host {

/// What processes that are not ours hold of this host's GPUs, as NVIDIA's management library has
/// it: looked at every few seconds in a thread of its own, as the driver may take its time. Where
/// there is no such library the log says so once, and nothing is known.
class GpuWatch {
 public:
  /// Of these, by the CUDA driver's numbers. With none it does nothing.
  explicit GpuWatch(std::map<DeviceId, int> gpus);

  /// Bytes of the device that others held when it was last looked at. Nothing where that is not
  /// known, `running` of our own processes notwithstanding: a container may hide who they are.
  [[nodiscard]] std::optional<std::uint64_t> others_bytes(DeviceId device, bool running) const;

 private:
  struct Seen {
    std::uint64_t others = 0;
    bool ours = false;  ///< A process of ours was among those that hold some.
  };
  void run(const std::stop_token& stop);

  std::map<DeviceId, int> gpus_;
  mutable std::mutex mutex_{};
  std::map<DeviceId, Seen> seen_{};  // Guarded by mutex_.
  std::jthread thread_{};
};

}  // namespace heddle::host
