#include "sim/planes/live_map.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace heddle::sim {
namespace {

using namespace std::chrono_literals;

/// A world's block of KV [tokens].
constexpr std::int64_t kBlock = EngineOptions{}.tokens_per_block;
/// What is left of a token's KV, as a part of it, is nothing.
constexpr double kPrecision = 1e-3;
/// Longest prompt and answer of a model for which the world names no limit.
constexpr std::int64_t kContext = std::int64_t{1} << 20;
/// As `minResidence` is by default.
constexpr Duration kResidence = 1s;
/// As `drain` of an engine is by default.
constexpr Duration kDrain = 2s;
/// Of all devices: what a model needs does not depend on where it is.
constexpr std::uint32_t kKind = 0;

}  // namespace

std::vector<policy::KvGroup> kv_groups(double bytes, std::int64_t page_bytes) {
  const auto page = static_cast<double>(page_bytes);
  const std::int64_t tokens = bytes * static_cast<double>(kBlock) <= page ? kBlock : 1;
  const double whole = bytes * static_cast<double>(tokens) / page;  // Pages of a block.
  std::vector<policy::KvGroup> groups;
  for (double left = whole; left > whole * kPrecision && left > 0;) {
    const auto blocks = static_cast<std::int64_t>(std::ceil(1 / left - kPrecision));
    groups.push_back(
        {.tokens_per_block = tokens, .blocks_per_page = std::max<std::int64_t>(blocks, 1)});
    left -= 1 / static_cast<double>(groups.back().blocks_per_page);
  }
  return groups;
}

LiveMap::LiveMap(const World& world, const LiveOptions& options)
    : by_host_(world.hosts().size()), hosts_(world.hosts().size()) {
  for (const Host& each : world.hosts()) {
    for (std::size_t i = 0; i < each.gpus.size(); ++i) {
      const DeviceId id = device_id(host(each.id), i);
      devices_.resize(std::max<std::size_t>(devices_.size(), each.gpus[i].value() + 1));
      devices_[each.gpus[i].value()] = id;
      gpus_[id] = each.gpus[i];
      by_host_[each.id.value()].push_back(each.gpus[i]);
      configure_.devices.push_back(
          {.id = id,
           .name = "h" + std::to_string(each.id.value()) + "/gpu" + std::to_string(i),
           .pages = world.gpu(each.gpus[i]).pages,
           .page_bytes = static_cast<std::uint64_t>(world.page_bytes()),
           .kind = kKind});
    }
    const double nic = world.host_spec(each.id).links.nic;
    if (nic > 0) {
      configure_.networks[host(each.id)] = static_cast<std::int64_t>(nic);
    }
  }
  configure_.options.queue_per_model = static_cast<std::size_t>(options.queue);
  configure_.options.planner = options.planner;
  parts_of_.resize(world.models().size());
  for (std::size_t i = 0; i < world.models().size(); ++i) {
    parts_.push_back({.model = ModelId(i), .first = managed(ModelId(i))});
  }
  footprints_.resize(parts_.size());
  bytes_.resize(parts_.size());
  for (std::size_t i = 0; i < world.models().size(); ++i) {
    const ModelSpec& spec = world.model(ModelId(i));
    add_parts(world, ModelId(i), spec.external ? 1 : static_cast<std::size_t>(spec.tp), false);
  }
  place_external(world, options.engine_kv);
  for (std::size_t i = 0; i < world.models().size(); ++i) {
    if (world.model(ModelId(i)).external) {
      continue;
    }
    place_ranks(world, ModelId(i), options.shares);
    const ModelSpec& spec = world.model(ModelId(i));
    const auto most = std::min<std::int64_t>(options.stages, static_cast<std::int64_t>(hosts_));
    for (std::int64_t stages = 2; spec.tp == 1 && stages <= most; ++stages) {
      const ModelId first(parts_.size() + 1);
      add_parts(world, ModelId(i), static_cast<std::size_t>(stages), true);
      place_stages(world, first);
    }
  }
}

HostId LiveMap::host(HostId host) const {
  return HostId(hosts_ == 1 ? 0 : host.value() + 1);
}

std::uint64_t LiveMap::image_bytes(ModelId managed) const {
  return bytes_.at(managed.value() - 1);
}

/// An engine of the world has context and workspace of its own, which its weights bring along here:
/// models of a live worker would share them, but then more would fit than the world lets in.
void LiveMap::add_parts(const World& world, ModelId model, std::size_t of, bool stages) {
  const ModelSpec& spec = world.model(model);
  const auto parts = static_cast<double>(of);
  const policy::Footprint footprint{
      .image_pages = world.pages(static_cast<double>(spec.weight_bytes()) / parts) +
                     world.overhead_pages(model),
      .kv = kv_groups(static_cast<double>(spec.kv_bytes()) / parts, world.page_bytes())};
  const std::int64_t useful = policy::kUsefulTokens;
  const ModelId first = stages ? ModelId(parts_.size() + 1) : managed(model);
  for (std::size_t i = 0; i < of; ++i) {
    if (stages || i > 0) {
      parts_.emplace_back();
      footprints_.emplace_back();
      bytes_.emplace_back();
    }
    const std::size_t at = stages || i > 0 ? parts_.size() - 1 : first.value() - 1;
    parts_[at] = {.model = model, .first = first, .at = i, .of = of, .stage = stages};
    footprints_[at] = footprint;
    footprints_[at].min_kv_pages = policy::kv_pages(footprint.kv, {&useful, 1});
    bytes_[at] = static_cast<std::uint64_t>(static_cast<double>(spec.weight_bytes()) / parts);
    parts_of_[model.value()].emplace_back(at + 1);
  }
}

