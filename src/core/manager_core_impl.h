#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/manager_core.h"
#include "policy/demand.h"
#include "policy/diff.h"
#include "policy/eviction.h"
#include "policy/kv_moves.h"
#include "policy/prewarm.h"

namespace heddle::core {

/// Two deaths may be another request's fault; then it runs alone, and the third is its own.
inline constexpr std::int32_t kDeathsInCompany = 2;

/// So many workers that were killed under loads of a model count as one load that failed.
inline constexpr std::int32_t kKillsPerFailure = 3;

/// Of weights [bytes/s], until a load was measured.
inline constexpr double kLoadRate = 1e9;

/// Of a model on a device, which for one that is cut is where its rank 0 is; nothing else has it.
[[nodiscard]] inline policy::ReplicaId replica_id(DeviceId device, ModelId model) {
  return policy::ReplicaId((device.value() << 32U) | model.value());
}
[[nodiscard]] inline DeviceId device_of(policy::ReplicaId replica) {
  return DeviceId(replica.value() >> 32U);
}

/// For people: two digits, or whole.
[[nodiscard]] std::string number(double value);

/// A request that has arrived and not ended.
struct RequestState {
  ModelId model{};
  std::int32_t priority = 0;
  std::uint64_t order = 0;  ///< Of arrival.
  std::int64_t tokens = 0;  ///< Prompt and answer together at most.
  std::int64_t need = 0;    ///< It runs where so many tokens fit: at most `tokens`.
  Instant arrived{};
  Instant due{};  ///< Its first token, by the objective that held as it arrived.
  std::optional<Instant> deadline{};
  std::optional<DeviceId> device{};  ///< Where it is in flight; none: it waits.
  std::int32_t deaths = 0;           ///< Workers that died under it, perhaps for it.
  bool held = false;                 ///< Hold was said.
};

/// Order within a model's queue.
struct QueueKey {
  std::int32_t priority = 0;
  std::uint64_t order = 0;
  friend auto operator<=>(const QueueKey&, const QueueKey&) = default;
};

struct ModelState {
  ManagerModel config{};
  bool removed = false;  ///< No longer configured; its running requests end.
  std::map<QueueKey, RequestId> waiting{};
  std::size_t requests = 0;  ///< Waiting and in flight.
  std::map<TicketId, Instant> loads_asked{};
  std::map<TicketId, EvictionReason> unloads_asked{};

  std::int32_t failures = 0;  ///< Loads that failed in a row.
  std::int32_t kills = 0;     ///< Workers that were killed under loads, in a row.
  std::optional<Error> failure{};
  Instant retry_at{};      ///< Not loaded before.
  Instant failed_until{};  ///< Requests fail at once before this.

  policy::WarmFigures warm{};
  Instant last_used{};
  Instant last_arrival{};
  policy::DemandMeter demand;
  /// To load all its weights, lately, from disk and from the host cache; 0: not measured.
  std::array<Duration, 2> load_times{};
  std::array<std::uint64_t, kStartKinds> starts{};
  std::uint64_t wasted_bytes = 0;
  bool sent_away = false;  ///< It was unloaded on purpose; nobody has asked for it since.
  std::array<std::uint64_t, kLoadReasons> loads{};
  std::array<std::uint64_t, kEvictionReasons> evictions{};
  std::uint64_t recalled = 0;  ///< Requests that came back from where they waited for memory.
  std::uint64_t image_ready_bytes = 0;
  bool host_cached = false;
  std::optional<policy::PlacementReason> waits_for{};  ///< As last noted.
  /// Where it is to lead a group, once the devices of that block are empty.
  std::optional<DeviceId> claims{};
  Instant claimed_at{};

  // Of engines that are not ours.
  std::int64_t learned_pages = 0;  ///< That it held when it last ran.
  Duration swap_out{};             ///< As last heard.
  Duration swap_in{};
  std::size_t frozen = 0;  ///< Requests that stand still with it.

