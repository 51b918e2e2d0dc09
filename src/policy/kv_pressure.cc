#include "policy/kv_pressure.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace heddle::policy {

double kv_demand(double tokens_per_second, std::int64_t kv_bytes, Duration tpot) {
  HEDDLE_CHECK(tpot > Duration{});
  return tokens_per_second * static_cast<double>(kv_bytes) / to_seconds(tpot);
}

double kv_pressure(double demand, std::int64_t kv_bytes) {
  return kv_bytes > 0 ? demand / static_cast<double>(kv_bytes)
                      : std::numeric_limits<double>::infinity();
}

double kv_pressure(const KvDevice& device) {
  return kv_pressure(device.demand, device.bytes - device.taken);
}

std::vector<KvDevice> kv_loads(std::span<const KvModel> models, std::span<const KvDevice> devices) {
  std::vector<KvDevice> loads(devices.begin(), devices.end());
  std::sort(
      loads.begin(), loads.end(), [](const KvDevice& a, const KvDevice& b) { return a.id < b.id; });
  for (const KvModel& model : models) {
    for (const DeviceId id : model.at) {
      const auto load = std::lower_bound(
          loads.begin(), loads.end(), id, [](const KvDevice& d, DeviceId x) { return d.id < x; });
      if (load != loads.end() && load->id == id) {
        load->demand += model.demand / static_cast<double>(model.parts);
        load->taken += (model.bytes + model.parts - 1) / model.parts;
      }
    }
  }
  return loads;
}

}  // namespace heddle::policy
