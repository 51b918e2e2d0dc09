#include "host/opened_model.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <string>
#include <utility>

#include "base/units.h"
#include "config/blocks.h"
#include "fetch/outline.h"
#include "fetch/source_name.h"
#include "host/setup.h"
#include "spec/block_panels.h"
#include "spec/operations.h"
#include "store/adapter.h"
#include "store/adapter_path.h"
#include "store/digest.h"
#include "store/model_source.h"

namespace heddle::host {
namespace {

/// Most tokens of a step: what a device takes up within some tens of milliseconds.
constexpr std::int64_t kCpuBatchTokens = 512;
constexpr std::int64_t kGpuBatchTokens = 4096;

/// The adapters of a model, and the rank that there has to be room for: a power of two, so that
/// another adapter seldom makes it another model.
struct FoundAdapters {
  std::vector<spec::AdapterSource> sources{};
  std::int64_t rank = 0;
};

/// Finds adapters, of which those without files are where their configuration says.
FoundAdapters find_adapters(const config::Config& config, OpenedModel& opened) {
  FoundAdapters found;
  const auto make_room = [&found](std::int64_t rank) {
    const std::uint64_t room = std::bit_ceil(static_cast<std::uint64_t>(rank));
    found.rank = std::max(found.rank, static_cast<std::int64_t>(room));
  };
  if (opened.config.adapter_rank > 0) {
    make_room(opened.config.adapter_rank);
  }
  const store::ModelPlaces places =
      store::find_places(config.directory, store::process_environment());
  for (const config::ModelConfig& adapter : opened.config.adapters) {
    const auto directory = store::find_model(adapter.adapter, places);
    found.sources.push_back(
        {.name = adapter.id, .directory = directory ? directory->string() : adapter.adapter});
    const auto said = directory ? store::read_adapter_config(*directory) : directory.error();
    if (!said) {
      opened.adapter_failures.emplace(adapter.id, said.error());
      continue;
    }
    make_room(said->rank);
  }
  return found;
}

/// Holds adapters against their base. One that does not fit fails alone.
void check_adapters(OpenedModel& opened) {
  const agent::HostModel& base = opened.ranks->front();
  for (const spec::AdapterSource& source : base.adapters) {
    const auto adapter = store::Adapter::open(source.directory, base.spec, base.dtype);
    if (!adapter) {
      opened.adapter_failures.emplace(source.name, adapter.error());
    }
  }
}

/// Tokens of a request, prompt and answer together. A text may fill an encoder: the one that counts
/// as its answer is not computed.
std::int64_t context_of(const config::ModelConfig& config, const spec::ModelSpec& spec) {
  const std::int64_t own =
      config.context > 0 ? std::min(config.context, spec.max_position) : spec.max_position;
  return own + (spec::is_encoder(spec) ? 1 : 0);
}

/// Chooses what depends on how long requests of a model may be.
void fit_context(const config::ModelConfig& config, agent::HostModel& part) {
  spec::fit_rope(part.spec, context_of(config, part.spec));
}

/// Where it is configured so, no product rounds its inputs to FP8.
void choose_inputs(const config::ModelConfig& model, std::vector<agent::HostModel>& parts) {
  for (agent::HostModel& part : parts) {
    if (!model.f8_inputs) {
      spec::take_inputs_as_they_are(part.spec);
    }
  }
}

/// Opens what is in a directory.
void open_files(const std::string& directory,
                const config::Config& config,
                const agent::HostGeometry& geometry,
                OpenedModel& opened) {
  const config::ModelConfig& model = opened.config;
  opened.adapter_failures.clear();
  FoundAdapters adapters = find_adapters(config, opened);
  opened.ranks = model.pipeline_parallel > 1
                     ? agent::open_host_stages(directory,
                                               config.directory,
                                               model.dtype,
                                               geometry,
                                               model.pipeline_parallel,
                                               model.kv)
                     : agent::open_host_shards(directory,
                                               config.directory,
                                               model.dtype,
                                               geometry,
                                               model.tensor_parallel,
                                               {.adapter_rank = adapters.rank,
                                                .experts_resident = model.experts_resident},
                                               model.kv);
  if (!opened.ranks) {
    return;
  }
  for (std::size_t rank = 0; rank < opened.ranks->size(); ++rank) {
    agent::HostModel& part = (*opened.ranks)[rank];
    part.name = rank > 0 ? shard_name(model.id, rank) : model.id;
    part.source = opened.source;
    fit_context(model, part);
  }
  Result<std::string> digest = store::digest(opened.ranks->front().directory);
  if (!digest) {
    opened.ranks = digest.error();
    return;
  }
  opened.digest = std::move(*digest);
  if (adapters.rank > 0) {
    // With room for larger ones its workspace is another.
    opened.digest += ":lora" + std::to_string(adapters.rank);
  }
  if (model.kv != spec::KvType::kComputed) {
    // Its KV means nothing to who keeps it as another type.
    opened.digest += ":kv-" + std::string(spec::dtype_name(spec::kv_dtype(model.kv, model.dtype)));
  }
  if (model.context > 0 && opened.ranks->front().spec.rope.kind == spec::RopeKind::kLongRope) {
    // Its context decides how positions rotate.
    opened.digest += ":context" + std::to_string(model.context);
  }
  choose_inputs(model, *opened.ranks);
  if (!model.f8_inputs) {
    opened.digest += ":bf16-inputs";  // The KV of a prompt may be another.
  }
  if (const std::int64_t slots = opened.ranks->front().spec.experts.slots; slots > 0) {
    opened.digest += ":experts" + std::to_string(slots);  // Its image is another.
  }
  opened.ranks->front().adapters = std::move(adapters.sources);
  check_adapters(opened);
}

/// Other models may come beside the stage. It has room for the longest request all the same.
void share_device(agent::HostModel& stage, std::int64_t context) {
  stage.shares = true;
  for (policy::Footprint* footprint : {&stage.footprint, &stage.gpu_footprint}) {
    footprint->min_kv_pages =
        std::max(footprint->min_kv_pages, policy::kv_pages(footprint->kv, {&context, 1}));
  }
}

/// Of a model that comes over a network to a cluster: its stages, for hosts that fetch it together.
/// One of few layers has fewer cuts.
void open_cuts(const std::string& directory,
               bool in_cluster,
               const config::Config& config,
               const agent::HostGeometry& geometry,
               OpenedModel& opened) {
  const config::ModelConfig& model = opened.config;
  if (!in_cluster || model.block() > 1 || !opened.ranks || !model.adapters.empty() ||
      model.adapter_rank > 0 || model.experts_resident < 1) {
    return;
  }
  for (std::int64_t stages = 2; stages <= model.cold_start_hosts; ++stages) {
    auto cut = agent::open_host_stages(
        directory, config.directory, model.dtype, geometry, stages, model.kv);
    if (!cut) {
      return;
    }
    choose_inputs(model, *cut);
    for (agent::HostModel& stage : *cut) {
      stage.name = model.id;
      stage.source = opened.source;
      fit_context(model, stage);
      share_device(stage, context_of(model, stage.spec));
    }
    opened.cuts.push_back(std::move(*cut));
  }
}

/// Whether what a cache has of a model is not all of it.
bool is_partial(const OpenedModel& opened,
                const std::filesystem::path& directory,
                const store::ModelPlaces& places) {
  const std::string below = places.hub_cache.string() + "/";
  return !opened.ranks && opened.ranks.error().code == Code::kNotFound &&
         directory.string().starts_with(below);
}

/// Whether there are operations for all that the model is made of.
bool knows(const config::DeviceConfig& device, const agent::HostModel& model) {
  return spec::cpu_only(model.spec, model.dtype).empty() || device.kind == config::DeviceKind::kCpu;
}

/// Whether a model that one device can hold may run there.
bool may_run_on(const config::ModelConfig& model,
                const agent::HostModel& part,
                const config::DeviceConfig& device) {
  return config::runs_models(device) && knows(device, part) &&
         (model.devices.empty() ||
          std::find(model.devices.begin(), model.devices.end(), device.name) !=
              model.devices.end());
}

/// Any device may have any stage of a cut.
std::vector<OfferedRank> offer_cut(const config::Config& config,
                                   HostId host,
                                   const config::ModelConfig& model,
                                   const std::vector<agent::HostModel>& stages) {
  std::vector<OfferedRank> offered;
  for (const agent::HostModel& stage : stages) {
    OfferedRank& rank = offered.emplace_back(OfferedRank{.image_bytes = stage.image_bytes});
    for (std::size_t i = 0; i < config.devices.size(); ++i) {
      if (may_run_on(model, stage, config.devices[i])) {
        rank.footprints[device_id(host, i)] = footprint_on(config.devices[i], stage);
      }
    }
  }
  return offered;
}

/// Says of a sharded model where its ranks go. In a cluster, stages for which this host has no
/// block may be on any of its devices, beside some of other hosts.
void offer_blocks(const config::Config& config,
                  HostId host,
                  const OpenedModel& model,
                  Offer& offer) {
  const std::vector<agent::HostModel>& ranks = *model.ranks;
  for (const std::vector<std::size_t>& block : config::device_blocks(config, std::ssize(ranks))) {
    if (!knows(config.devices[block.front()], ranks.front())) {
      continue;
    }
    std::vector<DeviceId>& devices = offer.blocks.emplace_back().devices;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      const std::size_t index = block[rank];
      devices.push_back(device_id(host, index));
      offer.ranks[rank].footprints[devices.back()] =
          footprint_on(config.devices[index], ranks[rank]);
    }
  }
  const bool over_hosts = config.cluster && model.config.pipeline_parallel > 1;
  for (std::size_t i = 0; over_hosts && offer.blocks.empty() && i < config.devices.size(); ++i) {
    for (std::size_t rank = 0; rank < ranks.size() && runs_models(config.devices[i]) &&
                               knows(config.devices[i], ranks[rank]);
         ++rank) {
      offer.ranks[rank].footprints[device_id(host, i)] =
          footprint_on(config.devices[i], ranks[rank]);
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
  if (std::ranges::none_of(config.devices, [&](const config::DeviceConfig& device) {
        return config::runs_models(device) && knows(device, first);
      })) {
    offer.failure = Error{Code::kInvalidArgument,
                          "models with " + std::string(spec::cpu_only(first.spec, first.dtype)) +
                              " run on devices of kind cpu so far, and this host has none; another "
                              "engine can serve it: configure it with `cmd:`"};
    return offer;
  }
  offer.fetched = !model.source.empty();
  offer.written = std::chrono::nanoseconds(first.written.time_since_epoch()).count();
  offer.context = context_of(model.config, first.spec);
  for (const agent::HostModel& rank : *model.ranks) {
    offer.ranks.push_back({.image_bytes = rank.image_bytes});
  }
  if (model.ranks->size() > 1) {
    offer_blocks(config, host, model, offer);
    return offer;
  }
  for (std::size_t i = 0; i < config.devices.size(); ++i) {
    if (may_run_on(model.config, first, config.devices[i])) {
      offer.ranks[0].footprints[device_id(host, i)] = footprint_on(config.devices[i], first);
    }
  }
  for (const std::vector<agent::HostModel>& cut : model.cuts) {
    offer.cuts.push_back({.stages = offer_cut(config, host, model.config, cut)});
  }
  return offer;
}

/// What is wrong with files is wrong with the request that names them.
Error refusal(const Error& error) {
  return {error.code == Code::kCorrupt ? Code::kInvalidArgument : error.code, error.message};
}

/// What of the host cache is always in use while all models are loaded whose experts stay there,
/// but for `model` [bytes].
std::uint64_t kept_at_host(const std::vector<OpenedModel>& models, const OpenedModel& model) {
  std::uint64_t bytes = 0;
  for (const OpenedModel& each : models) {
    if (&each != &model && each.known && each.ranks && !each.ranks->empty() &&
        each.ranks->front().host_pages > 0) {
      bytes += each.ranks->front().image_bytes;
    }
  }
  return bytes;
}

/// A model whose image would wait for room that others never give up is not offered.
void check_host_memory(const config::Config& config,
                       const std::vector<OpenedModel>& models,
                       const OpenedModel& model,
                       Offer& offer) {
  const std::uint64_t kept = kept_at_host(models, model);
  if (offer.failure || kept == 0 || model.config.engine) {
    return;
  }
  std::uint64_t own = 0;
  for (const OfferedRank& rank : offer.ranks) {
    own = std::max(own, rank.image_bytes);
  }
  if (kept + own > config.host.memory) {
    offer.failure = Error{Code::kInvalidArgument,
                          "its image of " + format_bytes(own) + " has no room in host.memory of " +
                              format_bytes(config.host.memory) + " beside " + format_bytes(kept) +
                              " of models whose experts stay there; give host.memory more"};
  }
}

}  // namespace

Result<std::uint64_t> cache_budget(const store::Environment& environment) {
  const auto text = environment("HEDDLE_CACHE_BUDGET");
  Result<std::uint64_t> budget = text ? parse_bytes(*text) : Result<std::uint64_t>(0);
  return budget ? budget
                : Error{budget.error().code, "HEDDLE_CACHE_BUDGET: " + budget.error().message};
}

fetch::PullOptions fetch_options(const config::Config& config) {
  fetch::PullOptions options;
  options.environment = store::process_environment();
  options.places = store::find_places(config.directory, options.environment);
  const Result<std::uint64_t> budget = cache_budget(options.environment);
  options.budget = budget ? *budget : 0;
  return options;
}

OpenedModel open_model(const config::Config& config,
                       const config::ModelConfig& model,
                       const agent::HostGeometry& geometry) {
  OpenedModel opened{.config = model};
  if (model.engine) {
    return opened;
  }
  const fetch::PullOptions options = fetch_options(config);
  const auto directory = store::find_model(model.path, options.places);
  const bool remote = fetch::remote_source(model.path, options.environment).has_value();
  if (directory) {
    open_files(directory->string(), config, geometry, opened);
    if (!is_partial(opened, *directory, options.places)) {
      if (remote) {
        open_cuts(directory->string(), config.cluster.has_value(), config, geometry, opened);
      }
      return opened;
    }
  }
  if (!remote) {
    if (!directory) {
      opened.ranks = directory.error();
    }
    return opened;
  }
  opened.source = model.path;
  const auto outline = fetch::find_outline(options.places, model.path);
  opened.known = outline.has_value();
  if (outline) {
    open_files(outline->string(), config, geometry, opened);
    open_cuts(outline->string(), config.cluster.has_value(), config, geometry, opened);
  }
  return opened;
}

Result<std::string> find_adapter(const std::vector<std::string>& folders,
                                 const std::string& named,
                                 const agent::HostModel& base) {
  const Result<std::filesystem::path> directory = store::find_adapter_in(folders, named);
  if (!directory) {
    return directory.error();
  }
  const Result<store::AdapterConfig> config = store::read_adapter_config(*directory);
  if (!config) {
    return refusal(config.error());
  }
  if (config->rank > base.spec.adapter_rank) {
    return Error{Code::kInvalidArgument,
                 "the adapter has rank " + std::to_string(config->rank) + ", and " + base.name +
                     " has room for " + std::to_string(base.spec.adapter_rank) +
                     ": give that model a larger adapter_rank"};
  }
  const Result<store::Adapter> adapter = store::Adapter::open(*directory, base.spec, base.dtype);
  return adapter ? Result<std::string>(directory->string()) : refusal(adapter.error());
}

std::vector<OpenedModel> open_models(const config::Config& config,
                                     const agent::HostGeometry& geometry) {
  std::vector<OpenedModel> models;
  for (const config::ModelConfig& model : config.models) {
    models.push_back(open_model(config, model, geometry));
  }
  return models;
}

void take_for_fetched(const std::string& source,
                      bool in_cluster,
                      const config::Config& config,
                      const agent::HostGeometry& geometry,
                      OpenedModel& opened) {
  if (!opened.ranks || opened.ranks->empty()) {
    return;
  }
  opened.source = source;
  for (agent::HostModel& rank : *opened.ranks) {
    rank.source = source;
  }
  open_cuts(opened.ranks->front().directory.string(), in_cluster, config, geometry, opened);
}

std::int64_t choose_batch_tokens(const config::Config& config) {
  if (config.host.step_tokens > 0) {
    return config.host.step_tokens;
  }
  const fetch::PullOptions options = fetch_options(config);
  std::vector<std::string> sources;
  for (const config::ModelConfig& model : config.models) {
    if (!model.engine) {
      const bool found = store::find_model(model.path, options.places).has_value();
      const auto outline = found ? std::nullopt : fetch::find_outline(options.places, model.path);
      sources.push_back(outline ? outline->string() : model.path);
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
    if (model.known) {
      check_host_memory(config, models, model, all.emplace_back(offer_of(config, host, model)));
    }
  }
  return all;
}

}  // namespace heddle::host
