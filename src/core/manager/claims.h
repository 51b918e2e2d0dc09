#pragma once

#include <string>

#include "core/manager/drain_plans.h"
#include "core/manager/loads.h"
#include "core/manager/outbox.h"
#include "core/manager/request_queues.h"
#include "core/manager/residency.h"
#include "core/manager/state.h"

namespace heddle::core::manager {

/// Whether all devices of the block are up, claimed by no other model, and free of what never
/// leaves.
[[nodiscard]] bool claimable(const State& state, ModelId model, DeviceId leader);

/// Where a group goes that requests wait for, or that is to help another of its model: a model that
/// wants a block of devices claims it; nothing else comes there, what is in the way leaves or steps
/// back (in_the_way), and when that is done the shards are loaded that are not there yet.
class Claims {
 public:
  Claims(State& state,
         Outbox& out,
         RequestQueues& queues,
         Residency& residency,
         Loads& loads,
         DrainPlans& plans)
      : state_(state),
        out_(out),
        queues_(queues),
        residency_(residency),
        loads_(loads),
        plans_(plans) {}

  /// The model claims this block, and begins to clear it. `more` and `instead` as Claim has them:
  /// a claim for more lasts while the model has requests.
  void claim(ModelId model, DeviceId leader, std::string more = {}, std::string instead = {});
  /// The models that were to leave for it stay.
  void cancel(ModelId model);
  /// The group that is led from there is looked after, until something happens to it again.
  void look_after(ModelId model, DeviceId leader);
  /// Goes on with all claims.
  void advance();

 private:
  void advance(ModelId model);
  void claims_changed(ModelId model);
  bool clear_device(const DeviceState& device, ModelId shard);
  bool leave_own(const DeviceState& device, ModelId shard);
  bool let_go(const DeviceState& device, ModelId model, ModelId wanted);
  void note_load(const ModelState& model, const std::string& names);
  void load_group(ModelId model, DeviceId leader);
  void load_shard(ModelId model, const ShardPlace& place, DeviceId leader, LoadReason why);

  State& state_;
  Outbox& out_;
  RequestQueues& queues_;
  Residency& residency_;
  Loads& loads_;
  DrainPlans& plans_;
};

}  // namespace heddle::core::manager
