#include "manager/setup.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>

#include "base/check.h"
#include "config/blocks.h"

#include <unistd.h>

namespace heddle::manager {

namespace {

/// Shorter chunks of prefill cost more in reading weights than they help others.
constexpr std::int64_t kMinPrefillTokens = 16;

std::string text(std::uint64_t number) {
  return std::to_string(number);
}

/// All devices count in pages of one size.
std::uint64_t page_of(const config::Config& config) {
  const auto first =
      std::find_if(config.devices.begin(), config.devices.end(), config::runs_models);
  return first == config.devices.end() ? config.devices.front().page : first->page;
}

/// Where engines that run are written down, so that the next start finds what this one leaves: with
/// the data, else where the system keeps such things until it is restarted.
std::string record_directory(const config::Config& config) {
  if (!config.data_dir.empty()) {
    return config.data_dir + "/engines";
  }
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  const std::string base = runtime != nullptr && *runtime != '\0'
                               ? std::string(runtime)
                               : "/tmp/heddle-" + std::to_string(::getuid());
  return base + "/heddle-" + std::to_string(std::hash<std::string>{}(config.file)) + "/engines";
}

/// The device that an engine is to run on.
DeviceId engine_device(const config::Config& config, const config::EngineConfig& engine) {
  const auto found = std::find_if(config.devices.begin(),
                                  config.devices.end(),
                                  [&](const auto& device) { return device.name == engine.device; });
  HEDDLE_CHECK(found != config.devices.end());
  return DeviceId(static_cast<std::uint64_t>(found - config.devices.begin()));
}

/// Whether a model that one device can hold may run there.
bool may_run_on(const config::ModelConfig& model, const config::DeviceConfig& device) {
  return config::runs_models(device) &&
         (model.devices.empty() ||
          std::find(model.devices.begin(), model.devices.end(), device.name) !=
              model.devices.end());
}

/// What an engine may have of its device. One that was given all of it gets whole pages of it.
std::int64_t engine_pages(const config::Config& config, const config::EngineConfig& engine) {
  const std::uint64_t page = page_of(config);
  const std::uint64_t device = config.devices.at(engine_device(config, engine).value()).memory;
  return static_cast<std::int64_t>(
      std::min((engine.memory + page - 1) / page, std::max<std::uint64_t>(device / page, 1)));
}

policy::WantedObjectives objectives(const config::SloConfig& slo) {
  const auto wanted = [](Duration time) {
    return time > Duration{} ? std::optional(time) : std::nullopt;
  };
  return {.ttft = wanted(slo.ttft), .tpot = wanted(slo.tpot)};
}

core::ManagerModel external_model(const config::Config& config,
                                  const std::vector<ConfiguredModel>& models,
                                  const ConfiguredModel& model) {
  const config::EngineConfig& engine = *model.config.engine;
  const DeviceId device = engine_device(config, engine);
  const bool keeps_requests =
      std::any_of(engine.suspend.begin(), engine.suspend.end(), spec::keeps_requests);
  core::ManagerModel entry{
      .id = model.id,
      .name = model.config.id,
      .image_bytes = engine.memory,
      .context = 1,  // Tokens are the engine's own affair.
      .pin = model.config.pin,
      .min_residence = model.config.min_residence,
      .slo = objectives(model.config.slo),
      .footprints = {{device, {.image_pages = engine_pages(config, engine)}}},
      .external = core::ExternalModel{.drain = keeps_requests ? std::optional(engine.drain)
                                                              : std::nullopt}};
  for (const ConfiguredModel& other : models) {
    if (std::count(model.config.displaces.begin(), model.config.displaces.end(), other.config.id) >
        0) {
      entry.displaces.push_back(other.id);
    }
  }
  std::sort(entry.displaces.begin(), entry.displaces.end());
  return entry;
}

core::ManagerModel own_model(const ConfiguredModel& model) {
  const std::int64_t longest = model.host->spec.max_position;
  return {.id = model.id,
          .name = model.config.id,
          .image_bytes = model.host->image_bytes,
          .context = model.config.context > 0 ? std::min(model.config.context, longest) : longest,
          .pin = model.config.pin,
          .min_residence = model.config.min_residence,
          .slo = objectives(model.config.slo),
          .batch = model.config.batch};
}

/// Says of a sharded model, `first` being its rank 0, where its ranks go; gives the others.
std::vector<core::ManagerModel> place_shards(const config::Config& config,
                                             const ConfiguredModel& model,
                                             core::ManagerModel& first) {
  std::vector<core::ManagerModel> shards;
  for (const agent::HostModel& host : model.shards) {
    core::ManagerModel& shard = shards.emplace_back(own_model(model));
    shard.id = host.id;
    shard.name = host.name;
    shard.image_bytes = host.image_bytes;
    shard.part_of = first.id;
  }
  for (const std::vector<std::size_t>& block :
       shards.empty() ? std::vector<std::vector<std::size_t>>{}
                      : config::device_blocks(config, std::ssize(shards) + 1)) {
    const DeviceId leader(block.front());
    first.footprints[leader] = footprint_on(config.devices[block.front()], *model.host);
    for (std::size_t i = 0; i < shards.size(); ++i) {
      const DeviceId device(block[i + 1]);
      shards[i].footprints[device] = footprint_on(config.devices[block[i + 1]], model.shards[i]);
      first.groups[leader].push_back({.model = shards[i].id, .device = device});
    }
  }
  return shards;
}

bool same_device(const config::DeviceConfig& a, const config::DeviceConfig& b) {
  return a.name == b.name && a.kind == b.kind && a.cores == b.cores && a.gpu == b.gpu &&
         a.memory == b.memory && a.page == b.page && a.load_bandwidth == b.load_bandwidth &&
         a.copy == b.copy && a.pace.step == b.pace.step && a.pace.token == b.pace.token &&
         a.pace.context == b.pace.context && a.step_budget == b.step_budget &&
         a.prefix_cache == b.prefix_cache;
}

}  // namespace

const policy::Footprint& footprint_on(const config::DeviceConfig& device,
                                      const agent::HostModel& model) {
  return device.kind == config::DeviceKind::kCuda ? model.gpu_footprint : model.footprint;
}

Result<agent::AgentSetup> agent_setup(const config::Config& config, std::int64_t max_batch_tokens) {
  const auto first =
      std::find_if(config.devices.begin(), config.devices.end(), config::runs_models);
  const std::uint64_t page = page_of(config);
  agent::AgentSetup setup{.page_bytes = static_cast<std::size_t>(page),
                          .host_pages = static_cast<std::int64_t>(config.host.memory / page),
                          .log_level = config.log_level,
                          .log_format = config.log_format,
                          .event_log = config.event_log};
  const auto own = std::count_if(config.models.begin(), config.models.end(), [](const auto& model) {
    return !model.engine.has_value();
  });
  std::uint64_t id = 0;
  if (first == config.devices.end()) {
    setup.host_pages = 1;  // Nobody's weights are to be kept.
  }
  for (const config::DeviceConfig& device : config.devices) {
    const DeviceId here(id++);
    if (!config::runs_models(device)) {
      continue;
    }
    if (device.page != page) {
      return Error{Code::kInvalidArgument,
                   "device " + device.name + " has pages of " + text(device.page) +
                       " bytes and device " + first->name + " of " + text(page) +
                       "; all devices of a host share one arena and so one page size"};
    }
    if (device.memory < page) {
      return Error{Code::kInvalidArgument,
                   "device " + device.name + " has " + text(device.memory) +
                       " bytes of memory, less than one page of " + text(page)};
    }
    setup.devices.push_back(
        {.id = here,
         .name = device.name,
         .cores = device.cores,
         .gpu = device.kind == config::DeviceKind::kCuda ? std::optional(device.gpu) : std::nullopt,
         .pages = static_cast<std::int64_t>(device.memory / page),
         .load_bandwidth = device.load_bandwidth,
         .copy = device.copy,
         .pace = {.step = device.pace.step,
                  .token = device.pace.token,
                  .context = device.pace.context},
         .step = {.budget = device.step_budget,
                  .max_batch_tokens = max_batch_tokens,
                  .min_prefill_tokens = kMinPrefillTokens},
         .prefix_cache = device.prefix_cache,
         .queue = config.planner.queue == config::QueueOrder::kArrival
                      ? policy::QueueRule::kArrival
                      : policy::QueueRule::kMooreHodgson,
         .fixed_parts = config.planner.kv == config::KvSharing::kStatic ? own : 0});
  }
  if (setup.host_pages < 1) {
    return Error{Code::kInvalidArgument,
                 "host has " + text(config.host.memory) +
                     " bytes of memory for images, less than one page of " + text(page)};
  }
  return setup;
}

Result<host::HostSetup> host_setup(const config::Config& config, std::int64_t max_batch_tokens) {
  Result<agent::AgentSetup> agent = agent_setup(config, max_batch_tokens);
  if (!agent) {
    return agent.error();
  }
  host::HostSetup setup{.agent = std::move(*agent), .engines = engine_host_setup(config)};
  for (std::size_t i = 0; i < config.devices.size(); ++i) {
    if (config.devices[i].kind == config::DeviceKind::kCuda) {
      setup.gpus[DeviceId(i)] = config.devices[i].gpu;
    }
  }
  return setup;
}

host::HostModels host_models(const config::Config& config,
                             const std::vector<ConfiguredModel>& models) {
  host::HostModels hosted{.engines = engines_setup(config, models),
                          .configured = hosted_engines(config, models)};
  for (const ConfiguredModel& model : models) {
    if (!model.external() && model.host) {
      hosted.own.push_back(*model.host);
      hosted.own.insert(hosted.own.end(), model.shards.begin(), model.shards.end());
    }
  }
  return hosted;
}

std::map<ModelId, serving::ServedModel> served_models(const std::vector<ConfiguredModel>& models) {
  std::map<ModelId, serving::ServedModel> served;
  for (const ConfiguredModel& model : models) {
    served[model.id] = {.image_bytes = model.host ? model.host->image_bytes : 0,
                        .failure = model.failure()};
  }
  return served;
}

core::PlannerOptions planner_options(const config::PlannerConfig& planner, Duration clock_offset) {
  return {.prewarm = planner.prewarm,
          .forecast = planner.forecast,
          .value = planner.value,
          .pressure = planner.pressure,
          .replicas = planner.replicas,
          .weave = planner.weave,
          .weave_share = planner.weave_share / 100.0,
          .share = planner.share,
          .evict = planner.evict,
          .period = planner.period,
          .calendar = {.window = planner.window,
                       .windows_per_day = planner.day / planner.window,
                       .offset = clock_offset}};
}

core::Configure core_setup(const config::Config& config,
                           const std::vector<ConfiguredModel>& models,
                           Duration clock_offset) {
  core::Configure configure;
  configure.options.queue_per_model = static_cast<std::size_t>(config.limits.queue);
  configure.options.planner = planner_options(config.planner, clock_offset);
  std::uint64_t id = 0;
  for (const config::DeviceConfig& device : config.devices) {
    configure.devices.push_back(
        {.id = DeviceId(id++),
         .name = device.name,
         .pages = static_cast<std::int64_t>(device.memory / page_of(config)),
         .page_bytes = page_of(config),
         .in_host_memory = device.kind == config::DeviceKind::kCpu});
  }
  for (const ConfiguredModel& model : models) {
    if (model.external()) {
      configure.models.push_back(external_model(config, models, model));
      continue;
    }
    if (!model.host) {
      continue;
    }
    core::ManagerModel entry = own_model(model);
    for (const core::ManagerDevice& device : configure.devices) {
      const config::DeviceConfig& here = config.devices.at(device.id.value());
      if (may_run_on(model.config, here) && model.shards.empty()) {
        entry.footprints[device.id] = footprint_on(here, *model.host);
      }
    }
    for (core::ManagerModel& shard : place_shards(config, model, entry)) {
      configure.models.push_back(std::move(shard));
    }
    configure.models.push_back(std::move(entry));
  }
  return configure;
}

external::EngineHostSetup engine_host_setup(const config::Config& config) {
  return {.page_bytes = static_cast<std::size_t>(page_of(config)),
          .record_directory = record_directory(config)};
}

core::ConfigureEngines engines_setup(const config::Config& config,
                                     const std::vector<ConfiguredModel>& models) {
  const std::uint64_t page = page_of(config);
  core::ConfigureEngines configure{.host_pages =
                                       static_cast<std::int64_t>(config.host.snapshots / page)};
  std::uint64_t id = 0;
  for (const config::DeviceConfig& device : config.devices) {
    const DeviceId here(id++);
    if (!config::runs_models(device)) {
      configure.devices.push_back(
          {.id = here, .pages = static_cast<std::int64_t>(device.memory / page)});
    }
  }
  for (const ConfiguredModel& model : models) {
    if (model.external()) {
      const config::EngineConfig& engine = *model.config.engine;
      configure.engines.push_back({.model = model.id,
                                   .device = engine_device(config, engine),
                                   .pages = engine_pages(config, engine),
                                   .levels = engine.suspend});
    }
  }
  return configure;
}

std::vector<external::ConfiguredEngine> hosted_engines(const config::Config& config,
                                                       const std::vector<ConfiguredModel>& models) {
  std::vector<external::ConfiguredEngine> engines;
  for (const ConfiguredModel& model : models) {
    if (model.external()) {
      const DeviceId device = engine_device(config, *model.config.engine);
      engines.push_back(
          {.model = model.id,
           .name = model.config.id,
           .accelerator = config.devices.at(device.value()).kind != config::DeviceKind::kCpu,
           .config = *model.config.engine});
    }
  }
  return engines;
}

std::vector<ModelId> to_preload(const config::Config& config,
                                const std::vector<ConfiguredModel>& models) {
  std::vector<ModelId> early;
  for (const ConfiguredModel& model : models) {
    const bool snapshot =
        model.external() && model.config.engine->snapshot == config::SnapshotPolicy::kOnStart;
    const auto& asked = config.preload;
    if (snapshot || std::count(asked.begin(), asked.end(), model.config.id) > 0) {
      early.push_back(model.id);
    }
  }
  return early;
}

Result<void> check_reload(const config::Config& before, const config::Config& now) {
  if (before.planner.window != now.planner.window || before.planner.day != now.planner.day ||
      before.data_dir != now.data_dir) {
    return Error{Code::kFailedPrecondition,
                 "reload configuration: `planner.window`, `planner.day` or `dataDir` has changed, "
                 "which takes a "
                 "restart"};
  }
  if (!std::equal(before.devices.begin(),
                  before.devices.end(),
                  now.devices.begin(),
                  now.devices.end(),
                  same_device)) {
    return Error{Code::kFailedPrecondition,
                 "reload configuration: `devices` has changed, which takes a restart"};
  }
  if (before.planner != now.planner) {
    return Error{Code::kFailedPrecondition,
                 "reload configuration: `planner` has changed, which takes a restart"};
  }
  if (before.host != now.host) {
    return Error{Code::kFailedPrecondition,
                 "reload configuration: `host` has changed, which takes a restart"};
  }
  return {};
}

}  // namespace heddle::manager
