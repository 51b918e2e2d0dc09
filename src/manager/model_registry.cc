#include "manager/model_registry.h"

#include <algorithm>
#include <utility>

namespace heddle::manager {

namespace {

/// Most tokens of a step: what a device takes up within some tens of milliseconds.
constexpr std::int64_t kCpuBatchTokens = 512;
constexpr std::int64_t kGpuBatchTokens = 4096;

bool same(const ConfiguredModel& before, const ConfiguredModel& now) {
  if (before.config.id != now.config.id || before.config.path != now.config.path ||
      before.config.dtype != now.config.dtype || before.shards.size() != now.shards.size() ||
      before.config.engine != now.config.engine || before.config.devices != now.config.devices ||
      before.host.has_value() != now.host.has_value()) {
    return false;
  }
  return !now.host || (before.host->directory == now.host->directory &&
                       before.host->image_bytes == now.host->image_bytes &&
                       before.host->written == now.host->written);
}

}  // namespace

std::vector<ConfiguredModel> open_models(const config::Config& config,
                                         const agent::HostGeometry& geometry) {
  std::vector<ConfiguredModel> models;
  for (const config::ModelConfig& model : config.models) {
    if (model.engine) {
      models.push_back({.config = model});
      continue;
    }
    Result<std::vector<agent::HostModel>> ranks = agent::open_host_shards(
        model.path, config.directory, model.dtype, geometry, model.tensor_parallel);
    if (!ranks) {
      models.push_back({.config = model, .host = ranks.error()});
      continue;
    }
    for (std::size_t rank = 0; rank < ranks->size(); ++rank) {
      (*ranks)[rank].name = model.id + (rank > 0 ? "[" + std::to_string(rank) + "]" : "");
    }
    models.push_back({.config = model, .host = std::move(ranks->front())});
    models.back().shards.assign(ranks->begin() + 1, ranks->end());
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

void ModelRegistry::assign(std::vector<ConfiguredModel> models) {
  for (ConfiguredModel& model : models) {
    const auto before = std::find_if(
        models_.begin(), models_.end(), [&](const auto& other) { return same(other, model); });
    model.id = before != models_.end() ? before->id : ModelId(++ids_given_);
    if (model.host) {
      model.host->id = model.id;
    }
    for (std::size_t i = 0; i < model.shards.size(); ++i) {
      model.shards[i].id = before != models_.end() ? before->shards[i].id : ModelId(++ids_given_);
    }
  }
  models_ = std::move(models);
}

const ConfiguredModel* ModelRegistry::find(ModelId id) const {
  const auto found = std::find_if(
      models_.begin(), models_.end(), [id](const auto& model) { return model.id == id; });
  return found == models_.end() ? nullptr : &*found;
}

std::string ModelRegistry::name(ModelId id) const {
  if (const ConfiguredModel* model = find(id)) {
    return model->config.id;
  }
  for (const ConfiguredModel& model : models_) {
    for (const agent::HostModel& shard : model.shards) {
      if (shard.id == id) {
        return shard.name;
      }
    }
  }
  return {};
}

std::vector<core::ModelStatus> ModelRegistry::statuses(
    const std::vector<core::ModelStatus>& known) const {
  std::vector<core::ModelStatus> all;
  for (const ConfiguredModel& model : models_) {
    const auto found = std::find_if(
        known.begin(), known.end(), [&](const auto& status) { return status.id == model.id; });
    if (found != known.end()) {
      all.push_back(*found);
    } else {
      all.push_back({.id = model.id, .name = model.config.id});
      all.back().failure = model.failure();
    }
  }
  return all;
}

}  // namespace heddle::manager
