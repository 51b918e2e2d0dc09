#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/manager/request_queues.h"
#include "core/manager/residency.h"
#include "core/manager/state.h"
#include "policy/diff.h"

namespace heddle::core::manager {

/// One device more for a model, and what that costs.
struct ReplicaPlace {
  DeviceId device{};
  std::vector<ModelId> victims{};
  Duration load_takes{};
  double lost = 0;  ///< Worth of the victims [s].
};

/// Where the model could get one device more, without any requests having to end.
[[nodiscard]] std::optional<ReplicaPlace> place_for_replica(const State& state, ModelId model);

/// What is said of a load that requests wait for.
struct LoadPlan {
  std::optional<Duration> first_token{};  ///< Predicted; nullopt: as load_time() has it.
  std::string instead{};                  ///< For people: plans that were not taken.
};

/// Decides whether what looks ahead may act now, so that no two decisions of a moment undo each
/// other, and loads.
class Loads {
 public:
  Loads(const State& state, RequestQueues& queues, Residency& residency)
      : state_(state), queues_(queues), residency_(residency) {}

  /// Brings in a model that requests or operators wait for; `place` says why there.
  void wanted(DeviceId device,
              ModelId model,
              const std::vector<ModelId>& victims,
              std::string_view place,
              const LoadPlan& plan = {});
  /// Brings in a stage of a cut that requests wait for; victims are idle.
  void stage(const ShardPlace& stage, DeviceId leader, const std::vector<ModelId>& victims);
  /// The model's first instance that was spared is not any more. False: none was.
  bool take_back(ModelId model);
  /// Gives the model one device more. False: something was done with the model or there a moment
  /// ago.
  bool replica(ModelId model,
               const ReplicaPlace& place,
               LoadReason why,
               const std::string& because);
  /// The same of several at once.
  bool replicas(ModelId model,
                const std::vector<ReplicaPlace>& places,
                LoadReason why,
                const std::string& because);

  /// What this action touches was acted on now: others leave it alone for a while.
  void hold(const policy::Action& action);
  /// Whether what this action touches may be acted on now; if so, it is held.
  [[nodiscard]] bool admits(const policy::Action& action);
  /// Forgets what has passed.
  void expire();

  /// More is to be prewarmed than could be begun, or there is room that was not: look again soon.
  void look_again() { unfinished_ = true; }
  [[nodiscard]] bool unfinished() const { return unfinished_; }
  /// A look ahead begins.
  void looks() { unfinished_ = false; }

 private:
  const State& state_;
  RequestQueues& queues_;
  Residency& residency_;
  policy::NotBefore not_before_{};
  bool unfinished_ = false;
};

}  // namespace heddle::core::manager
