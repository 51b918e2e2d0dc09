#pragma once

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
    }
    return configure;
  }
  [[nodiscard]] std::vector<TwinModel> host() const {
    std::vector<TwinModel> all;
    for (const core::ManagerModel* model : configured()) {
      all.push_back({.model = {.id = model->id,
                               .image_bytes = model->image_bytes,
                               .footprint = model->footprints.begin()->second},
                     .layers = 2,
                     .body_bytes = model->image_bytes - kPageBytes,
                     .step = {.fixed = 100e-6}});
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
    models_[id] = model;
  }

  /// Shards a model in two equal parts, for every two devices of a host.
  void shard(const policy::Footprint& footprint, core::ManagerModel& model) {
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

  /// Each followed by its shard.
  [[nodiscard]] std::vector<const core::ManagerModel*> configured() const {
    std::vector<const core::ManagerModel*> all;
    for (const auto& [id, model] : models_) {
      all.push_back(&model);
      if (const auto found = shards_.find(id); found != shards_.end()) {
        all.push_back(&found->second);
      }
    }
    return all;
  }

  const WorldOptions& options_;
  Rng& rng_;
  Models models_{};
  Models shards_{};  ///< Rank 1, by rank 0. Of models that are gone, too.
  std::uint64_t made_ = 0;
};

}  // namespace heddle::twin::test
