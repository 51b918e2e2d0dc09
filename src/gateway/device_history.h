#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <utility>

#include "base/time.h"

namespace heddle::gateway {

inline constexpr Duration kDeviceHistoryPeriod = std::chrono::seconds(2);

/// How the memory of devices was in the last minutes, for who opens the page later. Loop thread.
class DeviceHistory {
 public:
  static constexpr Duration kSpan = std::chrono::minutes(5);
  /// Of all that is kept: where there are hundreds of devices, fewer minutes are.
  static constexpr std::size_t kBytesMost = 4U << 20U;

  /// Takes what GET /api/devices says at a time that is none of the past.
  void keep(Instant at, std::string devices);

  /// {"samples": [{"age_ms": 2000, "memory": what GET /api/devices said then}, ...]}, oldest first.
  [[nodiscard]] std::string json(Instant now) const;

 private:
  std::deque<std::pair<Instant, std::string>> samples_{};
  std::size_t bytes_ = 0;
};

}  // namespace heddle::gateway
