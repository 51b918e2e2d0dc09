#include "lab/twin_setup.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agent/agent.h"
#include "agent/host_model.h"
#include "agent/image_job.h"
#include "host/opened_model.h"
#include "host/setup.h"
#include "manager/setup.h"
#include "spec/pipe_stage.h"
#include "store/image_layout.h"
#include "store/read_order.h"

namespace heddle::lab {

namespace {

twin::TwinDevice twin_device(const agent::DeviceSetup& device,
                             const core::AgentDevice& known,
                             const Measured& measured) {
  const double link = measured.calibration.copy_alone;
  return {.device = known,
          .worker = {.device = device.id,
                     .pages = device.pages,
                     .device_pages = device.pages,
                     .step = device.step,
                     .prefix_cache = device.prefix_cache,
                     .queue = device.queue,
                     .fixed_parts = device.fixed_parts},
          .pace_step = device.pace.step,
          .pace_token = device.pace.token,
          .pace_context = device.pace.context,
          .link = device.load_bandwidth == 0
                      ? link
                      : std::min(link, static_cast<double>(device.load_bandwidth)),
          .map_page = measured.fit.map_page};
}

bool is_pipe(const agent::HostModel& model) {
  return spec::stages_of(model.spec) > 1;
}

/// Of a stage, what its layers compute.
twin::StepTimes step_of_stage(const agent::HostModel& stage, const Measured& measured) {
  sim::ModelShape shape = sim::shape_of(stage.spec);
  shape.layers = spec::own_layers(stage.spec).size();
  return step_times(measured.fit, shape);
}

/// Of a sharded model, what its rank 0 computes and exchanges.
twin::StepTimes step_of(const std::vector<agent::HostModel>& ranks, const Measured& measured) {
  if (ranks.size() == 1) {
    return step_times(measured.fit, sim::shape_of(measured.calibration.model));
  }
  const spec::ModelSpec& shard = ranks.front().spec;
  return with_exchanges(step_times(measured.fit, sim::shape_of(shard)),
                        measured.exchange,
                        shard.layers,
                        shard.hidden,
                        shard.vocab);
}

/// Of a model's image, what comes before its head.
std::uint64_t body_bytes(const agent::HostModel& model) {
  const store::ImageLayout layout = store::plan_image(model.spec, model.dtype);
  const std::size_t ends = layout.stage_end.size();
  return spec::leads(model.spec) && ends > 1 ? layout.stage_end[ends - 2] : layout.bytes;
}

/// As fetches bring files and know what is there.
constexpr std::uint64_t kRecordBytes = std::uint64_t{64} << 10U;
/// Of KV that goes to a whole model, in one piece, as engine::EngineOptions::gather_bytes has it.
constexpr std::uint64_t kPieceBytes = std::uint64_t{4} << 20U;

/// What of its files the image is made of, in its order.
Result<std::vector<twin::FileRecord>> records_of(const agent::HostModel& model) {
  const auto opened = agent::open_image(agent::image_job(model.id, model, 0));
  if (!opened) {
    return opened.error();
  }
  const store::TensorSet& tensors = opened->checkpoint.tensors;
  std::vector<twin::FileRecord> records;
  std::set<std::uint64_t> known;
  for (const store::FileBytes& part : store::read_order(tensors, opened->layout)) {
    const std::uint64_t size = tensors.files()[part.file].bytes();
    for (std::uint64_t at = part.begin / kRecordBytes * kRecordBytes; at < part.end;
         at += kRecordBytes) {
      const std::uint64_t number = (std::uint64_t{part.file} << 32U) + at / kRecordBytes;
      if (known.insert(number).second) {
        records.push_back({.number = number, .bytes = std::min(kRecordBytes, size - at)});
      }
    }
  }
  return records;
}

std::int64_t piece_tokens(const agent::HostModel& model, std::uint64_t page_bytes) {
  double bytes = 0;  // Of a position.
  for (const policy::KvGroup& group : model.footprint.kv) {
    bytes += static_cast<double>(page_bytes) /
             static_cast<double>(group.tokens_per_block * group.blocks_per_page);
  }
  return std::max<std::int64_t>(
      static_cast<std::int64_t>(static_cast<double>(kPieceBytes) / std::max(bytes, 1.0)), 1);
}

/// A host, and its models as it finds them.
struct Opened {
  HostId id{};
  std::string name{};  ///< Empty of the only one.
  const config::Config& config;
  agent::AgentSetup agent{};
  std::vector<host::OpenedModel> models{};
  host::HostFacts facts{};
};

Result<Opened> open(HostId id, const std::string& name, const config::Config& config, bool cold) {
  config::Config at_start = config;
  if (cold) {
    at_start.models.clear();  // No host knows what they are when it starts.
  }
  const std::int64_t batch_tokens = host::choose_batch_tokens(at_start);
  Result<agent::AgentSetup> agent = host::agent_setup(config, batch_tokens, id);
  if (!agent) {
    return agent.error();
  }
  Opened opened{.id = id, .name = name, .config = config, .agent = std::move(*agent)};
  const agent::HostGeometry geometry{.page_bytes = opened.agent.page_bytes,
                                     .max_batch_tokens = batch_tokens};
  opened.models = host::open_models(config, geometry);
  opened.facts = host::host_facts(config, id);
  opened.facts.name = name;
  opened.facts.step_tokens = batch_tokens;
  for (host::OpenedModel& model : opened.models) {
    if (cold) {
      host::take_for_fetched(model.config.path, id != HostId(0), config, geometry, model);
    }
    if (model.config.engine && id != HostId(0)) {
      return Error{.code = Code::kInvalidArgument,
                   .message = model.config.id +
                              ": external engines are predicted on one host, and not on several"};
    }
    if (model.config.engine && model.config.engine->elastic_kv) {
      return Error{
          .code = Code::kInvalidArgument,
          .message = model.config.id + ": engines with elastic KV are not predicted (kv: elastic)"};
    }
    if (!model.ranks) {
      return model.ranks.error();
    }
  }
  return opened;
}

Result<std::vector<Opened>> open_all(const LabPolicy& policy, bool cold) {
  std::vector<Opened> all;
  const auto add = [&](HostId id, const std::string& name, const config::Config& config) {
    Result<Opened> opened = open(id, name, config, cold);
    if (opened) {
      all.push_back(std::move(*opened));
    }
    return opened ? Result<void>() : Result<void>(opened.error());
  };
  Result<void> added = policy.hosts.empty() ? add(HostId(0), "", policy.config) : Result<void>();
  for (std::size_t i = 0; i < policy.hosts.size() && added; ++i) {
    added = add(HostId(i + 1), policy.hosts[i].name, policy.hosts[i].config);
  }
  return added ? Result<std::vector<Opened>>(std::move(all)) : added.error();
}

/// Gives the models their ids, in the order of the file.
void register_models(const std::vector<Opened>& hosts, manager::ModelRegistry& registry) {
  std::vector<manager::ConfiguredModel> models;
  std::map<HostId, host::HostFacts> facts;
  for (const Opened& host : hosts) {
    facts[host.id] = host.facts;
    const std::vector<host::Offer> offers = host::offers(host.config, host.id, host.models);
    for (std::size_t i = 0; i < offers.size(); ++i) {
      if (models.size() <= i) {
        models.push_back({.config = model_called(host.config, offers[i].name)});
      }
      models[i].offers.emplace(host.id, offers[i]);
    }
  }
  registry.assign(std::move(models), facts);
}

/// As the manager knows them.
std::vector<core::ManagerDevice> devices_of(const std::vector<Opened>& hosts) {
  std::vector<core::ManagerDevice> devices;
  for (const Opened& host : hosts) {
    for (core::ManagerDevice device : host.facts.devices) {
      device.name = host.name.empty() ? device.name : host.name + "/" + device.name;
      devices.push_back(std::move(device));
    }
  }
  return devices;
}

/// Adds the model, or a part of it.
Result<void> add_part(ModelId id,
                      const manager::ConfiguredModel& whole,
                      const agent::HostModel& part,
                      std::uint64_t page_bytes,
                      twin::TwinSetup& setup) {
  twin::TwinModel& added =
      setup.models.emplace_back(twin::TwinModel{.model = {.id = id,
                                                          .image_bytes = part.image_bytes,
                                                          .footprint = part.footprint,
                                                          .gpu_footprint = part.gpu_footprint,
                                                          .host_pages = part.host_pages,
                                                          .fetched = !part.source.empty()},
                                                .layers = spec::own_layers(part.spec).size(),
                                                .body_bytes = body_bytes(part)});
  added.stage = {
      .index = part.spec.stage.index, .stages = spec::stages_of(part.spec), .shares = part.shares};
  if (!added.model.fetched) {
    return {};
  }
  auto records = records_of(part);
  if (!records) {
    return records.error();
  }
  added.source = whole.id;
  added.records = std::move(*records);
  added.piece_tokens = piece_tokens(part, page_bytes);
  return {};
}

/// Adds the model with its shards, of which rank 0 tells what a step takes, and with its stages,
/// which each do.
Result<void> add_model(const manager::ConfiguredModel& model,
                       const host::OpenedModel& opened,
                       const Measured& measured,
                       std::uint64_t page_bytes,
                       twin::TwinSetup& setup) {
  const std::vector<agent::HostModel>& ranks = *opened.ranks;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const ModelId id = rank == 0 ? model.id : model.shards[rank - 1];
    if (const auto added = add_part(id, model, ranks[rank], page_bytes, setup); !added) {
      return added;
    }
    if (is_pipe(ranks[rank])) {
      setup.models.back().step = step_of_stage(ranks[rank], measured);
    } else if (rank == 0) {
      setup.models.back().step = step_of(ranks, measured);
    }
    if (rank == 0) {
      setup.models.back().ttl = model.config.ttl;
    }
  }
  for (std::size_t cut = 0; cut < model.cuts.size(); ++cut) {
    for (std::size_t stage = 0; stage < model.cuts[cut].size(); ++stage) {
      const agent::HostModel& part = opened.cuts.at(cut).at(stage);
      const auto added = add_part(model.cuts[cut][stage], model, part, page_bytes, setup);
      if (!added) {
        return added;
      }
      setup.models.back().step = step_of_stage(part, measured);
    }
  }
  return {};
}

/// In whole pages.
std::int64_t pages_of(std::uint64_t bytes, std::uint64_t page_bytes) {
  return static_cast<std::int64_t>((bytes + page_bytes - 1) / page_bytes);
}

twin::TwinEngine twin_engine(const core::HostedEngine& hosted,
                             const manager::ConfiguredModel& model,
                             const EngineTimes& times,
                             std::uint64_t page_bytes) {
  twin::TwinEngine engine{.hosted = hosted,
                          .ttl = model.config.ttl,
                          .start = times.start,
                          .stop = times.stop,
                          .held_pages = pages_of(times.memory, page_bytes),
                          .first_token = times.first_token,
                          .prompt_token = times.prompt_token,
                          .token = times.token};
  for (const auto& [level, way] : times.suspend) {
    engine.suspensions[level] = {.out = way.out,
                                 .in = way.in,
                                 .held_pages = pages_of(way.memory, page_bytes),
                                 .host_pages = pages_of(way.host, page_bytes)};
  }
  return engine;
}

/// Adds the engines of the host and the devices that only engines use.
Result<void> add_engines(const Opened& host,
                         const manager::ModelRegistry& registry,
                         const Constants& constants,
                         twin::HostSetup& setup) {
  std::vector<host::Assignment> assigned;
  for (const manager::ConfiguredModel& model : registry.models()) {
    assigned.push_back({.name = model.config.id, .digest = model.digest, .ids = {model.id}});
    if (const auto failure = model.failure(); model.external() && failure) {
      return Error{.code = failure->code, .message = model.config.id + ": " + failure->message};
    }
  }
  const core::ConfigureEngines engines =
      host::host_models(host.config, host.id, host.models, assigned).engines;
  for (const core::HostedEngine& hosted : engines.engines) {
    const auto model =
        std::ranges::find(registry.models(), hosted.model, &manager::ConfiguredModel::id);
    setup.engines.push_back(
        twin_engine(hosted, *model, constants.at(model->config.id).engine, host.agent.page_bytes));
  }
  setup.engine_devices = engines.devices;
  setup.snapshot_pages = engines.host_pages;
  return {};
}

/// The host with its devices; what those that run models do was measured.
twin::HostSetup host_setup(const Opened& host, bool cold, const Measured& measured) {
  twin::HostSetup setup{.agent = agent::core_options(host.agent),
                        .nic = cold ? host.config.host.nic : 0};
  for (core::AgentDevice& device : setup.agent.devices) {
    device.kv_pages = 0;  // No KV of models that have left is kept here.
  }
  for (std::size_t i = 0; i < host.agent.devices.size(); ++i) {
    setup.devices.push_back(twin_device(host.agent.devices[i], setup.agent.devices[i], measured));
  }
  return setup;
}

/// What was measured with the first model that is not an engine's; null: all are.
const Measured* first_measured(const manager::ModelRegistry& registry, const Constants& constants) {
  const auto own = std::ranges::find_if(
      registry.models(), [](const manager::ConfiguredModel& model) { return !model.external(); });
  return own == registry.models().end() ? nullptr : &constants.at(own->config.id);
}

/// Every host has what it needs in the same pages.
Result<void> check_alike(const std::vector<Opened>& hosts, std::size_t model) {
  const Opened& first = hosts.front();
  const policy::Footprint& needs = first.models[model].ranks->front().footprint;
  for (const Opened& host : hosts) {
    if (host.models[model].ranks->front().footprint != needs) {
      return Error{.code = Code::kInvalidArgument,
                   .message = "the model " + first.models[model].config.id +
                              " takes other memory on " + host.name + " than on " + first.name +
                              ", which cannot be predicted: give both hosts the same page, and "
                              "devices of the same memory"};
    }
  }
  return {};
}

}  // namespace

