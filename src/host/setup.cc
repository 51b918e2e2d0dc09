#include "host/setup.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>

#include <unistd.h>

namespace heddle::host {

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
/// the data, else where the system keeps such things until it is restarted. Hosts of a cluster may
/// share a machine and a file.
std::string record_directory(const config::Config& config, HostId host) {
  const std::string name = host == HostId{} ? "engines" : "engines-" + text(host.value());
  if (!config.data_dir.empty()) {
    return config.data_dir + "/" + name;
  }
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  const std::string base = runtime != nullptr && *runtime != '\0'
                               ? std::string(runtime)
                               : "/tmp/heddle-" + std::to_string(::getuid());
  return base + "/heddle-" + std::to_string(std::hash<std::string>{}(config.file)) + "/" + name;
}

/// The device of this name, of those configured; their number where it is none.
std::size_t device_named(const config::Config& config, const std::string& name) {
  const auto found = std::ranges::find(config.devices, name, &config::DeviceConfig::name);
  return static_cast<std::size_t>(found - config.devices.begin());
}

/// The device that an engine is to run on, the first of several.
std::size_t engine_device(const config::Config& config, const config::EngineConfig& engine) {
  return device_named(config, engine.device);
}

/// The others of several, ascending.
std::vector<DeviceId> further_devices(const config::Config& config,
                                      HostId host,
                                      const config::EngineConfig& engine) {
  std::vector<DeviceId> all;
  for (const std::string& name : engine.further_devices) {
    all.push_back(device_id(host, device_named(config, name)));
  }
  return all;
}

/// What an engine may have of each of its devices. One that was given all of one gets whole pages
/// of it.
std::int64_t engine_pages(const config::Config& config, const config::EngineConfig& engine) {
  const std::uint64_t page = page_of(config);
  std::uint64_t device = config.devices.at(engine_device(config, engine)).memory;
  for (const std::string& name : engine.further_devices) {
    device = std::min(device, config.devices.at(device_named(config, name)).memory);
  }
  return static_cast<std::int64_t>(
      std::min((engine.memory + page - 1) / page, std::max<std::uint64_t>(device / page, 1)));
}

/// KV that it always has; 0: its KV is among engine_pages().
std::int64_t kv_pages(const config::Config& config, const config::EngineConfig& engine) {
  const std::uint64_t page = page_of(config);
  return engine.elastic_kv ? static_cast<std::int64_t>((engine.kv_least + page - 1) / page) : 0;
}

/// Pages in which a device's worker keeps KV of models that have left: of those for the host its
/// part, by what CPU devices that cache prefixes have.
std::int64_t kept_kv_pages(const config::Config& config, const config::DeviceConfig& device) {
  const auto keeps = [](const config::DeviceConfig& one) {
    return config::runs_models(one) && one.kind == config::DeviceKind::kCpu && one.prefix_cache > 0;
  };
  if (!keeps(device)) {
    return 0;
  }
  double all = 0;
  for (const config::DeviceConfig& one : config.devices) {
    all += keeps(one) ? static_cast<double>(one.memory) : 0;
  }
  const double part = static_cast<double>(device.memory) / all;
  return static_cast<std::int64_t>(part * static_cast<double>(config.host.kv / page_of(config)));
}

/// The ids that the model was given, by rank; null: it is not to be served.
const std::vector<ModelId>* ids_of(const std::vector<Assignment>& assigned,
                                   const OpenedModel& model) {
  const auto found = std::ranges::find_if(assigned, [&](const Assignment& one) {
    return one.name == model.config.id && one.digest == model.digest;
  });
  const std::size_t ranks = model.config.engine || !model.ranks ? 1 : model.ranks->size();
  return found == assigned.end() || found->ids.size() < ranks ? nullptr : &found->ids;
}

/// Its ranks, and the stages of its cuts, as far as there are ids for them.
void add_own(const OpenedModel& model, const std::vector<ModelId>& ids, HostModels& hosted) {
  auto id = ids.begin();
  const auto add = [&](const std::vector<agent::HostModel>& parts) {
    for (const agent::HostModel& part : parts) {
      if (id == ids.end()) {
        return;
      }
      hosted.own.push_back(part);
      hosted.own.back().id = *id++;
    }
  };
  add(*model.ranks);
  for (const std::vector<agent::HostModel>& cut : model.cuts) {
    add(cut);
  }
}

/// The devices that only engines use, and what engines may leave on the host.
core::ConfigureEngines engine_devices(const config::Config& config, HostId host) {
  const std::uint64_t page = page_of(config);
  core::ConfigureEngines configure{.host_pages =
                                       static_cast<std::int64_t>(config.host.snapshots / page)};
  for (std::size_t i = 0; i < config.devices.size(); ++i) {
    if (!config::runs_models(config.devices[i])) {
      configure.devices.push_back(
          {.id = device_id(host, i),
           .pages = static_cast<std::int64_t>(config.devices[i].memory / page)});
    }
  }
  return configure;
}

void add_engine(const config::Config& config,
                HostId host,
                const config::ModelConfig& model,
                ModelId id,
                HostModels& hosted) {
  const config::EngineConfig& engine = *model.engine;
  const std::size_t index = engine_device(config, engine);
  hosted.engines.engines.push_back({.model = id,
                                    .device = device_id(host, index),
                                    .pages = engine_pages(config, engine),
                                    .levels = engine.suspend,
                                    .kv_least = kv_pages(config, engine),
                                    .further = further_devices(config, host, engine)});
  hosted.configured.push_back(
      {.model = id,
       .name = model.id,
       .accelerator = config.devices[index].kind != config::DeviceKind::kCpu,
       .config = engine});
}

}  // namespace

