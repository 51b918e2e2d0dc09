#include "host/opened_model.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "config/blocks.h"
#include "host/setup.h"
#include "store/digest.h"

namespace heddle::host {
namespace {

/// Most tokens of a step: what a device takes up within some tens of milliseconds.
constexpr std::int64_t kCpuBatchTokens = 512;
constexpr std::int64_t kGpuBatchTokens = 4096;

OpenedModel open_model(const config::Config& config,
                       const config::ModelConfig& model,
                       const agent::HostGeometry& geometry) {
  OpenedModel opened{.config = model};
  if (model.engine) {
    return opened;
  }
  opened.ranks =
      model.pipeline_parallel > 1
          ? agent::open_host_stages(
                model.path, config.directory, model.dtype, geometry, model.pipeline_parallel)
          : agent::open_host_shards(
                model.path, config.directory, model.dtype, geometry, model.tensor_parallel);
  if (!opened.ranks) {
    return opened;
  }
  for (std::size_t rank = 0; rank < opened.ranks->size(); ++rank) {
    (*opened.ranks)[rank].name = rank > 0 ? shard_name(model.id, rank) : model.id;
  }
  Result<std::string> digest = store::digest(opened.ranks->front().directory);
  if (!digest) {
    opened.ranks = digest.error();
    return opened;
  }
  opened.digest = std::move(*digest);
  return opened;
}

/// Whether a model that one device can hold may run there.
bool may_run_on(const config::ModelConfig& model, const config::DeviceConfig& device) {
  return config::runs_models(device) &&
         (model.devices.empty() ||
          std::find(model.devices.begin(), model.devices.end(), device.name) !=
              model.devices.end());
}

/// Says of a sharded model where its ranks go.
void offer_blocks(const config::Config& config,
                  HostId host,
                  const std::vector<agent::HostModel>& ranks,
                  Offer& offer) {
  for (const std::vector<std::size_t>& block : config::device_blocks(config, std::ssize(ranks))) {
    std::vector<DeviceId>& devices = offer.blocks.emplace_back().devices;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      const std::size_t index = block[rank];
      devices.push_back(device_id(host, index));
      offer.ranks[rank].footprints[devices.back()] =
          footprint_on(config.devices[index], ranks[rank]);
    }
  }
}

Offer offer_of(const config::Config& config, HostId host, const OpenedModel& model) {
  Offer offer{.name = model.config.id, .digest = model.digest};
  if (model.config.engine) {
    offer_engine(config, host, *model.config.engine, offer);
    return offer;
  }
  if (!model.ranks) {
    offer.failure = model.ranks.error();
    return offer;
  }
  const agent::HostModel& first = model.ranks->front();
  offer.written = std::chrono::nanoseconds(first.written.time_since_epoch()).count();
  const std::int64_t longest = first.spec.max_position;
  offer.context = model.config.context > 0 ? std::min(model.config.context, longest) : longest;
  for (const agent::HostModel& rank : *model.ranks) {
    offer.ranks.push_back({.image_bytes = rank.image_bytes});
  }
  if (model.ranks->size() > 1) {
    offer_blocks(config, host, *model.ranks, offer);
    return offer;
  }
  for (std::size_t i = 0; i < config.devices.size(); ++i) {
    if (may_run_on(model.config, config.devices[i])) {
      offer.ranks[0].footprints[device_id(host, i)] = footprint_on(config.devices[i], first);
    }
  }
  return offer;
}

}  // namespace

std::vector<OpenedModel> open_models(const config::Config& config,
                                     const agent::HostGeometry& geometry) {
  std::vector<OpenedModel> models;
  for (const config::ModelConfig& model : config.models) {
    models.push_back(open_model(config, model, geometry));
  }
  return models;
}

std::int64_t choose_batch_tokens(const config::Config& config) {
  if (config.host.step_tokens > 0) {
    return config.host.step_tokens;
  }
  std::vector<std::string> sources;
  for (const config::ModelConfig& model : config.models) {
    if (!model.engine) {
      sources.push_back(model.path);
    }
  }
  std::uint64_t smallest = UINT64_MAX;
  bool cpus = false;
  for (const config::DeviceConfig& device : config.devices) {
    if (config::runs_models(device)) {
      smallest = std::min(smallest, device.memory);
      cpus |= device.kind == config::DeviceKind::kCpu;
    }
  }
  return agent::choose_batch_tokens(sources,
                                    config.directory,
                                    cpus ? device::Kind::kCpu : device::Kind::kCuda,
                                    smallest,
                                    cpus ? kCpuBatchTokens : kGpuBatchTokens);
}

std::vector<Offer> offers(const config::Config& config,
                          HostId host,
                          const std::vector<OpenedModel>& models) {
  std::vector<Offer> all;
  for (const OpenedModel& model : models) {
    all.push_back(offer_of(config, host, model));
  }
  return all;
}

}  // namespace heddle::host
