#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "base/units.h"
#include "cli/listening.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "config/command_line.h"
#include "config/config.h"
#include "config/fallback.h"
#include "fetch/url.h"
#include "gateway/tls_files.h"
#include "host/opened_model.h"
#include "host/setup.h"
#include "policy/admission.h"

namespace heddle::cli {

namespace {

/// What keeps a model from being served: its files, devices that lack operations for it, or a
/// memory that is too small for it. `offers` is what this host offers of all models, as the server
/// has it, so that what passes here serves there. Empty: nothing does.
std::string problem_of(const config::Config& config,
                       const host::OpenedModel& model,
                       const std::vector<host::Offer>& offers) {
  if (!model.ranks) {
    return model.ranks.error().message;
  }
  const config::DeviceConfig* largest = nullptr;
  for (const config::DeviceConfig& device : config.devices) {
    if (config::runs_models(device) && (largest == nullptr || device.memory > largest->memory)) {
      largest = &device;
    }
  }
  if (largest == nullptr) {
    return "all devices are external, which only engines can use; add one of kind cpu or cuda";
  }
  const auto offer = std::ranges::find(offers, model.config.id, &host::Offer::name);
  if (offer != offers.end() && offer->failure) {
    return offer->failure->message;
  }
  const std::uint64_t pages = largest->memory / largest->page;
  const policy::Footprint& footprint = host::footprint_on(*largest, model.ranks->front());
  if (static_cast<std::uint64_t>(policy::pages_to_load(footprint)) <= pages) {
    return {};
  }
  const bool has_experts = model.config.block() == 1 && model.ranks->front().spec.experts.count > 0;
  return "needs " + policy::describe(footprint) + " of " + format_bytes(largest->page) +
         ", but the largest device, " + largest->name + ", has " + std::to_string(pages) + " (" +
         format_bytes(largest->memory) + "); give it more memory, " +
         (has_experts && largest->kind == config::DeviceKind::kCpu
              ? "leave more of its experts in host memory (`experts.resident`), "
              : "") +
         "or take the model out";
}

/// What keeps an engine from being started. Empty: nothing that can be seen without starting it.
std::string problem_of(const config::EngineConfig& engine) {
  std::vector<std::string> programs;
  if (!engine.container.image.empty()) {
    programs.push_back(engine.container.runtime);
  } else if (!engine.command.empty()) {
    programs.push_back(engine.command.front());
  }
  if (!engine.stop_command.empty()) {
    programs.push_back(engine.stop_command.front());
  }
  for (const std::string& program : programs) {
    if (config::find_program(program, config::process_environment).empty()) {
      return "the program " + program +
             " is not there, or may not be run; install it, or name it with its folder";
    }
  }
  return {};
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += (text.empty() ? "" : ", ") + word;
  }
  return text;
}

/// Shows how an engine was understood.
void show(const config::ModelConfig& model) {
  const config::EngineConfig& engine = *model.engine;
  std::string how = config::join_command(engine.command);
  if (!engine.container.image.empty()) {
    how = engine.container.runtime + " run " + config::join_command(engine.container.options) +
          " " + engine.container.image + " " + config::join_command(engine.container.args);
  }
  std::vector<std::string> levels;
  for (const spec::SuspendLevel level : engine.suspend) {
    levels.emplace_back(spec::name(level));
  }
  const char* share = engine.further_devices.empty() ? "device" : "each of the devices";
  std::printf("model %s: %s, %s of %s %s\n",
              model.id.c_str(),
              engine.kind == spec::EngineKind::kGeneric ? "an engine"
                                                        : std::string(name(engine.kind)).c_str(),
              engine.memory > 0 ? format_bytes(engine.memory).c_str() : "a share to be measured",
              share,
              device_names(engine).c_str());
  std::printf("  started by    %s\n", how.empty() ? "somebody else" : how.c_str());
  std::printf("  listens at    %s, ready when %s\n",
              engine.upstream.url().c_str(),
              engine.health_path.empty() ? "the port is open"
                                         : (engine.health_path + " answers 200").c_str());
  std::printf("  makes way by  %s\n", joined(levels).c_str());
  if (!model.displaces.empty()) {
    std::printf("  displaces     %s\n", joined(model.displaces).c_str());
  }
}

/// Reads the certificate and its key as the server does; 0 where nothing is wrong with them.
int check_certificate(const config::Config& config) {
  if (!config.tls) {
    return 0;
  }
  const Result<gateway::TlsFiles> files = gateway::TlsFiles::open(*config.tls);
  if (!files) {
    return fail(
        {.code = files.error().code, .message = config.file + ": " + files.error().message});
  }
  for (const std::string& warning : files->warnings()) {
    std::printf("warning: %s\n", warning.c_str());
  }
  return 0;
}

}  // namespace

int config_check(const std::string& file, const std::vector<std::string>& listen) {
  Result<config::Config> config = config::load_config(file);
  if (!config) {
    return fail(config.error());
  }
  if (const Result<void> taken = listen_instead(listen, *config); !taken) {
    return fail(taken.error());
  }
  const std::int64_t batch_tokens = host::choose_batch_tokens(*config);
  const Result<agent::AgentSetup> setup = host::agent_setup(*config, batch_tokens);
  if (!setup) {
    return fail({.code = setup.error().code, .message = file + ": " + setup.error().message});
  }
  for (const auto& warnings : {config->warnings, open_doors(*config)}) {
    for (const std::string& warning : warnings) {
      std::printf("warning: %s\n", warning.c_str());
    }
  }
  int status = check_certificate(*config);
  std::size_t adapters = 0;
  for (const config::ModelConfig& model : config->models) {
    if (!model.engine) {
      continue;
    }
    show(model);
    if (const std::string problem = problem_of(*model.engine); !problem.empty()) {
      status = fail(
          {.code = Code::kNotFound, .message = file + ": models." + model.id + ": " + problem});
    }
  }
  const std::vector<host::OpenedModel> models = host::open_models(
      *config, {.page_bytes = setup->page_bytes, .max_batch_tokens = batch_tokens});
  const std::vector<host::Offer> offers = host::offers(*config, HostId(0), models);
  for (const host::OpenedModel& model : models) {
    if (model.config.engine) {
      continue;
    }
    if (!model.known) {
      std::printf(
          "model %s: not in the cache; the server asks %s what it is when it starts, and fetches "
          "it "
          "when it is loaded; `heddle pull %s` fetches it now\n",
          model.config.id.c_str(),
          fetch::shown(model.source).c_str(),
          model.source.c_str());
      continue;
    }
    if (const std::string problem = problem_of(*config, model, offers); !problem.empty()) {
      status = fail({.code = Code::kInvalidArgument,
                     .message = file + ": models." + model.config.id + ": " + problem});
    }
    for (const auto& [adapter, why] : model.adapter_failures) {
      status = fail({.code = Code::kInvalidArgument,
                     .message = file + ": models." + adapter + ": " + why.message});
    }
    adapters += model.config.adapters.size();
  }
  if (status == 0) {
    const std::string beside = adapters > 0 ? ", adapters: " + std::to_string(adapters) : "";
    std::printf("%s: models: %zu%s, devices: %zu, nothing wrong\n",
                file.c_str(),
                config->models.size(),
                beside.c_str(),
                config->devices.size());
  }
  return status;
}

int config_schema() {
  std::fputs(config::config_schema().c_str(), stdout);
  return 0;
}

}  // namespace heddle::cli
