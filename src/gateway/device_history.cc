#include "gateway/device_history.h"

#include <chrono>

namespace heddle::gateway {

void DeviceHistory::keep(Instant at, std::string devices) {
  bytes_ += devices.size();
  samples_.emplace_back(at, std::move(devices));
  while (samples_.size() > 1 && (samples_.front().first < at - kSpan || bytes_ > kBytesMost)) {
    bytes_ -= samples_.front().second.size();
    samples_.pop_front();
  }
}

std::string DeviceHistory::json(Instant now) const {
  std::string text = R"({"samples":[)";
  for (const auto& [at, devices] : samples_) {
    const auto age = std::chrono::duration_cast<std::chrono::milliseconds>(now - at);
    text += text.ends_with('[') ? "" : ",";
    text += R"({"age_ms":)" + std::to_string(age.count()) + R"(,"memory":)" + devices + "}";
  }
  return text + "]}";
}

}  // namespace heddle::gateway
