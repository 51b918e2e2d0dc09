#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "policy/autoscale.h"
#include "policy/cold_start.h"
#include "policy/demand.h"
#include "policy/diff.h"
#include "policy/kv_pressure.h"
#include "policy/nic.h"
#include "sim/planes/classes.h"
#include "sim/planes/gpu_queues.h"
#include "sim/planes/launch.h"
#include "sim/planes/planner.h"
#include "sim/planes/weaving.h"

namespace heddle::sim {

/// heddle: one planner for all that the others do. A request that no instance takes in time gets
/// the cheapest of all plans that meet its objectives: queue, a resident or loading replica, an
/// activation from host memory into a shared GPU, GPUs of its own, a cold start over several
/// servers, the return of an external engine. Models have classes; what may be lost has one
/// value; deadlines order each GPU's queue and each server's links. Flags switch parts off:
/// `pipeline`, `prewarm`, `queue`, `weave` (all 1). `window` and `day` [s] are the planner's of the
/// live system.
///
/// Of the servers that the model fits a decision looks at those where it is and at a few with most
/// room and the least on their networks, so that its cost does not grow with the cluster; where
/// these offer nothing, at all.
class HeddlePlane final : public ControlPlane {
 public:
  explicit HeddlePlane(Flags& flags);
  [[nodiscard]] ComputeSharing compute_sharing() const override { return ComputeSharing::kTurns; }
  [[nodiscard]] LinkRule link_rule() const override { return LinkRule::kClasses; }
  [[nodiscard]] std::optional<double> forecast_error() const override { return record_.error(); }
  void decide(const Notice& notice, const World& world, Actions& actions) override;

 private:
  struct PerModel {
    policy::DemandMeter demand;
    ClassKeeper model_class{ModelClass::kCold};
    std::set<HostId> images{};  ///< Servers that were given its weights.
  };
  /// What a plan would do.
  struct PlannedAction {
    enum class Kind : std::uint8_t { kQueue, kServe, kAttach, kStart } kind{};
    ReplicaId replica{};
    StartSpec spec{};
    std::vector<ReplicaId> dies{};
    std::vector<policy::StartStage> fetches{};
    Reason reason{};
  };
  struct Options {
    std::vector<Plan> plans{};
    std::vector<PlannedAction> planned_actions{};
  };

  void begin(const World& world, Actions& actions);
  void arrived(const World& world, Actions& actions, const Notice& notice);
  void route(const World& world, Actions& actions, ModelId model);
  void pass(const World& world, Actions& actions, GpuId gpu);
  bool plan(const World& world, Actions& actions, ModelId model);
  bool carry_out(const World& world,
                 Actions& actions,
                 ModelId model,
                 const Plan& plan,
                 const PlannedAction& planned);
  void consolidate(const World& world, Actions& actions, ReplicaId id);
  void end_fetches(ReplicaId id);
  void gone(const World& world, Actions& actions, const Notice& notice);
  void tick(const World& world, Actions& actions);
  void scale(const World& world, Actions& actions, ModelId model);
  void give_up_waiting(const World& world, Actions& actions, ModelId model);
  void relieve(const World& world, Actions& actions, const Notice& notice);
  void forecast(const World& world, Actions& actions);
  void prewarm(const World& world, Actions& actions);
  void weave(const World& world, Actions& actions);  // heddle_weave.cc
  static bool recall(const World& world, Actions& actions, GpuId host);
  [[nodiscard]] static std::optional<GpuId> guest_host(const World& world, const Replica& hot);
  void refresh_values(const World& world, Actions& actions, ModelId model);