  [[nodiscard]] policy::Objectives objectives() const { return warm.objectives(config.slo); }
  [[nodiscard]] bool foreign() const { return config.foreign.has_value(); }
  /// It is cut over several devices; true of rank 0 alone.
  [[nodiscard]] bool cut() const { return !config.groups.empty(); }
  /// It is cut, or is a further shard of one that is.
  [[nodiscard]] bool grouped() const { return cut() || config.part_of; }
  [[nodiscard]] bool wanted() const {
    return (!waiting.empty() || !loads_asked.empty() || frozen > 0) && unloads_asked.empty() &&
           !removed;
  }
};

/// Whether `other` cannot stay when `model` comes.
[[nodiscard]] inline bool displaces(const ModelState& model, ModelId other) {
  return std::binary_search(model.config.displaces.begin(), model.config.displaces.end(), other);
}

enum class InstanceStage : std::uint8_t {
  kLoading,
  kServing,
  kDraining,   ///< Resident, but is sent nothing more.
  kEvicting,   ///< EvictFrom was given.
  kSuspended,  ///< An engine that is not ours stands by, perhaps with requests in flight.
  kMember,     ///< A shard that takes no requests: a further one in its group, of which the stage
               ///< of rank 0 says the rest, or one that waits apart.
};

/// A model on a device.
struct Instance {
  InstanceStage stage = InstanceStage::kLoading;
  std::set<RequestId> in_flight{};
  Instant serving_since{};
  std::int64_t kv_pages = 0;  ///< As last reported; of an engine that is not ours, all it holds.
  Instant resting_until{};    ///< It did not take a request; it is sent none before.
  bool answered = false;      ///< A request has ended there: it is warm to the last page.
  LoadReason why = LoadReason::kRequest;  ///< It was brought in.
  Instant load_began{};
  bool from_host = false;              ///< The host cache had its image as that began.
  bool complete = false;               ///< All its weights are there.
  bool used = false;                   ///< A request was sent to it.
  bool spare = false;                  ///< Gets requests only when the others have enough.
  std::int64_t kv_peak = 0;            ///< Most pages of KV lately.
  std::optional<DeviceId> moves_to{};  ///< It goes as soon as it serves there.
  bool cramped = false;                ///< Meaningful while kDraining.
  EvictionReason evicted_for = EvictionReason::kDisplaced;  ///< Meaningful while kEvicting.
  bool forming = false;                                     ///< FormGroup was given.
  std::optional<DeviceId> leader{};  ///< Of a further shard: where rank 0 of its group is.
  /// A shard that was prewarmed and that nobody has asked for since: weights that nobody uses,
  /// which share their device with others and go by themselves.
  bool apart = false;
};

/// A load that waits until its victims are idle, and until engines among them are suspended; or
/// pages for what runs already, which engines free when they are idle.
struct DrainPlan {
  ModelId model{};
  std::vector<ModelId> victims{};
  Instant began{};
  std::int64_t lacks = 0;  ///< More than 0: it is there, and wants so many pages more.
};

struct DeviceState {
  ManagerDevice config{};
  bool up = false;
  WorkerEpoch epoch{};
  std::uint64_t version = 0;  ///< Of the worker's residency, as last heard.
  std::uint64_t restarts = 0;
  ledger::PoolUsage usage{};
  std::map<ModelId, Instance> instances{};
  std::optional<DrainPlan> plan{};
  std::optional<ModelId> claimed{};  ///< By this model, with others: nothing else comes here.
  std::int64_t refusals = 0;         ///< Loads refused in a row.
  Instant paused_until{};            ///< Nothing is loaded before.
  std::optional<RequestId> alone{};  ///< A request that must have the device for itself.
  /// The one that ran at once, on a warm instance, with the device to itself so far.
  std::optional<RequestId> undisturbed{};
  /// As last reported; the time that these have waited so far, in sum [s], and until when that is.
  std::int64_t short_sequences = 0;
  std::int64_t short_pages = 0;
  ModelId short_model{};
  double short_waited = 0;
  Instant short_until{};
  Instant recall_at{};   ///< None of them is recalled before.
  double load_rate = 0;  ///< Of weights, lately [bytes/s]; 0: not measured.
  Duration serving{};    ///< As DeviceStatus has them.
  Duration switching{};
};

/// The state of a ManagerCore. Requests and models are in manager_requests.cc, what devices say in
/// manager_devices.cc, what engines that are not ours do in manager_engines.cc, decisions for who
/// waits in manager_schedule.cc and manager_dispatch.cc by what manager_views.cc sees, for models
/// that are cut over several devices in manager_groups.cc, manager_claims.cc and manager_shards.cc,
/// those that look ahead in manager_planner.cc, manager_prewarm.cc and manager_lending.cc by what
/// manager_demand.cc knows.
class ManagerCore::Impl {
 public:
  void step(Instant now, const ManagerEvent& event, std::vector<ManagerCommand>& commands);
  [[nodiscard]] std::vector<ModelStatus> models() const;
  void add_shards(const ModelState& model, ModelStatus& status) const;
  [[nodiscard]] std::vector<ResidentStatus> residents(const DeviceState& device) const;
  [[nodiscard]] std::vector<DeviceStatus> devices() const;
  [[nodiscard]] ledger::PoolUsage usage_of(const DeviceState& device) const;
  [[nodiscard]] std::int64_t tokens_max(ModelId model) const;
  [[nodiscard]] std::int64_t tokens_max(ModelId model, DeviceId device) const;
  [[nodiscard]] std::int64_t tokens_alone(ModelId model, DeviceId device) const;
  void check_invariants() const;

