#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "policy/autoscale.h"
#include "sim/planes/gpu_queues.h"
#include "sim/planes/idle_evictions.h"
#include "sim/planes/kv_plan.h"

namespace heddle::sim {

/// Prism: all models share all GPUs. Pages of KV go to whoever has tokens; each model is placed,
/// and moved, where KV pressure is least; idle models go when their room is wanted; a queue per GPU
/// decides whose prompt is read next. Flags: `queue` (1: Moore-Hodgson; 0: order of arrival),
/// `planner` (2: exact threshold; 1: greedy; 0: as printed), `migrate` (1: models move every 5 s),
/// `requests` (0; 1: the first version's demand, which does not tell large KV from small).
class PrismPlane final : public ControlPlane {
 public:
  PrismPlane(PlaneInputs inputs, Flags& flags);
  [[nodiscard]] LinkRule link_rule() const override { return LinkRule::kClasses; }
  void decide(const Notice& notice, const World& world, Actions& actions) override;

 private:
  struct PerModel {
    policy::SlidingSum tokens;
    policy::SlidingSum requests;
    std::vector<Duration> gaps{};  ///< The latest idle times.
    Duration threshold{};          ///< Idle for longer, it may go.
    Instant idle_since{};
    std::int64_t in_system = 0;
    Instant moved{};
  };
  void begin(const World& world, Actions& actions);
  void arrived(const World& world, Actions& actions, const Notice& notice);
  void ended(const World& world, ModelId model);
  void enqueue(const World& world, Actions& actions, ModelId model);
  bool activate(const World& world, Actions& actions, ModelId model);
  void pass(const World& world, Actions& actions, GpuId gpu);
  bool make_room(
      const World& world, Actions& actions, GpuId gpu, std::int64_t need_pages, ModelId for_whom);
  void hurry(const World& world, Actions& actions);
  void look_again_soon(const World& world, Actions& actions);
  void rebalance(const World& world, Actions& actions);
  void retry(const World& world, Actions& actions);
  [[nodiscard]] std::optional<ReplicaId> home_of(const World& world, ModelId model) const;
  [[nodiscard]] double demand(const World& world, ModelId model);
  [[nodiscard]] policy::KvModel kv_model(const World& world, ModelId model);
  [[nodiscard]] std::vector<policy::KvDevice> devices(const World& world) const;
  [[nodiscard]] std::optional<IdleModel> idle_view(const World& world, ModelId model) const;
  [[nodiscard]] static Duration activation(const World& world, ModelId model);
  ReplicaId start(
      const World& world, Actions& actions, ModelId model, std::vector<GpuId> gpus, Reason reason);

  PlaneInputs inputs_;
  KvPlanner planner_;
  bool migrate_;
  bool by_requests_;
  std::vector<PerModel> models_{};
  GpuQueues gpu_queues_;
  RequestQueues homeless_{};                 ///< Requests of models that serve nowhere yet.
  std::map<ReplicaId, ReplicaId> moving_{};  ///< New replica: the old one that goes when it serves.
  std::set<ReplicaId> leaving_{};
  std::set<ReplicaId> starting_{};  ///< Activations that may wait for pages.
  std::set<ModelId> exhausted_{};   ///< Found no GPU, and nothing has come free since.
  RoomIndex room_{};
  bool looks_again_ = false;  ///< A timer is set for that.
};

}  // namespace heddle::sim