  // heddle_plans.cc: what could be done for a model's oldest waiting request.
  [[nodiscard]] Options options_for(const World& world, ModelId model);
  [[nodiscard]] Options options_on(const World& world,
                                   ModelId model,
                                   std::span<const HostId> hosts);
  void propose_queue(const World& world, const LiveRequest& request, Options& options);
  void propose_resident(const World& world,
                        const LiveRequest& request,
                        const StartTerms& terms,
                        Options& options);
  void propose_launch(const World& world,
                      const LiveRequest& request,
                      std::span<const HostId> hosts,
                      const StartTerms& terms,
                      Options& options);
  void propose_activation(const World& world,
                          const LiveRequest& request,
                          std::span<const HostId> hosts,
                          const StartTerms& terms,
                          Options& options);
  void propose_activation_on(const World& world,
                             const LiveRequest& request,
                             const std::vector<GpuId>& gpus,
                             std::int64_t need,
                             const StartTerms& terms,
                             Options& options);
  [[nodiscard]] std::optional<policy::KvDevice> pool_device(const World& world,
                                                            GpuId id,
                                                            ModelId model) const;
  // heddle_external.cc
  void propose_swap_in(const World& world,
                       const LiveRequest& request,
                       std::span<const HostId> hosts,
                       const StartTerms& terms,
                       Options& options);
  [[nodiscard]] static Duration swap_in_time(const World& world, ModelId model, GpuId gpu);
  void propose_pipeline(const World& world,
                        const LiveRequest& request,
                        std::span<const HostId> hosts,
                        const StartTerms& terms,
                        Options& options);
  [[nodiscard]] std::optional<policy::StartDevice> start_device(const World& world,
                                                                ModelId model,
                                                                GpuId id) const;
  [[nodiscard]] std::vector<HostId> candidate_hosts(const World& world, ModelId model);
  [[nodiscard]] static std::vector<HostId> all_hosts(const World& world, ModelId model);
  [[nodiscard]] StartTerms terms_for(const World& world, const LiveRequest& request);
  [[nodiscard]] policy::StartModel start_model(const World& world, const LiveRequest& request);
  [[nodiscard]] policy::ReplicaMap map_of(const World& world, std::span<const HostId> hosts) const;
  [[nodiscard]] std::optional<std::vector<ReplicaId>> victims_on(const World& world,
                                                                 GpuId gpu,
                                                                 std::int64_t need_pages) const;
  [[nodiscard]] double worth_of(const World& world, const Replica& replica) const;
  [[nodiscard]] static Duration unmapping(const World& world, std::span<const ReplicaId> dies);
  [[nodiscard]] double lost_by(const World& world, std::span<const ReplicaId> dies) const;
  [[nodiscard]] static bool stayed(const World& world, const Replica& replica);
  [[nodiscard]] bool may_go(const World& world, const Replica& replica) const;
  [[nodiscard]] bool dedicated(ModelId model) const;
  [[nodiscard]] StartSpec load_spec(const World& world,
                                    ModelId model,
                                    std::vector<GpuId> gpus) const;
  [[nodiscard]] double demand(const World& world, ModelId model) const;
  [[nodiscard]] static Duration load_time(const World& world,
                                          ModelId model,
                                          GpuId gpu,
                                          bool cached);
  [[nodiscard]] static bool comes(const Replica& replica);
  void index_host(const World& world, HostId host);

  bool pipelines_;
  bool prewarms_;
  bool weaves_;
  policy::Calendar calendar_{};
  std::int64_t window_ = -1;
  std::int64_t first_window_ = -1;  ///< Of which nothing could be known.
  ForecastRecord record_{};
  RequestQueues waiting_{};
  GpuQueues gpu_queues_;
  std::vector<PerModel> models_{};
  std::vector<policy::Nic> nics_{};  ///< By host.
  std::map<ReplicaId, std::vector<HostId>> fetches_{};
  std::map<ReplicaId, Instant> ready_{};  ///< When what was begun is expected to serve.
  std::set<ModelId> active_{};
  WeaveWatch watch_{};
  Instant weave_at_{};  ///< The next look.
  policy::NotBefore not_before_{};
  // Servers by what they have to offer, kept up to date as replicas come and go.
  ServersByRank by_room_{};     ///< Free pages, negated.
  ServersByRank by_fetches_{};  ///< Transfers on the network.
};

}  // namespace heddle::sim
