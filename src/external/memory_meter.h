#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"

#include <sys/types.h>

namespace heddle::external {

/// Host memory of some processes [bytes]. A page that n processes map counts 1/n for each.
struct HostBytes {
  std::uint64_t total = 0;
  std::uint64_t file = 0;  ///< Of it, what files back: shared memory is not that.
};

/// Sums of /proc/PID/smaps_rollup: what the processes map, not what the page cache keeps for
/// them, which the kernel gives to others when they need it. Processes that are gone, or that we
/// may not look into, count nothing. Takes about 35 ms for each GiB in small pages.
[[nodiscard]] HostBytes host_bytes(const std::vector<pid_t>& pids);

/// What processes hold of accelerators, as their driver says. Any thread, one call at a time.
class DeviceMeter {
 public:
  virtual ~DeviceMeter() = default;
  /// Sum over all devices of this host [bytes].
  [[nodiscard]] virtual Result<std::uint64_t> device_bytes(const std::vector<pid_t>& pids) = 0;
};

/// By NVIDIA's management library, which is looked for at run time. kUnavailable, with the reason,
/// where there is none or it finds no driver. It knows processes by their numbers outside of
/// containers: inside of one it finds none of ours.
[[nodiscard]] Result<std::unique_ptr<DeviceMeter>> open_nvml();

}  // namespace heddle::external
