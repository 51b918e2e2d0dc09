#pragma once

#include <map>
#include <optional>
#include <vector>

#include "policy/autoscale.h"
#include "policy/cold_start.h"
#include "policy/consolidation.h"
#include "sim/planes/support.h"

namespace heddle::sim {

/// HydraServe: a cold start's weights come over several servers' networks at once, each with a part
/// of the layers; the parts serve as a pipeline, whose one worker then fetches the rest and goes on
/// alone. Flags: `keep_alive` [s] (30), `cache` (0: server memory keeps fetched weights), `edf` (0:
/// fair share with Eq. 3; 1: by deadline), `stages` (4: the most; 1 is the ablation), `merge` (1:
/// consolidate), `paper` (0; 1: Algorithm 1 as printed).
class HydraServePlane final : public ControlPlane {
 public:
  explicit HydraServePlane(Flags& flags);
  [[nodiscard]] ComputeSharing compute_sharing() const override {
    return ComputeSharing::kByMemory;
  }
  [[nodiscard]] LinkRule link_rule() const override {
    return edf_ ? LinkRule::kClasses : LinkRule::kFairShare;
  }
  [[nodiscard]] std::optional<double> forecast_error() const override { return record_.error(); }
  void decide(const Notice& notice, const World& world, Actions& actions) override;

 private:
  void judge_forecasts(Instant now);
  void scale(const World& world, Actions& actions, ModelId model);
  bool start_group(const World& world, Actions& actions, ModelId model, std::int64_t workers);
  [[nodiscard]] policy::StartModel model_view(const World& world,
                                              ModelId model,
                                              std::int64_t workers) const;
  void start_planned(const World& world,
                     Actions& actions,
                     ModelId model,
                     const policy::StartPlan& plan);
  void consolidate(const World& world, Actions& actions, ReplicaId id);
  void retry(const World& world, Actions& actions);
  void end_fetches(ReplicaId id);
  [[nodiscard]] std::int64_t limit(const World& world, ReplicaId id) const;
  void dispatch(const World& world, Actions& actions, ModelId model);

  Duration keep_alive_;
  bool cache_;
  bool edf_;
  std::int64_t most_stages_;
  bool merge_;
  bool paper_;
  RequestQueues queues_{};
  std::vector<policy::Nic> nics_{};             ///< By host.
  std::vector<policy::SlidingSum> arrivals_{};  ///< By model.
  /// Arrivals by model in this window and in the last, which is the forecast of this one's.
  std::map<ModelId, std::pair<std::int64_t, std::int64_t>> counts_{};
  Instant window_end_{};
  ForecastRecord record_{};
  std::map<ReplicaId, std::vector<HostId>> fetches_{};
  std::set<ModelId> wanting_{};  ///< Had nowhere to start.
  bool retry_set_ = false;
};

}  // namespace heddle::sim
