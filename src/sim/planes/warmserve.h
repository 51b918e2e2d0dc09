#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "policy/autoscale.h"
#include "policy/forecast.h"
#include "policy/prewarm.h"
#include "sim/planes/launch.h"
#include "sim/planes/support.h"

namespace heddle::sim {

/// Whether idle GPUs hold the weights of models that are expected.
enum class Prewarming : std::uint8_t {
  kForecast,  ///< WarmServe.
  kLeftover,  ///< SLLM-GPU: what stopped instances leave, until it is overwritten.
};

/// WarmServe: instances with GPUs of their own, autoscaled; idle and draining GPUs hold weights of
/// several models each, by forecast, so that an instance starts on weights that are there.
/// SLLM-GPU is the same without forecast. Flags: `prewarm` and `proactive` (1, WarmServe only),
/// `placement` (1: evict-aware; 0: wherever there is room first), `paper` (0; 1: scores and
/// predictor as printed), `window` and `day` [s] (300 and 86400).
class WarmServePlane final : public ControlPlane {
 public:
  WarmServePlane(Prewarming prewarming, Flags& flags);
  /// A load that an instance waits for goes before those that nobody waits for.
  [[nodiscard]] LinkRule link_rule() const override { return LinkRule::kClasses; }
  [[nodiscard]] std::optional<double> forecast_error() const override { return record_.error(); }
  void decide(const Notice& notice, const World& world, Actions& actions) override;

 private:
  struct PerModel {
    policy::LoadAverage average;
    policy::LoadHistory history;
    policy::LoadMeter meter;
    policy::Forecaster forecaster{};
    policy::Load expected{};
    std::int64_t in_system = 0;
  };
  struct Grace {
    std::int64_t kv_pages = 0;  ///< That the instance could have, per GPU.
  };

  void begin(const World& world, Actions& actions);
  void tick(const World& world, Actions& actions);
  void forecast(const World& world);
  void change(const World& world, ModelId model, std::int64_t by);
  void route(const World& world, Actions& actions, ModelId model);
  void hand_over(const World& world, Actions& actions, ReplicaId id, ModelId model);
  void reassign_lost(const World& world, Actions& actions);
  void scale(const World& world, Actions& actions, ModelId model);
  bool launch(const World& world, Actions& actions, ModelId model, Reason reason);
  bool begin_launch(
      const World& world, Actions& actions, ModelId model, Reason reason, const Launch& launch);
  void prewarm(const World& world, Actions& actions);
  /// Who lies where on these servers. O(their GPUs + replicas).
  [[nodiscard]] policy::ReplicaMap map_of(const World& world, std::span<const HostId> hosts) const;
  void update_room(const World& world, HostId host);
  [[nodiscard]] std::int64_t room_in_grace(const World& world, const Replica& replica) const;
  [[nodiscard]] std::vector<policy::ModelDemand> demands(const World& world) const;
  [[nodiscard]] StartSpec load_spec(const World& world,
                                    ModelId model,
                                    std::vector<GpuId> gpus) const;
  [[nodiscard]] static std::vector<policy::InstanceView> instances(const World& world,
                                                                   ModelId model);
  /// Whether it is on its way to serving.
  [[nodiscard]] static bool comes(const Replica& replica);
  [[nodiscard]] static std::int64_t starting(const World& world, ModelId model);

  bool forecasting_;
  bool proactive_;
  bool evict_aware_;
  bool paper_;
  policy::Calendar calendar_{};
  policy::ForecastOptions forecast_options_{};
  RequestQueues queues_{};
  std::vector<PerModel> models_{};
  std::set<ModelId> active_{};   ///< With requests or instances.
  std::set<ModelId> wanting_{};  ///< Could not be launched for lack of GPUs.
  std::map<ReplicaId, std::vector<LiveId>> assigned_{};  ///< Who waits for an instance that starts.
  RoomIndex room_{};                                     ///< By GPUs that no instance has.
  std::map<ReplicaId, Grace> grace_{};
  std::map<ReplicaId, policy::ReplicaWorth> worth_{};
  bool stale_ = true;  ///< Memory has come free, or forecasts have changed.
  std::int64_t window_ = -1;
  std::int64_t first_window_ = -1;  ///< Of which nothing could be known.
  ForecastRecord record_{};
  std::int64_t overhead_pages_ = 0;  ///< The largest of any model: kept free of prewarmed weights.
};

}  // namespace heddle::sim
