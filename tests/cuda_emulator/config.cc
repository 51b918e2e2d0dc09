#include "cuda_emulator/config.h"

#include <charconv>

namespace emulator {
namespace {

std::size_t* field(std::string_view key, Config& config) {
  struct Key {
    std::string_view name;
    std::size_t* value;
  };
  const Key keys[] = {
      {"devices", &config.devices},
      {"memory", &config.memory},
      {"held", &config.held},
      {"granularity", &config.granularity},
      {"driver", &config.driver},
      {"capability", &config.capability},
      {"vmm", &config.vmm},
      {"flags", &config.flags},
      {"pin_max", &config.pin_max},
      {"unmap_many", &config.unmap_many},
      {"read_only", &config.read_only},
      {"strict", &config.strict},
      {"addresses", &config.addresses},
      {"peers", &config.peers},
      {"link", &config.link},
      {"seed", &config.seed},
  };
  for (const Key& each : keys) {
    if (each.name == key) {
      return each.value;
    }
  }
  return nullptr;
}

bool read_size(std::string_view text, std::size_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  unsigned shift = 0;
  if (unit == "KiB") {
    shift = 10;
  } else if (unit == "MiB") {
    shift = 20;
  } else if (unit == "GiB") {
    shift = 30;
  } else if (!unit.empty()) {
    return false;
  }
  value <<= shift;
  return error == std::errc();
}

}  // namespace

std::string read_config(std::string_view text, Config& config) {
  while (!text.empty()) {
    const std::string_view entry = text.substr(0, text.find(','));
    text.remove_prefix(entry.size() < text.size() ? entry.size() + 1 : entry.size());
    const std::size_t equals = entry.find('=');
    std::size_t* const value = field(entry.substr(0, equals), config);
    if (equals == std::string_view::npos || value == nullptr ||
        !read_size(entry.substr(equals + 1), *value)) {
      return "emulated driver: '" + std::string(entry) + "' is no setting";
    }
  }
  return "";
}

}  // namespace emulator
