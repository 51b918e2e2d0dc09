#pragma once

#include <cstdint>
#include <string>

namespace heddle {

/// Memory of the host, as far as this process may use it.
struct HostMemory {
  std::uint64_t total = 0;      ///< [bytes]
  std::uint64_t available = 0;  ///< [bytes] Free, or taken back from caches when it is wanted.
  /// The control group whose limit leaves the least available, as its path; empty where that is
  /// the host itself. Containers and services of systemd have such limits.
  std::string group{};
};

/// Asks the kernel, and the control groups (version 1 or 2) that this process is in with all those
/// above them. What cannot be read does not limit. `root` has the kernel's files in its `proc` and
/// `sys`.
[[nodiscard]] HostMemory host_memory(const std::string& root = "");

}  // namespace heddle
