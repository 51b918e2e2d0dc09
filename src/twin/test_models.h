#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "twin/setup.h"
#include "twin/test_world_options.h"

namespace heddle::twin::test {

inline constexpr std::uint64_t kPageBytes = 4096;
/// Of a host: a page takes two milliseconds.
inline constexpr std::uint64_t kNetworkRate = kPageBytes * 500;

/// Uniform in [least, most].
inline std::int64_t between(Rng& rng, std::int64_t least, std::int64_t most) {
  return least + static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(most - least) + 1));
}

/// For tests: the models of a world, which are drawn, and how its host is told of them.
class DrawnModels {
 public:
  /// Both outlive it.
  DrawnModels(const WorldOptions& options, Rng& rng) : options_(options), rng_(rng) {
    for (int i = 0; i < options.models; ++i) {
      add(i);
    }
  }

  /// One of them; a shard is none.
  ModelId any() { return drawn()->first; }
  /// One of them goes, and another comes.
  void replace_any() {
    models_.erase(drawn());
    add(1);
  }
  [[nodiscard]] bool is_sharded(ModelId id) const { return shards_.contains(id); }

  [[nodiscard]] core::Configure manager() const {
    core::Configure configure{.options = {.drain_after = options_.drain_after,
                                          .turn = options_.turn,
                                          .load_retry_first = 1ms,
                                          .load_cooldown = 10ms,
                                          .planner = options_.planner}};
    for (const core::ManagerModel* model : configured()) {
      configure.models.push_back(*model);
    }
    for (const HostId host : options_.host_ids()) {
      for (int i = 0; i < options_.devices; ++i) {
        configure.devices.push_back({.id = device_id(host, static_cast<std::uint64_t>(i)),
                                     .name = "d",
                                     .pages = options_.pages_of(i),
                                     .page_bytes = kPageBytes,
                                     .in_host_memory = true});
      }
      if (options_.fetched > 0) {
        configure.networks[host] = static_cast<std::int64_t>(kNetworkRate);
      }
    }
    return configure;
  }
  [[nodiscard]] std::vector<TwinModel> host() const {
    std::vector<TwinModel> all;
    for (const core::ManagerModel* model : configured()) {
      all.push_back({.model = {.id = model->id,
                               .image_bytes = model->image_bytes,
                               .footprint = model->footprints.begin()->second,
                               .fetched = !model->fetched.empty()},
                     .layers = 2,
                     .body_bytes = model->image_bytes - std::min(model->image_bytes, kPageBytes),
                     .step = {.fixed = 100e-6},
                     .piece_tokens = 6});
      if (const auto found = parts_.find(model->id); found != parts_.end()) {
        all.back().stage = found->second.stage;
        all.back().source = found->second.source;
        all.back().records = found->second.records;
      }
    }
    return all;
  }

 private:
  using Models = std::map<ModelId, core::ManagerModel>;

  Models::iterator drawn() {
    return std::next(models_.begin(), static_cast<std::ptrdiff_t>(rng_.below(models_.size())));
  }

  void add(int index) {
    const std::int64_t drawn = between(rng_, 2, 7);
    const std::int64_t image = options_.image_pages > 0 ? options_.image_pages : drawn;
    const bool sharded = index < options_.sharded;
    const bool fetched = !sharded && index < options_.sharded + options_.fetched;
    const policy::Footprint footprint{.image_pages = image,
                                      .overhead_pages = between(rng_, 0, 2),
                                      .min_kv_pages = 1,
                                      .graph_pages = sharded ? 0 : options_.graph_pages,
                                      .kv = {{.tokens_per_block = 4, .blocks_per_page = 2}}};
    const ModelId id(++made_);
    core::ManagerModel model{.id = id,
                             .name = "m" + std::to_string(id.value()),
                             .image_bytes = static_cast<std::uint64_t>(image) * kPageBytes - 17,
                             .context = 200,
                             .pin = options_.pin_one && index == 0,
                             .min_residence = options_.min_residence,
                             .slo = {.ttft = options_.ttft},
                             .batch = options_.batch};
    for (const HostId host : options_.host_ids()) {
      for (int i = 0; !sharded && i < options_.devices; ++i) {
        model.footprints[device_id(host, static_cast<std::uint64_t>(i))] = footprint;
      }
    }
    if (sharded) {
      shard(footprint, model);
    }
    if (fetched) {
      cut(footprint, model);
    }
    models_[id] = model;
  }

