#include <algorithm>
#include <cstdio>
#include <string>

#include "base/units.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "config/config.h"
#include "manager/model_registry.h"
#include "manager/setup.h"
#include "policy/admission.h"

namespace heddle::cli {

namespace {

/// What keeps a model from being served: its files, or a memory that is too small for it. Opens it
/// as the server does, so that what passes here serves there. Empty: nothing does.
std::string problem_of(const config::Config& config, const manager::ConfiguredModel& model) {
  if (!model.host) {
    return model.host.error().message;
  }
  const auto largest = std::max_element(
      config.devices.begin(), config.devices.end(), [](const auto& a, const auto& b) {
        return a.memory < b.memory;
      });
  const std::uint64_t pages = largest->memory / largest->page;
  const policy::Footprint& footprint = model.host->footprint;
  if (static_cast<std::uint64_t>(policy::pages_to_load(footprint)) <= pages) {
    return {};
  }
  return "needs " + policy::describe(footprint) + " of " + format_bytes(largest->page) +
         ", but the largest device, " + largest->name + ", has " + std::to_string(pages) + " (" +
         format_bytes(largest->memory) + "); give it more memory, or take the model out";
}

}  // namespace

int config_check(const std::string& file) {
  const Result<config::Config> config = config::load_config(file);
  if (!config) {
    return fail(config.error());
  }
  const std::int64_t batch_tokens = manager::choose_batch_tokens(*config);
  const Result<agent::AgentSetup> setup = manager::agent_setup(*config, batch_tokens);
  if (!setup) {
    return fail({.code = setup.error().code, .message = file + ": " + setup.error().message});
  }
  int status = 0;
  for (const manager::ConfiguredModel& model : manager::open_models(
           *config, {.page_bytes = setup->page_bytes, .max_batch_tokens = batch_tokens})) {
    if (const std::string problem = problem_of(*config, model); !problem.empty()) {
      status = fail({.code = Code::kInvalidArgument,
                     .message = file + ": models." + model.config.id + ": " + problem});
    }
  }
  if (status == 0) {
    std::printf("%s: models: %zu, devices: %zu, nothing wrong\n",
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