const policy::Footprint& footprint_on(const config::DeviceConfig& device,
                                      const agent::HostModel& model) {
  return device.kind == config::DeviceKind::kCuda ? model.gpu_footprint : model.footprint;
}

void offer_engine(const config::Config& config,
                  HostId host,
                  const config::EngineConfig& engine,
                  Offer& offer) {
  const std::size_t index = engine_device(config, engine);
  if (!engine.misfit.empty() || index == config.devices.size()) {
    offer.failure =
        Error{Code::kNotFound,
              engine.misfit.empty() ? "the host has no device " + engine.device : engine.misfit};
    return;
  }
  offer.keeps_requests = std::ranges::any_of(engine.suspend, spec::keeps_requests);
  offer.context = 1;  // Tokens are the engine's own affair.
  const policy::Footprint need{.image_pages =
                                   engine_pages(config, engine) + kv_pages(config, engine)};
  host::OfferedRank& rank = offer.ranks.emplace_back();
  rank.image_bytes = engine.memory;
  rank.footprints[device_id(host, index)] = need;
  for (const DeviceId further : further_devices(config, host, engine)) {
    rank.footprints[further] = need;
    offer.together = true;
  }
}

HostFacts host_facts(const config::Config& config, HostId host) {
  HostFacts facts;
  const std::uint64_t page = page_of(config);
  for (std::size_t i = 0; i < config.devices.size(); ++i) {
    const config::DeviceConfig& device = config.devices[i];
    facts.devices.push_back({.id = device_id(host, i),
                             .name = device.name,
                             .pages = static_cast<std::int64_t>(device.memory / page),
                             .page_bytes = page,
                             .in_host_memory = device.kind == config::DeviceKind::kCpu});
  }
  facts.guest_peers = guest_pairs(config, host).peers;
  facts.network = config.host.nic;
  return facts;
}

Result<agent::AgentSetup> agent_setup(const config::Config& config,
                                      std::int64_t max_batch_tokens,
                                      HostId host) {
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
  std::uint64_t index = 0;
  if (first == config.devices.end()) {
    setup.host_pages = 1;  // Nobody's weights are to be kept.
  }
  for (const config::DeviceConfig& device : config.devices) {
    const DeviceId here = device_id(host, index++);
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
         .kv_pages = kept_kv_pages(config, device),
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

Result<HostSetup> host_setup(const config::Config& config,
                             std::int64_t max_batch_tokens,
                             HostId host) {
  Result<agent::AgentSetup> agent = agent_setup(config, max_batch_tokens, host);
  if (!agent) {
    return agent.error();
  }
  HostSetup setup{.agent = std::move(*agent), .engines = engine_host_setup(config, host)};
  for (std::size_t i = 0; i < config.devices.size(); ++i) {
    if (config.devices[i].kind == config::DeviceKind::kCuda) {
      setup.gpus[device_id(host, i)] = config.devices[i].gpu;
    }
  }
  return setup;
}

HostModels host_models(const config::Config& config,
                       HostId host,
                       const std::vector<OpenedModel>& opened,
                       const std::vector<Assignment>& assigned) {
  HostModels hosted{.engines = engine_devices(config, host)};
  for (const OpenedModel& model : opened) {
    const std::vector<ModelId>* ids = ids_of(assigned, model);
    if (ids == nullptr) {
      continue;
    }
    if (model.config.engine) {
      add_engine(config, host, model.config, ids->front(), hosted);
      continue;
    }
    add_own(model, *ids, hosted);
  }
  return hosted;
}

namespace {

/// Why neither of two GPUs can have KV on the other; empty: both can.
std::string apart(const config::DeviceConfig& one, const config::DeviceConfig& other) {
  for (const config::DeviceConfig* device : {&one, &other}) {
    if (!device->no_guests.empty()) {
      return device->name + " " + device->no_guests;
    }
  }
  if (one.page != other.page) {
    return "their pages differ in size";
  }
  const auto reaches = [](const config::DeviceConfig& from, const config::DeviceConfig& to) {
    return std::ranges::find(from.peers, to.gpu) != from.peers.end();
  };
  return reaches(one, other) && reaches(other, one)
             ? ""
             : "they have no access to each other's memory (nvidia-smi topo -p2p r)";
}

}  // namespace

GuestPairs guest_pairs(const config::Config& config, HostId host) {
  GuestPairs pairs;
  for (std::uint64_t i = 0; i < config.devices.size(); ++i) {
    for (std::uint64_t j = i + 1; j < config.devices.size(); ++j) {
      const config::DeviceConfig& one = config.devices[i];
      const config::DeviceConfig& other = config.devices[j];
      if (one.kind != config::DeviceKind::kCuda || other.kind != config::DeviceKind::kCuda) {
        continue;
      }
      if (const std::string why = apart(one, other); !why.empty()) {
        pairs.refusals.push_back(one.name + " and " + other.name + ": " + why);
      } else {
        pairs.peers.pairs.emplace_back(device_id(host, i), device_id(host, j));
      }
    }
  }
  return pairs;
}

external::EngineHostSetup engine_host_setup(const config::Config& config, HostId host) {
  return {.page_bytes = static_cast<std::size_t>(page_of(config)),
          .record_directory = record_directory(config, host)};
}

}  // namespace heddle::host