Result<twin::TwinSetup> twin_setup(const LabFile& lab,
                                   const LabPolicy& policy,
                                   const Constants& constants,
                                   manager::ModelRegistry& registry) {
  const Result<std::vector<Opened>> hosts = open_all(policy, lab.cold);
  if (!hosts) {
    return hosts.error();
  }
  register_models(*hosts, registry);
  twin::TwinSetup setup;
  const Opened& first = hosts->front();
  for (std::size_t i = 0; i < first.models.size(); ++i) {
    if (first.models[i].config.engine) {
      continue;  // Its host has it.
    }
    Result<void> added = check_alike(*hosts, i);
    if (added) {
      added = add_model(registry.models()[i],
                        first.models[i],
                        constants.at(first.models[i].config.id),
                        first.agent.page_bytes,
                        setup);
    }
    if (!added) {
      return added.error();
    }
  }
  setup.hosts.clear();
  const Measured none;
  const Measured* measured = first_measured(registry, constants);
  for (const Opened& host : *hosts) {
    setup.hosts.push_back(host_setup(host, lab.cold, measured == nullptr ? none : *measured));
    const Result<void> engines = add_engines(host, registry, constants, setup.hosts.back());
    if (!engines) {
      return engines.error();
    }
  }
  setup.manager =
      manager::core_setup(policy.config, registry.models(), devices_of(*hosts), Duration{});
  for (const Opened& host : *hosts) {
    if (lab.cold) {
      setup.manager.networks[host.id] = static_cast<std::int64_t>(host.config.host.nic);
    }
  }
  setup.preload = manager::to_preload(policy.config, registry.models());
  return setup;
}

}  // namespace heddle::lab
