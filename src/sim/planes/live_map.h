#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/manager/events.h"
#include "sim/planes/support.h"
#include "sim/world.h"

namespace heddle::sim {

/// What a live manager is configured with, as far as the world leaves it open; `heddle serve` has
/// the same standards (config::Config).
struct LiveOptions {
  core::PlannerOptions planner{.prewarm = true, .value = true, .pressure = true, .replicas = true};
  std::int64_t queue = 512;  ///< Unfinished requests of a model; the next is refused.
  std::int64_t stages = 4;   ///< Hosts that fetch a model together, at most; 1: one alone.
  bool shares = true;        ///< Other models may be beside sharded ones.
  double engine_kv = 8e9;    ///< Of an external engine, on all its GPUs together [bytes].
};

/// The world in the words of a live manager: its hosts and devices, and its models with their
/// shards and stages, by the numbers that they have there. Nothing of it changes.
class LiveMap {
 public:
  LiveMap(const World& world, const LiveOptions& options);

  /// A model as the manager knows it: one of the world, a rank of one, or a stage of one.
  struct Part {
    ModelId model{};     ///< Of the world.
    ModelId first{};     ///< That leads its group, or pipeline; itself where it is the whole.
    std::size_t at = 0;  ///< Its rank or stage.
    std::size_t of = 1;  ///< So many there are.
    bool stage = false;  ///< Of a pipeline; else each has a part of every layer.
  };
  [[nodiscard]] const Part& part(ModelId managed) const { return parts_.at(managed.value() - 1); }
  /// A model of the world as a whole, or its rank 0.
  [[nodiscard]] static ModelId managed(ModelId model) { return ModelId(model.value() + 1); }
  /// All that the manager knows of it: itself, its ranks and its stages.
  [[nodiscard]] const std::vector<ModelId>& parts_of(ModelId model) const {
    return parts_of_.at(model.value());
  }
  [[nodiscard]] std::size_t models() const { return parts_of_.size(); }
  [[nodiscard]] const policy::Footprint& footprint(ModelId managed) const {
    return footprints_.at(managed.value() - 1);
  }
  [[nodiscard]] std::uint64_t image_bytes(ModelId managed) const;

  [[nodiscard]] DeviceId device(GpuId gpu) const { return devices_.at(gpu.value()); }
  [[nodiscard]] GpuId gpu(DeviceId device) const { return gpus_.at(device); }
  /// A host of the world.
  [[nodiscard]] HostId host(HostId host) const;

  /// Where the external engine is that serves the model; null: none does, or it fits nowhere.
  [[nodiscard]] const EnginePlace* engine(ModelId managed) const {
    const auto found = engines_.find(managed);
    return found == engines_.end() ? nullptr : &found->second;
  }

  /// Where the group of a rank on this device is led, and the devices of all ranks.
  [[nodiscard]] std::vector<DeviceId> block(ModelId managed, DeviceId device) const;

  /// The whole configuration. Memory of hosts is told apart, as it changes.
  [[nodiscard]] const core::Configure& configuration() const { return configure_; }

 private:
  void add_parts(const World& world, ModelId model, std::size_t of, bool stages);
  [[nodiscard]] core::ManagerModel entry(const World& world, ModelId managed) const;
  void place_ranks(const World& world, ModelId model, bool shares);
  void place_stages(const World& world, ModelId first);
  void place_external(const World& world, double kv_bytes);

  std::vector<Part> parts_{};                     ///< By number, from 1.
  std::vector<policy::Footprint> footprints_{};   ///< Likewise.
  std::vector<std::uint64_t> bytes_{};            ///< Likewise.
  std::vector<std::vector<ModelId>> parts_of_{};  ///< By model of the world.
  std::map<ModelId, EnginePlace> engines_{};      ///< By number.
  std::vector<DeviceId> devices_{};               ///< By GPU.
  std::map<DeviceId, GpuId> gpus_{};
  std::vector<std::vector<GpuId>> by_host_{};
  std::size_t hosts_ = 0;
  core::Configure configure_{};
};

/// Groups of KV, of which tokens need as many pages in sum as `bytes` each are [pages of
/// `page_bytes`]: the world's pages hold parts of blocks, a manager's hold whole ones.
[[nodiscard]] std::vector<policy::KvGroup> kv_groups(double bytes, std::int64_t page_bytes);

}  // namespace heddle::sim
