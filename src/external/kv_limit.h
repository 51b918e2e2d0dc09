#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

#include <sys/types.h>

namespace heddle::external {

/// Where segments of shared memory are files.
inline constexpr const char* kSharedMemory = "/dev/shm";

/// What an engine with kvcached says of its KV, over all of its pools [bytes].
struct KvUse {
  std::uint64_t limit = 0;     ///< That it was told last; as it starts, all its addresses.
  std::uint64_t used = 0;      ///< Of pages that hold KV, or prefixes that it keeps.
  std::uint64_t prealloc = 0;  ///< Of pages that it has mapped ahead.

  /// What it has of its device.
  [[nodiscard]] std::uint64_t mapped() const { return used + prealloc; }
  friend bool operator==(const KvUse&, const KvUse&) = default;
};

/// The segments of one engine: NAME, and NAME_g1, NAME_g2, ... where it has pools of several sizes.
/// Each is three integers of 64 bits: limit, used, prealloc (kvcached's MemInfoStruct; its versions
/// 0.1.1 to 0.1.6 have the same). Whoever reads holds a shared flock of the file, whoever writes an
/// exclusive one, as kvcached does. Does not wait for a lock: an engine may have been stopped while
/// it holds it. Thread-compatible.
class KvSegments {
 public:
  /// @param directory  kSharedMemory but in tests.
  KvSegments(std::string directory, std::string name);

  /// kNotFound where there is no segment, kCorrupt where one is not kvcached's or says what cannot
  /// be, kUnavailable where the engine holds it locked just now.
  [[nodiscard]] Result<KvUse> read() const;
  /// Several pools divide it as they divide their limits now. The engine notices it within
  /// kNoticed; pages that hold KV go when their requests do. Errors as read(); kInvalidArgument for
  /// less than a byte a pool, which kvcached takes no notice of.
  [[nodiscard]] Result<void> set_limit(std::uint64_t bytes) const;
  /// Forgets what an earlier engine left; not while one runs.
  void remove() const;

  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  [[nodiscard]] std::vector<std::string> paths() const;

  std::string directory_;
  std::string name_;
};

/// A name for the segments of an engine of this process: nobody else's on this machine, and such
/// that kvcached takes it as it is (letters, digits, "_" and "-", 64 at most).
[[nodiscard]] std::string segment_name(pid_t owner, const std::string& model);

/// Removes segments that were named for processes which are gone. Returns how many.
std::int64_t remove_left_segments(const std::string& directory);

}  // namespace heddle::external
