#include "config/blocks.h"

#include <algorithm>

namespace heddle::config {
namespace {

bool alike(const DeviceConfig& a, const DeviceConfig& b) {
  return a.kind == b.kind && a.memory == b.memory && a.prefix_cache == b.prefix_cache &&
         a.copy == b.copy;
}

/// "left, right": of those that run models of ours.
std::string names_of(const std::vector<DeviceConfig>& devices) {
  std::string names;
  for (const DeviceConfig& device : devices) {
    if (runs_models(device)) {
      names += (names.empty() ? "" : ", ") + device.name;
    }
  }
  return names;
}

void check_names(const Config& config,
                 const ModelConfig& model,
                 std::vector<std::string>& problems) {
  const std::string what = "models." + model.id + ".devices: ";
  for (const std::string& name : model.devices) {
    if (std::none_of(config.devices.begin(), config.devices.end(), [&](const auto& device) {
          return device.name == name && runs_models(device);
        })) {
      problems.push_back(what + "there is no \"" + name +
                         "\" that runs models; there are: " + names_of(config.devices));
    }
  }
  if (!model.devices.empty() && model.block() > 1) {
    problems.push_back(what + "cannot be chosen for a " +
                       (model.tensor_parallel > 1 ? "sharded model" : "model in stages") +
                       ", which takes any block of " + std::to_string(model.block()) + " devices");
  }
}

}  // namespace

std::vector<std::vector<std::size_t>> device_blocks(const Config& config, std::int64_t size) {
  std::vector<std::vector<std::size_t>> blocks;
  std::vector<std::size_t> block;
  for (std::size_t i = 0; i < config.devices.size(); ++i) {
    if (!runs_models(config.devices[i])) {
      continue;
    }
    block.push_back(i);
    if (std::ssize(block) < size) {
      continue;
    }
    if (std::all_of(block.begin(), block.end(), [&](std::size_t member) {
          return alike(config.devices[member], config.devices[block.front()]);
        })) {
      blocks.push_back(block);
    }
    block.clear();
  }
  return blocks;
}

std::vector<std::string> block_problems(const Config& config, bool by_host) {
  std::vector<std::string> problems;
  for (const ModelConfig& model : config.models) {
    check_names(config, model, problems);
    if (model.block() == 1) {
      continue;
    }
    const std::string what =
        "models." + model.id +
        (model.tensor_parallel > 1 ? ".tensor_parallel: " : ".pipeline_parallel: ");
    const std::string ranks = std::to_string(model.block());
    if (model.engine) {
      problems.push_back(what + "is for models that heddle runs itself, not for other engines");
    } else if (by_host || (config.cluster && model.pipeline_parallel > 1)) {
      continue;  // Its stages may be on several hosts, which only the manager knows.
    } else if (device_blocks(config, model.block()).empty()) {
      problems.push_back(what + ranks + " devices that follow each other, of the same memory, " +
                         "prefix_cache and copy, are needed: the first " + ranks +
                         " of kind cpu or cuda in `devices`, or the next " + ranks +
                         ", and so on; there are none");
    }
  }
  return problems;
}

}  // namespace heddle::config
