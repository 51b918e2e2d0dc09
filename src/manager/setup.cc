#include "manager/setup.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

namespace heddle::manager {

namespace {

policy::WantedObjectives objectives(const config::SloConfig& slo) {
  const auto wanted = [](Duration time) {
    return time > Duration{} ? std::optional(time) : std::nullopt;
  };
  return {.ttft = wanted(slo.ttft), .tpot = wanted(slo.tpot)};
}

/// What is the same of all ranks of a model.
core::ManagerModel entry_of(const ConfiguredModel& model) {
  return {.id = model.id,
          .name = model.config.id,
          .image_bytes = model.offer()->ranks.front().image_bytes,
          .context = model.offer()->context,
          .pin = model.config.pin,
          .min_residence = model.config.min_residence,
          .slo = objectives(model.config.slo)};
}

/// Where it can be, of the hosts that take part.
void place(const ConfiguredModel& model, std::size_t rank, core::ManagerModel& entry) {
  for (const auto& [host, offer] : model.offers) {
    if (model.served_by(host) && rank < offer.ranks.size()) {
      entry.footprints.insert(offer.ranks[rank].footprints.begin(),
                              offer.ranks[rank].footprints.end());
      if (offer.fetched) {
        entry.fetched[host] = offer.ranks[rank].image_bytes;
      }
    }
  }
}

/// On a host where an engine is on several devices at once, the first of them stands for all.
void lead_together(const ConfiguredModel& model, core::ManagerModel& entry) {
  for (const auto& [host, offer] : model.offers) {
    if (!model.served_by(host) || !offer.together) {
      continue;
    }
    const auto& footprints = offer.ranks.front().footprints;
    std::vector<DeviceId>& further = entry.external->further[footprints.begin()->first];
    for (auto other = std::next(footprints.begin()); other != footprints.end(); ++other) {
      further.push_back(other->first);
      entry.footprints.erase(other->first);
    }
  }
}

core::ManagerModel external_model(const std::vector<ConfiguredModel>& models,
                                  const ConfiguredModel& model) {
  const config::EngineConfig& engine = *model.config.engine;
  const bool keeps_requests = std::ranges::any_of(model.offers, [&](const auto& entry) {
    return model.served_by(entry.first) && entry.second.keeps_requests;
  });
  core::ManagerModel entry = entry_of(model);
  place(model, 0, entry);
  entry.external =
      core::ExternalModel{.drain = keeps_requests ? std::optional(engine.drain) : std::nullopt};
  lead_together(model, entry);
  for (const ConfiguredModel& other : models) {
    if (std::count(model.config.displaces.begin(), model.config.displaces.end(), other.config.id) >
        0) {
      entry.displaces.push_back(other.id);
    }
  }
  std::sort(entry.displaces.begin(), entry.displaces.end());
  return entry;
}

/// Says of a sharded model, `first` being its rank 0, where its ranks go, and whether they `share`
/// their devices with other models; gives the others.
std::vector<core::ManagerModel> place_shards(const ConfiguredModel& model,
                                             bool share,
                                             core::ManagerModel& first) {
  std::vector<core::ManagerModel> shards;
  // Stages of a pipeline take all that is free.
  first.shares = share && model.config.tensor_parallel > 1;
  for (std::size_t i = 0; i < model.shards.size(); ++i) {
    core::ManagerModel& shard = shards.emplace_back(first);
    shard.id = model.shards[i];
    shard.name = host::shard_name(model.config.id, i + 1);
    shard.image_bytes = model.offer()->ranks[i + 1].image_bytes;
    shard.footprints.clear();
    shard.fetched.clear();
    shard.part_of = first.id;
    shard.shares = first.shares;
    place(model, i + 1, shard);
  }
  for (const host::Block& block : *model.blocks) {
    std::vector<core::ShardPlace>& others = first.groups[block.devices.front()];
    for (std::size_t i = 0; i < model.shards.size() && i + 1 < block.devices.size(); ++i) {
      others.push_back({.model = model.shards[i], .device = block.devices[i + 1]});
    }
  }
  if (!shards.empty()) {  // Rank 0 is where it may lead.
    std::erase_if(first.footprints,
                  [&](const auto& entry) { return !first.groups.contains(entry.first); });
  }
  return shards;
}

/// The model where it is cut, `cut` being the place of that cut among those offered: the first
/// stage is the model that gets requests.
std::vector<core::ManagerModel> stages_of(const ConfiguredModel& model,
                                          std::size_t cut,
                                          const core::ManagerModel& whole) {
  const std::vector<ModelId>& ids = model.cuts[cut];
  std::vector<core::ManagerModel> stages;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    core::ManagerModel& stage = stages.emplace_back(whole);
    stage.id = ids[i];
    stage.name = host::stage_name(model.config.id, i, ids.size());
    stage.pin = false;
    stage.footprints.clear();
    stage.fetched.clear();
    for (const auto& [host, offer] : model.offers) {
      if (model.alike.contains(host) && cut < offer.cuts.size()) {
        const host::OfferedRank& rank = offer.cuts[cut].stages.at(i);
        stage.image_bytes = rank.image_bytes;
        stage.footprints.insert(rank.footprints.begin(), rank.footprints.end());
        if (offer.fetched) {
          stage.fetched[host] = rank.image_bytes;
        }
      }
    }
    if (i > 0) {
      stage.part_of = ids.front();
    }
  }
  stages.front().cut_of = whole.id;
  stages.front().stages.assign(ids.begin() + 1, ids.end());
  return stages;
}

}  // namespace

