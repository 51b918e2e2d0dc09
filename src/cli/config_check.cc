#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "base/units.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "config/config.h"
#include "store/inspect.h"
#include "store/model_source.h"

namespace heddle::cli {

namespace {

/// What keeps a model from being served: its files, or a memory that is too small for it.
std::vector<std::string> problems_of(const config::Config& config,
                                     const config::ModelConfig& model) {
  const store::ModelPlaces places =
      store::find_places(config.directory, store::process_environment());
  const Result<std::filesystem::path> directory = store::find_model(model.path, places);
  if (!directory) {
    return {directory.error().message};
  }
  const Result<store::Inspection> inspection = store::inspect(*directory);
  if (!inspection) {
    return {inspection.error().message};
  }
  std::vector<std::string> problems = inspection->problems;
  std::uint64_t largest = 0;
  for (const config::DeviceConfig& device : config.devices) {
    largest = std::max(largest, device.memory);
  }
  for (const spec::MemoryNeeds& needs : inspection->needs) {
    if (needs.dtype == model.dtype && needs.smallest > largest) {
      problems.push_back("needs " + format_bytes(needs.smallest) + " of memory (" +
                         spec::describe(needs) + "), but the largest device has " +
                         format_bytes(largest));
    }
  }
  return problems;
}

}  // namespace

int config_check(const std::string& file) {
  const Result<config::Config> config = config::load_config(file);
  if (!config) {
    return fail(config.error());
  }
  int status = 0;
  for (const config::ModelConfig& model : config->models) {
    for (const std::string& problem : problems_of(*config, model)) {
      status = fail({.code = Code::kInvalidArgument,
                     .message = file + ": models." + model.id + ": " + problem});
    }
  }
  if (status == 0) {
    std::printf("%s: %zu models on %zu devices, and nothing wrong\n",
                file.c_str(),
                config->models.size(),
                config->devices.size());
  }
  return status;
}

int config_schema() {
  std::fputs(config::config_schema().c_str(), stdout);
  return 0;
}

}  // namespace heddle::cli