 private:
  void on(const Configure& configure);
  void on(const LoadRemembered& remembered);
  void on(const RequestArrived& arrived);
  void on(const RequestFinished& finished);
  void on(const RequestCancelled& cancelled);
  void on(const AdminLoad& admin);
  void on(const AdminUnload& admin);
  void on(const WorkerUp& up);
  void on(const WorkerDown& down);
  void blame(RequestId id, const WorkerDown& down, bool was_alone);
  void on(const WorkerSaid& said);
  void on(const ImageFailed& failed);
  void on(const GroupFormed& formed);
  void on(const ImageState& state);
  void on(const EngineSaid& said);
  void on(const RequestUnanswered& unanswered);
  void on(const DrainManager& drain);
  void on(const Tick& /*tick*/) {}

  // What workers say.
  void heard(DeviceId device, const ModelServing& serving);
  void heard(DeviceId device, const LoadRefused& refused);
  void heard(DeviceId device, const LoadFailed& failed);
  void heard(DeviceId device, const EvictRefused& refused);
  void heard(DeviceId device, const ModelEvicted& evicted);
  void heard(DeviceId device, const RequestReturned& returned);
  void heard(DeviceId device, const RequestFailed& failed);
  void heard(DeviceId device, const DeviceReport& report);
  template <class T>
  void heard(DeviceId /*device*/, const T& /*report*/) {}
  void find_pages(DeviceState& device, const DeviceReport& report);
  void free_lacking(DeviceState& device);
  void load_failed(ModelId model, const Error& reason);
  void lose_instance(DeviceId device, ModelId model);

  // Engines that are not ours.
  void engine_serves(DeviceState& device, const EngineSaid& said);
  void engine_left(DeviceState& device, const EngineSaid& said);
  void engine_refused(DeviceState& device, const EngineSaid& said);
  void engine_lost(DeviceState& device, const EngineSaid& said);
  void take_from_engine(RequestId id, const std::string& why);
  [[nodiscard]] std::int64_t engine_pages(const ModelState& model) const;
  [[nodiscard]] bool may_leave(const DrainPlan& plan, ModelId victim, const Instance& instance);
  [[nodiscard]] policy::ResidentView engine_view(const DeviceState& device,
                                                 ModelId id,
                                                 const ModelState& wanted) const;
  bool suspend_victims(DeviceState& device, const DrainPlan& plan);
  void account(Instant until);

  // Requests.
  void enqueue(RequestId id);
  void leave(RequestId id);
  void end(RequestId id, bool served = false);
  void cancel_on_worker(RequestId id);
  void fail(RequestId id, Error error);
  void fail_waiting(ModelId model, const Error& error, std::int64_t longer_than = 0);
  [[nodiscard]] std::optional<Error> refusal(const RequestArrived& arrived) const;
  [[nodiscard]] std::optional<DeviceId> in_flight_at(RequestId id, DeviceId device) const;

