#include "lab/twin_setup.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "agent/agent.h"
#include "agent/host_model.h"
#include "host/opened_model.h"
#include "host/setup.h"
#include "manager/setup.h"
#include "store/image_layout.h"

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

/// Of a sharded model, what its rank 0 computes and exchanges.
twin::StepTimes step_of(const std::vector<agent::HostModel>& ranks, const Measured& measured) {
  if (ranks.size() == 1) {
    return step_times(measured.fit, shape_of(measured.calibration.model));
  }
  const spec::ModelSpec& shard = ranks.front().spec;
  return with_exchanges(step_times(measured.fit, shape_of(shard)),
                        measured.exchange,
                        shard.layers,
                        shard.hidden,
                        shard.vocab);
}

/// Of a model's image, what comes before its head.
std::uint64_t body_bytes(const agent::HostModel& model) {
  const store::ImageLayout layout = store::plan_image(model.spec, model.dtype);
  return layout.stage_end.at(layout.stage_end.size() - 2);
}

/// A host, and its models as it finds them.
struct Opened {
  HostId id{};
  std::string name{};  ///< Empty of the only one.
  const config::Config& config;
  agent::AgentSetup agent{};
  std::vector<host::OpenedModel> models{};
};

Result<Opened> open(HostId id, const std::string& name, const config::Config& config) {
  const std::int64_t batch_tokens = host::choose_batch_tokens(config);
  Result<agent::AgentSetup> agent = host::agent_setup(config, batch_tokens, id);
  if (!agent) {
    return agent.error();
  }
  Opened opened{.id = id, .name = name, .config = config, .agent = std::move(*agent)};
  opened.models = host::open_models(
      config, {.page_bytes = opened.agent.page_bytes, .max_batch_tokens = batch_tokens});
  for (const host::OpenedModel& model : opened.models) {
    if (model.config.engine) {
      return Error{
          .code = Code::kInvalidArgument,
          .message = model.config.id + ": what an external engine will do cannot be predicted"};
    }
    if (!model.ranks) {
      return model.ranks.error();
    }
  }
  return opened;
}

Result<std::vector<Opened>> open_all(const LabPolicy& policy) {
  std::vector<Opened> all;
  const auto add = [&](HostId id, const std::string& name, const config::Config& config) {
    Result<Opened> opened = open(id, name, config);
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
  for (const Opened& host : hosts) {
    const std::vector<host::Offer> offers = host::offers(host.config, host.id, host.models);
    for (std::size_t i = 0; i < offers.size(); ++i) {
      if (models.size() <= i) {
        models.push_back({.config = model_called(host.config, offers[i].name)});
      }
      models[i].offers.emplace(host.id, offers[i]);
    }
  }
  registry.assign(std::move(models));
}

/// As the manager knows them.
std::vector<core::ManagerDevice> devices_of(const std::vector<Opened>& hosts) {
  std::vector<core::ManagerDevice> devices;
  for (const Opened& host : hosts) {
    for (core::ManagerDevice device : host::host_facts(host.config, host.id).devices) {
      device.name = host.name.empty() ? device.name : host.name + "/" + device.name;
      devices.push_back(std::move(device));
    }
  }
  return devices;
}

/// Adds the model with its shards, of which rank 0 tells what a step takes.
void add_model(const manager::ConfiguredModel& model,
               const std::vector<agent::HostModel>& ranks,
               const Measured& measured,
               twin::TwinSetup& setup) {
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const agent::HostModel& shard = ranks[rank];
    setup.models.push_back({.model = {.id = rank == 0 ? model.id : model.shards[rank - 1],
                                      .image_bytes = shard.image_bytes,
                                      .footprint = shard.footprint,
                                      .gpu_footprint = shard.gpu_footprint},
                            .layers = shard.spec.layers,
                            .body_bytes = body_bytes(shard)});
    if (rank == 0) {
      setup.models.back().step = step_of(ranks, measured);
      setup.models.back().ttl = model.config.ttl;
    }
  }
}

}  // namespace

Result<twin::TwinSetup> twin_setup(const LabPolicy& policy,
                                   const Constants& constants,
                                   manager::ModelRegistry& registry) {
  const Result<std::vector<Opened>> hosts = open_all(policy);
  if (!hosts) {
    return hosts.error();
  }
  register_models(*hosts, registry);
  twin::TwinSetup setup;
  const Opened& first = hosts->front();
  for (std::size_t i = 0; i < first.models.size(); ++i) {
    const agent::HostModel& model = first.models[i].ranks->front();
    for (const Opened& host : *hosts) {
      if (host.models[i].ranks->front().footprint != model.footprint) {
        return Error{.code = Code::kInvalidArgument,
                     .message = "the model " + first.models[i].config.id +
                                " takes other memory on " + host.name + " than on " + first.name +
                                ", which cannot be predicted: give both hosts the same page, and "
                                "devices of the same memory"};
      }
    }
    add_model(registry.models()[i],
              *first.models[i].ranks,
              constants.at(first.models[i].config.id),
              setup);
  }
  setup.hosts.clear();
  const Measured& measured = constants.at(registry.models()[0].config.id);
  for (const Opened& host : *hosts) {
    twin::HostSetup& added = setup.hosts.emplace_back();
    added.agent = agent::core_options(host.agent);
    for (std::size_t i = 0; i < host.agent.devices.size(); ++i) {
      added.devices.push_back(twin_device(host.agent.devices[i], added.agent.devices[i], measured));
    }
  }
  setup.manager =
      manager::core_setup(policy.config, registry.models(), devices_of(*hosts), Duration{});
  setup.preload = manager::to_preload(policy.config, registry.models());
  return setup;
}

}  // namespace heddle::lab
