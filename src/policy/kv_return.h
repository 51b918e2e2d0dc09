#pragma once

#include <cstdint>

#include "base/time.h"

namespace heddle::policy {

/// KV of a prefix that lies beside a device's cache, and what computing it again would take.
struct KvReturn {
  std::int64_t pages = 0;   ///< That have it.
  Duration per_page{};      ///< What bringing one back took lately; 0: none was yet.
  std::int64_t tokens = 0;  ///< That would not be computed.
  Duration per_token{};     ///< What computing one takes, as measured; 0: nobody knows.
};

/// Whether bringing it back is quicker than computing it. Where one of the two is not known, it is
/// tried. Pure. O(1).
[[nodiscard]] bool worth_bringing_back(const KvReturn& kv);

/// `average` with a further measurement in it, which counts a fourth; the first one is all of it.
[[nodiscard]] Duration with_measured(Duration average, Duration measured);

}  // namespace heddle::policy