  // Decisions; made again after every event.
  void schedule();
  void expire();
  void release_devices();
  void advance_plans();
  [[nodiscard]] bool fits_beside(const DeviceState& device, const DrainPlan& plan) const;
  void cancel_plan(DeviceState& device);
  void dispatch_waiting(ModelId id, ModelState& model);
  bool dispatch(RequestId id, DeviceId device_id, Instance& instance);
  bool send(RequestId id, DeviceId device, Instance& instance);
  [[nodiscard]] bool waits_for_devices(const ModelState& model) const;
  void place_wanted();
  void place(ModelId id, Instant waiting_since);
  [[nodiscard]] std::string too_large(const ModelState& model) const;
  [[nodiscard]] policy::PlacementDevice view(const DeviceState& device, ModelId wanted) const;
  [[nodiscard]] std::int64_t free_pages(const DeviceState& device,
                                        std::int64_t workspace = 0) const;
  [[nodiscard]] std::int64_t pages_of(const DeviceState& device,
                                      ModelId model,
                                      std::int64_t workspace = 0) const;
  [[nodiscard]] std::int64_t workspace_of(const DeviceState& device, ModelId model) const;
  [[nodiscard]] std::int64_t largest_workspace(const DeviceState& device) const;
  void load(DeviceState& device,
            ModelId model,
            const std::vector<ModelId>& victims,
            LoadReason why,
            std::string because);
  Instance& begin_load(DeviceState& device, ModelId model, LoadReason why);
  [[nodiscard]] static std::string who_waits(const ModelState& model);
  void load_wanted(DeviceState& device,
                   ModelId model,
                   const std::vector<ModelId>& victims,
                   std::string_view place);
  void note_waiting(ModelId model, const policy::Placement& placement);
  [[nodiscard]] std::vector<DeviceId> serving_places(ModelId model) const;
  [[nodiscard]] std::vector<DeviceId> places_for(RequestId request) const;
  void drain(DeviceState& device, ModelId model, const std::vector<ModelId>& victims);
  void begin_drain(Instance& instance, ModelId model, DeviceId device, ModelId wanted);
  [[nodiscard]] Instant frozen_since(ModelId model) const;
  [[nodiscard]] static Duration residence(const ModelState& model, const Instance& instance);
  void evict(DeviceState& device,
             ModelId model,
             EvictMode mode,
             EvictionReason why,
             std::optional<ModelId> for_model = {},
             std::int64_t free_pages = 0);
  void evict_here(DeviceState& device,
                  ModelId model,
                  EvictMode mode,
                  EvictionReason why,
                  std::optional<ModelId> for_model = {},
                  std::int64_t free_pages = 0);
  void unload_unwanted();
  void move_cramped();
  [[nodiscard]] std::int64_t longest_waiting(const ModelState& model) const;
  void answer_tickets();
  void finish_draining();

  // Groups: models that are cut over several devices.
  [[nodiscard]] ModelId whole(ModelId model) const;
  [[nodiscard]] std::vector<ShardPlace> block(ModelId model, DeviceId leader) const;
  [[nodiscard]] const Instance* leading(const DeviceState& device, ModelId model) const;
  [[nodiscard]] Instance* leading(const DeviceState& device, ModelId model);
  [[nodiscard]] bool dedicated(const DeviceState& device) const;
  [[nodiscard]] bool held(const DeviceState& device) const;
  [[nodiscard]] bool stays(const ModelState& model) const;
  [[nodiscard]] bool is_to_leave(const DeviceState& device, ModelId model) const;
  [[nodiscard]] bool somewhere(ModelId id, const ModelState& model) const;
  void tend_groups();
  void tend_group(ModelId model, DeviceId leader);
  bool dissolve_victims(DeviceState& device, const DrainPlan& plan);
  [[nodiscard]] policy::PlacementDevice block_view(ModelId model, DeviceId leader) const;
  void place_group(ModelId model, Instant waiting_since);
  [[nodiscard]] std::optional<DeviceId> least_busy(
      const std::vector<policy::PlacementDevice>& views, ModelId model) const;
  [[nodiscard]] bool claimable(ModelId model, DeviceId leader) const;
  void claim(ModelId model, DeviceId leader);
  void cancel_claim(ModelId model);
  void advance_claims();
  void advance_claim(ModelId model);
  bool clear_device(DeviceState& device, ModelId shard);
  bool let_go(const DeviceState& device, ModelId model, ModelId wanted);
  void load_group(ModelId model, DeviceId leader);
  void check_groups() const;

  // Shards that were prewarmed, until their group is asked for.
  /// What of a group is on its devices or on the way there.
  struct Gathered {
    std::int64_t shards = 0;    ///< Of the model.
    std::int64_t there = 0;     ///< Of these, there or on the way.
    std::int64_t complete = 0;  ///< Of these, to the last byte.
    [[nodiscard]] bool whole() const { return there == shards; }
  };
  [[nodiscard]] Gathered gathered(ModelId model, DeviceId leader) const;
  [[nodiscard]] static const Instance* apart(const DeviceState& device, ModelId model);
  [[nodiscard]] bool left_over(const DeviceState& device, ModelId model) const;
  /// What else is on a block of devices.
  enum class Beside : std::uint8_t { kNobody, kLeaving, kStaying };
  [[nodiscard]] Beside beside(ModelId model, DeviceId leader) const;
  void stand_by(ModelId model, DeviceId leader);
  [[nodiscard]] double resident_worth(const DeviceState& device, ModelId model) const;
  [[nodiscard]] Duration missing(ModelId model, DeviceId leader) const;
  void note_shard_complete(DeviceState& device, ModelId shard);
  [[nodiscard]] StartKind start_kind(ModelId model, const DeviceState& device) const;