core::ManagerModel LiveMap::entry(const World& world, ModelId id) const {
  const Part& each = part(id);
  const ModelSpec& spec = world.model(each.model);
  core::ManagerModel model{.id = id,
                           .name = spec.name,
                           .image_bytes = image_bytes(id),
                           .context = spec.most_tokens > 0 ? spec.most_tokens : kContext,
                           .min_residence = kResidence,
                           .batch = spec.max_sequences};
  if (each.of > 1) {
    model.name += (each.stage ? "/stage" : "/shard") + std::to_string(each.at);
  }
  if (spec.slo_ttft > Duration{}) {
    model.slo.ttft = spec.slo_ttft;
  }
  if (spec.slo_tpot > Duration{}) {
    model.slo.tpot = spec.slo_tpot;
  }
  for (const auto& [host, rate] : configure_.networks) {
    model.fetched[host] = model.image_bytes;
  }
  return model;
}

std::vector<DeviceId> LiveMap::block(ModelId id, DeviceId device) const {
  const Part& each = part(id);
  std::vector<DeviceId> devices;
  for (std::size_t i = 0; i < each.of; ++i) {
    devices.push_back(device_id(host_of(device), index_of(device) - each.at + i));
  }
  return devices;
}

/// A model on one GPU may be on each. One that is sharded has blocks of GPUs that lie side by side,
/// as heddle's configuration makes them (config/blocks.h).
void LiveMap::place_ranks(const World& world, ModelId model, bool shares) {
  const auto tp = static_cast<std::size_t>(world.model(model).tp);
  if (tp == 1 && !gpus_.empty()) {
    configure_.models.push_back(entry(world, managed(model)));
    configure_.models.back().on_kinds[kKind] = footprint(managed(model));
    return;
  }
  std::vector<core::ManagerModel> ranks;
  for (const ModelId id : parts_of_[model.value()]) {
    ranks.push_back(entry(world, id));
    ranks.back().shares = shares;
    if (ranks.size() > 1) {
      ranks.back().part_of = ranks.front().id;
    }
  }
  for (const std::vector<GpuId>& gpus : by_host_) {
    for (std::size_t begin = 0; begin + tp <= gpus.size(); begin += tp) {
      const DeviceId leader = device(gpus[begin]);
      for (std::size_t i = 0; i < tp; ++i) {
        const DeviceId here = device(gpus[begin + i]);
        ranks[i].footprints[here] = footprint(ranks[i].id);
        if (i > 0) {
          ranks.front().groups[leader].push_back({.model = ranks[i].id, .device = here});
        }
      }
    }
  }
  if (!ranks.front().footprints.empty()) {  // Else nobody offers it.
    configure_.models.insert(configure_.models.end(), ranks.begin(), ranks.end());
  }
}

/// Each engine has its GPUs, as a configuration names them. What its requests need is its own
/// affair.
void LiveMap::place_external(const World& world, double kv_bytes) {
  std::vector<ModelId> models;
  for (std::size_t i = 0; i < world.models().size(); ++i) {
    if (world.model(ModelId(i)).external) {
      models.emplace_back(i);
    }
  }
  std::vector<EnginePlace> places = place_engines(world, models, kv_bytes);
  for (std::size_t i = 0; i < models.size(); ++i) {
    EnginePlace& place = places[i];
    if (place.gpus.empty()) {
      continue;  // Nobody offers it.
    }
    std::ranges::sort(place.gpus);
    core::ManagerModel model = entry(world, managed(models[i]));
    model.context = 1;
    model.fetched.clear();
    model.external = core::ExternalModel{.drain = kDrain};
    const DeviceId first = device(place.gpus.front());
    model.footprints[first] = {.image_pages = place.pages};
    for (auto gpu = std::next(place.gpus.begin()); gpu != place.gpus.end(); ++gpu) {
      model.external->further[first].push_back(device(*gpu));
    }
    configure_.models.push_back(std::move(model));
    engines_[managed(models[i])] = std::move(place);
  }
}

void LiveMap::place_stages(const World& world, ModelId first) {
  const Part& lead = part(first);
  for (std::size_t i = 0; i < lead.of; ++i) {
    const ModelId id(first.value() + i);
    core::ManagerModel stage = entry(world, id);
    stage.on_kinds[kKind] = footprint(id);
    if (i > 0) {
      stage.part_of = first;
    } else {
      stage.cut_of = managed(lead.model);
      for (std::size_t next = 1; next < lead.of; ++next) {
        stage.stages.emplace_back(first.value() + next);
      }
    }
    configure_.models.push_back(std::move(stage));
  }
}

}  // namespace heddle::sim
