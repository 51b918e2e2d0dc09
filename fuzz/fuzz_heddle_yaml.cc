// heddle.yaml: whatever is accepted keeps the promises of config.h; whatever is not is told where.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "config/config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const heddle::config::Machine machine{.cores = {0, 1}, .memory = 1ULL << 34U};
  const auto config = heddle::config::parse_config(
      text,
      "/etc/heddle.yaml",
      [](const std::string& name) {
        return name == "X" ? std::optional<std::string>("y") : std::nullopt;
      },
      machine);
  if (!config) {
    HEDDLE_CHECK(config.error().message.starts_with("/etc/heddle.yaml"));
    return 0;
  }
  HEDDLE_CHECK(!config->devices.empty());
  for (const auto& device : config->devices) {
    const bool external = device.kind == heddle::config::DeviceKind::kExternal;
    HEDDLE_CHECK(device.cores.empty() == external);
    HEDDLE_CHECK(device.memory >= device.page && device.page >= 4096);
    HEDDLE_CHECK(device.load_bandwidth == 0 || device.copy);
  }
  for (const auto& model : config->models) {
    if (!model.engine) {
      continue;
    }
    HEDDLE_CHECK(!model.engine->suspend.empty());
    HEDDLE_CHECK(model.engine->suspend.back() == heddle::spec::SuspendLevel::kStop);
    HEDDLE_CHECK(model.engine->upstream.port > 0 && !model.engine->device.empty());
  }
  HEDDLE_CHECK(config->limits.queue >= 1 && config->limits.connections >= 1);
  return 0;
}