  // Looking ahead.
  void plan_ahead();
  void count_shortage(DeviceState& device) const;
  void lend_idle();
  void recall(DeviceState& device);
  void relieve(DeviceState& device);
  void turn_window();
  void scale();
  void add_replica(ModelId id, double load);
  /// One device more for a model, and what that costs.
  struct ReplicaPlace {
    DeviceId device{};
    std::vector<ModelId> victims{};
    Duration load_takes{};
    double lost = 0;  ///< Worth of the victims [s].
  };
  [[nodiscard]] std::optional<ReplicaPlace> place_for_replica(ModelId id) const;
  bool load_replica(ModelId id, const ReplicaPlace& place, LoadReason why, std::string because);
  void prewarm();
  [[nodiscard]] policy::ReplicaMap replica_map();
  [[nodiscard]] std::vector<policy::ModelDemand> expected_demands();
  void add_to_map(ModelId model,
                  DeviceId leader,
                  std::vector<policy::MapDevice>& devices,
                  std::vector<policy::PlacedReplica>& replicas) const;
  bool prewarm_on(const policy::PrewarmDecision& decision,
                  const std::vector<policy::ReplicaId>& victims);
  /// What has to leave for something that is to be prewarmed.
  struct Leaving {
    std::vector<ShardPlace> at_once{};  ///< Idle; of a group that is apart, what is in the way.
    std::vector<ShardPlace> groups{};   ///< Led from there, idle; they take their time.
    double lost = 0;                    ///< Worth of all of these [s].
    bool busy = false;                  ///< One of them is in use by now.
  };
  [[nodiscard]] Leaving leaving(const std::vector<ShardPlace>& places,
                                const std::vector<policy::ReplicaId>& victims) const;
  void add_left_over(const std::vector<ShardPlace>& places, Leaving& leaving) const;
  void load_ahead(const policy::PrewarmDecision& decision,
                  DeviceId leader,
                  const std::vector<ShardPlace>& places,
                  const Leaving& leaving);
  void balance();
  void move_model(const policy::KvMove& move);
  void finish_moves();
  void note_start(ModelState& model, ModelId id);
  void note_complete(DeviceState& device, ModelId model, Instance& instance);
  void note_gone(ModelId model, const Instance& instance);
  [[nodiscard]] bool busy(ModelId model, const Instance& instance) const;
  [[nodiscard]] bool in_use(ModelId model, const Instance& instance) const;
  [[nodiscard]] bool active(const ModelState& model) const;
  [[nodiscard]] bool blocked(const DeviceState& device, ModelId model) const;
  [[nodiscard]] const policy::Forecast& expected(const ModelState& model,
                                                 const DeviceState& device) const;
  [[nodiscard]] Duration lead() const;
  [[nodiscard]] Duration load_time(const ModelState& model, const DeviceState& device) const;
  [[nodiscard]] double needed(const ModelState& model, const policy::Forecast& expected) const;
  [[nodiscard]] double needed_beside(const ModelState& model,
                                     const policy::Forecast& expected,
                                     std::int64_t others) const;
  [[nodiscard]] double worth(const DeviceState& device, ModelId model) const;
  [[nodiscard]] double kv_growth(ModelId model, const DeviceState& device) const;
  [[nodiscard]] double pressure(const DeviceState& device, ModelId wanted) const;
  [[nodiscard]] std::string names(const std::vector<ModelId>& models) const;
  void note(DecisionKind kind,
            ModelId model,
            std::optional<DeviceId> device,
            std::string why,
            std::optional<ModelId> for_model = {});
  void set_timer();
  void wake_by(Instant at);

  template <class T>
  void act(T command) {
    commands_->push_back(std::move(command));
  }

  ManagerOptions options_{};
  Instant now_{};
  Instant began_{};  ///< First configured.
  std::vector<ManagerCommand>* commands_ = nullptr;
  std::map<ModelId, ModelState> models_{};
  std::map<DeviceId, DeviceState> devices_{};
  std::map<RequestId, RequestState> requests_{};
  std::set<std::pair<Instant, RequestId>> deadlines_{};
  std::uint64_t arrivals_ = 0;
  std::optional<Instant> drain_deadline_{};
  bool drained_ = false;
  policy::NotBefore not_before_{};
  std::int64_t window_ = -1;  ///< Of the calendar, under way; -1: none yet.
  Instant plan_at_{};         ///< The next look ahead.
  Instant balance_at_{};
  bool unfinished_ = false;         ///< More is to be prewarmed than could be begun.
  std::optional<Instant> wake_{};   ///< Wanted now.
  std::optional<Instant> timer_{};  ///< Asked for.
};

}  // namespace heddle::core