std::vector<host::Assignment> assignments(const std::vector<ConfiguredModel>& models, HostId host) {
  std::vector<host::Assignment> all;
  for (const ConfiguredModel& model : models) {
    if (model.served_by(host)) {
      host::Assignment& one =
          all.emplace_back(host::Assignment{.name = model.config.id, .digest = model.digest});
      one.ids.push_back(model.id);
      one.ids.insert(one.ids.end(), model.shards.begin(), model.shards.end());
      for (const std::vector<ModelId>& cut : model.cuts) {
        one.ids.insert(one.ids.end(), cut.begin(), cut.end());
      }
    }
  }
  return all;
}

std::map<ModelId, core::ServedModel> served_models(const std::vector<ConfiguredModel>& models) {
  std::map<ModelId, core::ServedModel> served;
  for (const ConfiguredModel& model : models) {
    served[model.id] = {.image_bytes = model.image_bytes(), .failure = model.failure()};
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
                           const std::vector<core::ManagerDevice>& devices,
                           Duration clock_offset) {
  core::Configure configure{.devices = devices};
  configure.options.queue_per_model = static_cast<std::size_t>(config.limits.queue);
  configure.options.drain_after = config.planner.drain_after;
  configure.options.turn = config.planner.turn;
  configure.options.planner = planner_options(config.planner, clock_offset);
  for (const ConfiguredModel& model : models) {
    if (model.offer() == nullptr || !model.blocks) {
      continue;
    }
    if (model.external()) {
      configure.models.push_back(external_model(models, model));
      continue;
    }
    core::ManagerModel entry = entry_of(model);
    entry.batch = model.config.batch;
    place(model, 0, entry);
    for (core::ManagerModel& shard : place_shards(model, config.planner.share_groups, entry)) {
      configure.models.push_back(std::move(shard));
    }
    for (std::size_t cut = 0; cut < model.cuts.size(); ++cut) {
      for (core::ManagerModel& stage : stages_of(model, cut, entry)) {
        configure.models.push_back(std::move(stage));
      }
    }
    configure.models.push_back(std::move(entry));
  }
  return configure;
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
  config::PlannerConfig planner = now.planner;
  planner.drain_after = before.planner.drain_after;  // That alone is asked anew each time.
  if (before.planner != planner) {
    return Error{Code::kFailedPrecondition,
                 "reload configuration: `planner` has changed in more than `drain_after`, which "
                 "takes a restart"};
  }
  return {};
}

}  // namespace heddle::manager
