#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/manager/demand.h"
#include "core/manager/fetches.h"
#include "core/manager/guest_loans.h"
#include "core/manager/outbox.h"
#include "core/manager/request_queues.h"
#include "core/manager/state.h"

namespace heddle::core::manager {

/// Devices times instances: which model is where, in which stage. The sole writer of stages; what a
/// worker has to do for a change of stage is commanded here. What is said of an external engine
/// that is on several devices names the first of them.
class Residency {
 public:
  Residency(State& state,
            Outbox& out,
            RequestQueues& queues,
            Demand& demand,
            GuestLoans& guests,
            Fetches& fetches)
      : state_(state),
        out_(out),
        queues_(queues),
        demand_(demand),
        guests_(guests),
        fetches_(fetches) {}

  // ---- Who comes ----

  /// Evicts the victims, which are idle, and loads the model.
  void load(DeviceId device,
            ModelId model,
            const std::vector<ModelId>& victims,
            LoadReason why,
            const std::string& because,
            std::optional<Duration> first_token = {});
  /// Loads the model, or a shard as this part of its group, without saying why.
  void begin_load(DeviceId device, ModelId model, LoadReason why, const GroupPart& part = {});
  /// Its group has been asked for: a staged shard becomes part of it.
  void join(DeviceId device, ModelId shard, DeviceId leader);
  /// All shards are complete: has their workers form the group.
  void form(ModelId model, DeviceId leader);
  /// They have: the group serves.
  void formed(ModelId model, DeviceId leader);
  /// No group is formed: its shards are staged, as if it had not been asked for.
  void stand_by(ModelId model, DeviceId leader);
  /// The worker, or the engine, serves it. A staged shard is there, and serves nothing.
  void serve(DeviceId device, ModelId model);

  /// It was there before this manager was; as its worker says. A shard is staged until its group
  /// is said to be formed.
  void adopt(DeviceId device, const ResidentReport& resident, const GroupPart& part);

  // ---- Who goes ----

  /// The instance, or the group that it is part of, is sent nothing more.
  void drain(DeviceId device, ModelId model, bool cramped = false);
  /// The same, for `wanted` to come; said of `named`, which is the model or its whole.
  void drain_for(DeviceId device, ModelId model, ModelId wanted, ModelId named);
  /// What was drained is sent requests again.
  void resume(DeviceId device, ModelId model);
  /// Has it evicted. Of a group, rank 0 goes first; the pass over groups sees to the others.
  void evict(DeviceId device,
             ModelId model,
             EvictMode mode,
             EvictionReason why,
             std::optional<ModelId> for_model = {},
             std::int64_t free_pages = 0);
  /// The same of this shard alone.
  void evict_here(DeviceId device,
                  ModelId model,
                  EvictMode mode,
                  EvictionReason why,
                  std::optional<ModelId> for_model = {},
                  std::int64_t free_pages = 0);
  /// Of an idle group that has this shard: it ends, and its shards stay.
  void step_back(DeviceId device, ModelId shard, ModelId for_model);
  /// The worker did not evict it. If it is there at all, the next report says.
  void eviction_refused(DeviceId device, ModelId model);
  /// It was evicted as was asked.
  void count_eviction(DeviceId device, ModelId model);
  /// An external engine stands by with what it holds.
  void suspend(DeviceId device, ModelId model, std::int64_t held_pages);
  /// Rank 0 of this shard's group goes.
  void leader_goes(DeviceId device, ModelId shard, EvictionReason why);
  /// The instance is gone; requests that were on it wait again.
  void lose(DeviceId device, ModelId model);
  /// The same where it never was there, or the worker died: nothing was wasted by that.
  void forget(DeviceId device, ModelId model);

  // ---- What is said of instances ----

  /// As its worker reports it. True if it was not complete before.
  bool observe(DeviceId device, const ResidentReport& resident);
  /// An external engine holds so many pages.
  void hold_pages(DeviceId device, ModelId model, std::int64_t pages);
  /// Gets requests only when the others have enough.
  void spare(DeviceId device, ModelId model, bool spare);
  /// It goes as soon as it serves there; nullopt: it stays.
  void move(DeviceId device, ModelId model, std::optional<DeviceId> to);
  /// A period has passed: the most KV pages that instances had lately falls, or is what they have.
  void decay_peaks();

 private:
  [[nodiscard]] Instance& instance(DeviceId device, ModelId model) {
    return state_.devices.at(device).instances.at(model);
  }
  [[nodiscard]] Instance* leading_instance(DeviceId device, ModelId model);
  void changed(DeviceId device, ModelId model);
  void mirror(DeviceId leader, ModelId model);
  void leader_changed(DeviceId device, ModelId model);

  State& state_;
  Outbox& out_;
  RequestQueues& queues_;
  Demand& demand_;
  GuestLoans& guests_;
  Fetches& fetches_;
};

}  // namespace heddle::core::manager