  /// Has it come over a network, alone or in two stages or three.
  void cut(policy::Footprint footprint, core::ManagerModel& model) {
    const std::int64_t pages = footprint.image_pages;
    footprint.graph_pages = 0;
    footprint.min_kv_pages = 4;
    model.context = 64;
    parts_[model.id] = {.source = model.id};
    for (const HostId host : options_.host_ids()) {
      model.fetched[host] = model.image_bytes;
    }
    for (std::int64_t record = 0; record < pages; ++record) {
      parts_[model.id].records.push_back(
          {.number = static_cast<std::uint64_t>(record), .bytes = kPageBytes});
    }
    for (std::int64_t stages = 2; stages <= std::min<std::int64_t>(3, pages); ++stages) {
      std::vector<core::ManagerModel>& all = stages_[model.id].emplace_back();
      for (std::int64_t stage = 0; stage < stages; ++stage) {
        all.push_back(stage_of(model, footprint, pages, {stage, stages, true}));
      }
      all.front().cut_of = model.id;
      for (std::size_t i = 1; i < all.size(); ++i) {
        all.front().stages.push_back(all[i].id);
        all[i].part_of = all.front().id;
      }
    }
  }

  core::ManagerModel stage_of(const core::ManagerModel& whole,
                              policy::Footprint footprint,
                              std::int64_t pages,
                              const TwinStage& place) {
    core::ManagerModel stage = whole;
    stage.id = ModelId(++made_);
    stage.pin = false;
    const std::int64_t begin = pages * place.index / place.stages;
    const std::int64_t end = pages * (place.index + 1) / place.stages;
    footprint.image_pages = end - begin;
    footprint.kv.front().blocks_per_page *= 2;
    stage.image_bytes = static_cast<std::uint64_t>(end - begin) * kPageBytes - 17;
    for (auto& [device, there] : stage.footprints) {
      there = footprint;
    }
    for (auto& [host, bytes] : stage.fetched) {
      bytes = stage.image_bytes;
    }
    const std::vector<FileRecord>& all = parts_[whole.id].records;
    parts_[stage.id] = {
        .stage = place, .source = whole.id, .records = {all.begin() + begin, all.begin() + end}};
    return stage;
  }

  /// Shards a model in two equal parts, for every two devices of a host. Others may be beside every
  /// second one.
  void shard(const policy::Footprint& footprint, core::ManagerModel& model) {
    model.shares = options_.beside || made_ % 2 == 0;
    core::ManagerModel second = model;
    second.id = ModelId(++made_);
    second.part_of = model.id;
    for (const HostId host : options_.host_ids()) {
      for (int i = 0; i + 1 < options_.devices; i += 2) {
        const DeviceId leader = device_id(host, static_cast<std::uint64_t>(i));
        const DeviceId follower = device_id(host, static_cast<std::uint64_t>(i) + 1);
        model.footprints[leader] = second.footprints[follower] = footprint;
        model.groups[leader] = {{.model = second.id, .device = follower}};
      }
    }
    shards_[model.id] = second;
  }

  /// What a host knows of a model that it fetches, or of a stage of one.
  struct Part {
    TwinStage stage{};
    ModelId source{};
    std::vector<FileRecord> records{};
  };

  /// Each followed by its shard, or by the stages of its cuts.
  [[nodiscard]] std::vector<const core::ManagerModel*> configured() const {
    std::vector<const core::ManagerModel*> all;
    for (const auto& [id, model] : models_) {
      all.push_back(&model);
      if (const auto found = shards_.find(id); found != shards_.end()) {
        all.push_back(&found->second);
      }
      if (const auto found = stages_.find(id); found != stages_.end()) {
        for (const std::vector<core::ManagerModel>& cut : found->second) {
          for (const core::ManagerModel& stage : cut) {
            all.push_back(&stage);
          }
        }
      }
    }
    return all;
  }

  const WorldOptions& options_;
  Rng& rng_;
  Models models_{};
  Models shards_{};  ///< Rank 1, by rank 0. Of models that are gone, too.
  std::map<ModelId, std::vector<std::vector<core::ManagerModel>>> stages_{};  ///< By the whole.
  std::map<ModelId, Part> parts_{};
  std::uint64_t made_ = 0;
};

}  // namespace heddle::twin::test
