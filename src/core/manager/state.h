#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/manager/events.h"
#include "core/manager/footprints.h"
#include "core/manager/table.h"
#include "policy/demand.h"
#include "policy/nic.h"
#include "policy/placement.h"
#include "policy/reservations.h"

/// What the manager's core knows. Whoever decides reads it; each part of it has one writer, which
/// is named beside it.
namespace heddle::core::manager {

/// A worker's life that has ended, or that nothing is heard of, as a request that it ran knows it.
struct LostPlace {
  DeviceId device{};
  WorkerEpoch epoch{};
  bool cut = false;     ///< Nothing is heard of it.
  bool killed = false;  ///< As in WorkerDown.
  bool alone = false;   ///< The request was to have the device for itself.
};

/// What was said of a request's first token as a model was loaded for it.
struct Prediction {
  policy::PlanKind kind = policy::PlanKind::kActivate;
  DeviceId device{};  ///< Of several, the one that leads.
  Instant at{};
  Duration ttft{};  ///< From then on.
};

/// A request that has arrived and not ended. Written by RequestQueues.
struct RequestState {
  ModelId model{};
  std::int32_t priority = 0;
  std::uint64_t order = 0;  ///< Of arrival.
  std::int64_t tokens = 0;  ///< Prompt and answer together at most.
  std::int64_t need = 0;    ///< It runs where so many tokens fit: at most `tokens`.
  Instant arrived{};
  Instant due{};  ///< Its first token, by the objective that held as it arrived.
  std::optional<Instant> deadline{};
  std::optional<DeviceId> device{};  ///< Where it is in flight; none: it waits, or is lost.
  ModelId as{};                      ///< What runs it there, as Dispatch has it.
  /// The worker died under it, and its front has not yet said so; then neither waits nor runs it.
  std::optional<LostPlace> lost{};
  std::int32_t deaths = 0;  ///< Workers that died under it, perhaps for it.
  /// Who has KV of it: from where it came back, until it has had that where it went on.
  std::vector<KvSource> kv{};
  bool held = false;  ///< Hold was said.
  std::optional<Prediction> predicted{};
  std::string adapter{};  ///< Name of the model's LoRA adapter that it asks; empty: none.
};

/// Of a model's image, what a host has.
struct HostImage {
  std::uint64_t bytes = 0;
  bool cached = false;  ///< Complete and in the host cache.
};

/// Order within a model's queue.
struct QueueKey {
  std::int32_t priority = 0;
  std::uint64_t order = 0;
  friend auto operator<=>(const QueueKey&, const QueueKey&) = default;
};

class Instance;
struct DeviceState;

/// Where a model is.
struct Spot {
  DeviceId id{};
  const DeviceState* device = nullptr;
  const Instance* instance = nullptr;
  friend bool operator==(const Spot&, const Spot&) = default;
};

/// Which lists of Index a model is in, which have their meaning.
struct Listed {
  bool going = false;
  bool ticketed = false;
  bool claiming = false;
  bool unplaced = false;
  bool sendable = false;
  bool attaching = false;
  bool in_stages = false;
  bool doubled = false;
  bool led = false;
  friend bool operator==(const Listed&, const Listed&) = default;
};

/// A block of devices that a sharded model is to have once they are empty.
struct Claim {
  DeviceId leader{};
  Instant began{};
  /// Why a model that serves elsewhere is to have one block more; empty: requests or operators wait
  /// for it.
  std::string more{};
  std::string instead{};  ///< For people: plans that were not taken.
};

/// Requests of a model that wait, as its instances and those on their way do not bear them.
struct Unborne {
  std::int64_t requests = 0;
  double waited = 0;  ///< What they have waited so far, in sum [s].
  Instant until{};    ///< When that was counted.
};

struct ModelState {
  // Written by Catalog.
  ManagerModel config{};  ///< Without its footprints.
  Footprints footprints{};
  bool removed = false;  ///< No longer configured; its running requests end.
  /// Of the device that suits it best, alone there; 0: none can hold it. Not of an engine, of which
  /// that is learned.
  std::int64_t tokens_max = 0;
  std::map<HostId, HostImage> images{};
  std::set<HostId> fetched_at{};  ///< Hosts that have fetched its files since.
  std::vector<ModelId> cuts{};    ///< It, cut into stages; by how many, ascending.

  // Written by RequestQueues.
  std::map<QueueKey, RequestId> waiting{};
  std::size_t unsaid = 0;      ///< Of those that wait, Hold was not said of so many.
  std::size_t requests = 0;    ///< Waiting and in flight.
  std::uint64_t recalled = 0;  ///< Requests that came back from where they waited for memory.
  std::uint64_t kv_moved_tokens = 0;  ///< As ModelStatus has them.
  std::uint64_t kv_again_tokens = 0;
  std::optional<policy::PlacementReason> waits_for{};  ///< Why it is not loaded, as last noted.

  // Written by Tickets.
  std::map<TicketId, Instant> loads_asked{};
  std::map<TicketId, EvictionReason> unloads_asked{};
  bool sent_away = false;     ///< It was unloaded on purpose; nobody has asked for it since.
  std::int64_t idle_in = -1;  ///< The window in which it was unloaded for being idle; -1: none.

  // Written by LoadAttempts.
  std::int32_t failures = 0;  ///< Loads that failed in a row.
  std::int32_t kills = 0;     ///< Workers that were killed under loads, in a row.
  std::optional<Error> failure{};
  Instant retry_at{};      ///< Not loaded before.
  Instant failed_until{};  ///< Requests fail at once before this.

  // Written by Demand.
  policy::WarmFigures warm{};
  Instant last_used{};
  Instant last_arrival{};
  policy::DemandMeter demand;
  /// To load all its weights, lately, from disk and from the host cache; 0: not measured. Of an
  /// external engine: to start it, and to bring it back from where it stood by.
  std::array<Duration, 2> load_times{};
  std::array<std::uint64_t, kStartKinds> starts{};
  std::uint64_t wasted_bytes = 0;

  // Written by Residency.
  std::array<std::uint64_t, kLoadReasons> loads{};
  std::array<std::uint64_t, kEvictionReasons> evictions{};
  std::uint64_t step_backs = 0;

  /// When it last went with requests, whose turn is behind others'. Written by DrainPlans.
  Instant turn_ended{};

  // Written by Shortages.
  Unborne unborne{};
  std::optional<Instant> unborne_at{};  ///< When some of its requests last were.

  // Written by Claims.
  std::optional<Claim> claim{};

  // Of an external engine. Written by ExternalEngines.
  std::int64_t learned_pages = 0;  ///< That it held when it last ran.
  Duration swap_out{};             ///< As last heard; 0: not known.
  Duration swap_in{};
  std::size_t frozen = 0;  ///< Requests that stand still with it.

  // Written by the index.
  std::vector<Spot> spots{};      ///< Where it is, ascending by device.
  std::vector<DeviceId> plans{};  ///< Devices whose DrainPlan is for it.
  bool waits = false;             ///< Some requests do.
  Listed listed{};

  /// What it needs on the device; null: it cannot be there.
  [[nodiscard]] const policy::Footprint* need_on(const DeviceState& device) const;
  [[nodiscard]] policy::Objectives objectives() const { return warm.objectives(config.slo); }
  /// An external engine serves it.
  [[nodiscard]] bool external() const { return config.external.has_value(); }
  /// The host has all of its image in memory.
  [[nodiscard]] bool cached_at(HostId host) const {
    const auto found = images.find(host);
    return found != images.end() && found->second.cached;
  }
  /// It is sharded over several devices; true of rank 0 alone.
  [[nodiscard]] bool sharded() const { return !config.groups.empty() || config.cut_of; }
  /// It is sharded, or is a further shard of a model that is.
  [[nodiscard]] bool grouped() const { return sharded() || config.part_of; }
  [[nodiscard]] bool wanted() const {
    return (!waiting.empty() || !loads_asked.empty() || frozen > 0) && unloads_asked.empty() &&
           !removed;
  }
};

// ---- The stages of an instance ----

/// Its weights are on their way.
struct Loading {};
/// It takes requests.
struct Serving {};
/// It is resident and is sent nothing more.
struct Draining {
  /// For no other reason than that a request of its own needs more memory than there is here.
  bool cramped = false;
};
/// Its worker, or its external engine, was told to leave.
struct Evicting {
  EvictionReason why = EvictionReason::kDisplaced;
};
/// Of rank 0: its worker was told that the group is to end while all shards stay.
struct SteppingBack {};
/// An external engine stands by, perhaps with requests in flight.
struct Suspended {};
/// A shard that takes no requests: it follows rank 0 of its group, or is staged.
struct Member {
  EvictionReason leader_went_for = EvictionReason::kDisplaced;  ///< The last time that it went.
};

using Stage = std::variant<Loading, Serving, Draining, Evicting, SteppingBack, Suspended, Member>;

/// The shape of an instance: the whole model on one device, or a part of it that is on several.
struct GroupPart {
  /// Of a further shard: where rank 0 of its group is. Of an external engine on several devices,
  /// everywhere but on the first: that one, which has the requests and speaks for all. The others
  /// have the same stage.
  std::optional<DeviceId> leader{};
  /// A shard that was prewarmed and that nobody has asked for since: weights that nobody uses,
  /// which share their device with others and go by themselves.
  bool staged = false;
  bool forming = false;  ///< Of rank 0: FormGroup was given.
};

/// The KV of an elastic engine, and what it was told.
struct ElasticKv {
  EngineKv said{};
  std::int64_t told = 0;    ///< In the last LimitKv.
  std::int64_t noted = 0;   ///< Likewise, of those that people were told of.
  Instant told_again_at{};  ///< Its host could not do what it was told; it is not asked before.
};

/// A model on a device.
class Instance {
 public:
  /// Whether it is in this stage: `instance.is<Serving>()`.
  template <class T>
  [[nodiscard]] bool is() const {
    return std::holds_alternative<T>(stage_);
  }
  /// The data of its stage, or null if it is in another.
  template <class T>
  [[nodiscard]] const T* as() const {
    return std::get_if<T>(&stage_);
  }
  [[nodiscard]] bool same_stage(const Instance& other) const {
    return stage_.index() == other.stage_.index();
  }
  /// It has all it needs to run requests, whether it is sent more or not.
  [[nodiscard]] bool runs() const { return is<Serving>() || is<Draining>(); }
  [[nodiscard]] const GroupPart& part() const { return part_; }
  [[nodiscard]] bool staged() const { return part_.staged; }

  // Written by RequestQueues.
  std::set<RequestId> in_flight{};
  Instant resting_until{};  ///< It did not take a request; it is sent none before.
  bool answered = false;    ///< A request has ended there: it is warm to the last page.
  bool used = false;        ///< A request was sent to it.
  /// Of first stages: since when the whole model serves here that Gather named last.
  std::optional<Instant> gathers{};
  std::optional<Instant> yields{};  ///< When it was told to give up one that runs; it has not yet.
  /// Requests that went on elsewhere and have its KV come, each for no longer than until then.
  std::map<RequestId, Instant> owes{};

  // Written by Residency, as the stage is.
  LoadReason why = LoadReason::kRequest;  ///< It was brought in; nothing of what stands by.
  Instant load_began{};
  Instant serving_since{};
  bool from_host = false;       ///< The host cache had its image as its load began, or it stood by.
  bool fetched = false;         ///< Its host had to fetch the files first,
  std::vector<HostId> peers{};  ///< from the caches of these, as far as they give them.
  bool complete = false;        ///< All its weights are there.
  /// As last reported; of an external engine, all it holds.
  std::int64_t kv_pages = 0;
  std::optional<ElasticKv> elastic{};  ///< Of such an engine that runs. Written by KvLimits.
  std::int64_t kv_peak = 0;            ///< Most pages of KV lately.
  std::int64_t guest_pages = 0;        ///< Of its KV, on another device.
  Duration attention{};                ///< As ResidentReport has it, with the next two.
  Duration guest_loss{};
  double reading = 0;
  std::set<std::string> adapters{};    ///< LoRA adapters that are there, as last reported.
  bool spare = false;                  ///< Gets requests only when the others have enough.
  std::optional<DeviceId> moves_to{};  ///< It goes as soon as it serves there.

  std::int64_t late = 0;  ///< As ResidentReport has it. Written by Shortages.

 private:
  friend class Residency;
  Stage stage_{};
  GroupPart part_{};
};

// ---- Devices ----

/// A load that waits until its victims are idle, and until external engines among them are
/// suspended; or pages for what runs already, which engines free when they are idle.
struct DrainPlan {
  ModelId model{};
  std::vector<ModelId> victims{};
  Instant began{};
  std::int64_t lacks = 0;  ///< More than 0: it is there, and wants so many pages more.
  std::string instead{};   ///< For people: plans that were not taken.
  /// Of an engine that is to come to several devices: all of them, the first of which goes on with
  /// the plan. Each has one like this, and none begins or ends without the others.
  std::vector<DeviceId> devices{};
  /// Then: victims that go on until then, as others of them take longer to leave.
  std::map<ModelId, Instant> later{};
  bool set_aside = false;  ///< Victims went with their requests, as their turn was over.
};

/// The sequences of a device that wait for memory, as last reported. Written by Shortages.
struct Shortage {
  std::int64_t sequences = 0;
  std::int64_t pages = 0;
  ModelId model{};
  std::int64_t own_pages = 0;  ///< Of `pages`, what the worker's sequences want.
  std::int64_t engines = 0;    ///< Of `sequences`, elastic engines that lack KV, each one.
  std::int64_t engine_pages = 0;
  ModelId engine{};     ///< The one that lacks most.
  double waited = 0;    ///< What they have waited so far, in sum [s].
  Instant until{};      ///< When that was counted.
  Instant recall_at{};  ///< None of them is recalled before.
};

/// Pages that were freed on a device for a model that lacks KV there. Written by Shortages.
struct Owed {
  ModelId model{};
  std::int64_t pages = 0;
  Instant until{};  ///< From then on they are there for all.
};

/// Pages that a device lends to KV of a model elsewhere (WEAVER). Written by GuestLoans.
struct GuestLoan {
  DeviceId hot{};  ///< Where the model runs.
  WorkerEpoch hot_epoch{};
  std::int64_t pages = 0;
  std::int64_t asked = 0;     ///< That are on their way.
  std::int64_t recalled = 0;  ///< Those that are on their way back.
  Instant more_at{};          ///< No more are lent before.
  Instant used_at{};          ///< When some of them held KV, or more were lent.
};

/// What a device's time is counted as.
enum class DeviceUse : std::uint8_t { kNone, kServing, kSwitching };

struct DeviceState {
  // Written by Catalog.
  ManagerDevice config{};
  std::int64_t workspace = 0;  ///< The largest that any model has there [pages].
  std::size_t place = 0;       ///< Among all devices, by id: a hint for Footprints::find.

  // Written by Devices.
  bool up = false;
  bool found = false;    ///< This life began before it was heard of: others may have ordered loads.
  bool leaving = false;  ///< Its host is to go: nothing comes here.
  WorkerEpoch epoch{};
  std::uint64_t version = 0;  ///< Of the worker's residency, as last heard.
  std::uint64_t restarts = 0;
  ledger::PoolUsage usage{};
  Duration step{};            ///< As DeviceReport has it.
  std::int64_t refusals = 0;  ///< Loads refused in a row.
  Instant paused_until{};     ///< Nothing is loaded before.

  std::map<ModelId, Instance> instances{};  ///< Written by Residency.
  std::optional<DrainPlan> plan{};          ///< Written by DrainPlans.
  std::optional<ModelId> claimed{};         ///< By this model, with others. Written by Claims.
  std::optional<policy::Reservation> reserved{};  ///< Kept for it. Written by Reservations.
  double load_rate = 0;  ///< Of weights, lately [bytes/s]; 0: not measured. Written by Demand.
  Shortage shortage{};
  Owed owed{};

  // Written by GuestLoans.
  std::map<ModelId, GuestLoan> guests{};  ///< By model.
  Instant lends_at{};                     ///< After a refusal or a recall, no more is lent before.
  std::int64_t lend_refusals = 0;         ///< Since what it lent was last of use.

  // Written by RequestQueues.
  std::optional<RequestId> alone{};  ///< A request that must have the device for itself.
  /// The one that ran at once, on a warm instance, with the device to itself so far.
  std::optional<RequestId> undisturbed{};

  // Written by the index.
  DeviceUse use = DeviceUse::kNone;
  Instant used_since{};                  ///< It is that since then.
  std::array<Duration, 3> used{};        ///< Before, by use.
  std::optional<ModelId> planned_for{};  ///< Of its plan, as ModelState::plans has it.
  /// A load has no more than these at once, whatever leaves for it: what runs, comes and goes
  /// stays.
  std::int64_t at_most = 0;
  bool dedicated = false;  ///< As groups.h has it.
  bool mixed = false;      ///< It is in Index::mixed.
};

inline const policy::Footprint* ModelState::need_on(const DeviceState& device) const {
  return footprints.find(device.config.id, device.place);
}

/// What passes look at, instead of all models and devices. Written by index.cc alone, to which
/// writers say what they have changed (index.h).
struct Index {
  // ---- Models ----
  /// That requests name: no shard of another but rank 0, and no cut. Ascending.
  std::vector<std::pair<ModelId, const ModelState*>> named{};
  std::set<ModelId> going{};      ///< That were removed, or that an operator wants gone.
  std::set<ModelId> ticketed{};   ///< That an operator waits for.
  std::set<ModelId> claiming{};   ///< That claim a block.
  std::set<ModelId> unplaced{};   ///< That are wanted, and in no form on their way or there.
  std::set<ModelId> in_stages{};  ///< Of which a cut is somewhere.
  std::set<ModelId> doubled{};    ///< External engines that are in several places.
  std::set<ModelId> led{};        ///< Of which a device may lead, or leads, a group.
  /// For which requests wait, some of which were not told so, or which serve in some form.
  std::set<ModelId> sendable{};
  /// For which requests wait, and whose weights are on their way; they serve in no form yet.
  std::set<ModelId> attaching{};

  // ---- Devices ----
  std::set<DeviceId> leaving{};  ///< That are up and to go.
  std::set<DeviceId> planned{};  ///< With a DrainPlan.
  std::set<DeviceId> alone{};    ///< Kept free for one request.
  std::set<DeviceId> lending{};  ///< With guests.
  std::set<DeviceId> lacking{};  ///< Where sequences wait for memory, or have waited.
  std::set<DeviceId> mixed{};    ///< With engines or parts of groups.
  std::set<DeviceId> elastic{};  ///< With elastic engines that run, or that lacked KV.
  /// Those that are another place than before for models that want one, in the order of changes;
  /// `forgotten` were before the first of them.
  std::vector<DeviceId> changed{};
  std::uint64_t forgotten = 0;

  // ---- Instances ----
  /// That drain, are to move, or have KV of requests that went on elsewhere.
  std::set<std::pair<DeviceId, ModelId>> watched{};

  // ---- Groups ----
  /// Rank 0 and its device, of groups to one of whose devices something has happened.
  std::set<std::pair<ModelId, DeviceId>> stirred{};

  // ---- Requests ----
  std::set<RequestId> lost{};  ///< Whose worker has died.
};

/// All that the manager's core knows.
struct State {
  ManagerOptions options{};
  Instant now{};
  Instant began{};  ///< First configured.
  Table<ModelId, ModelState> models{};
  Table<DeviceId, DeviceState> devices{};
  Table<RequestId, RequestState> requests{};
  std::set<std::pair<Instant, RequestId>> deadlines{};    ///< Written by RequestQueues.
  std::optional<Instant> drain_deadline{};                ///< The server is shutting down.
  bool settled = true;                                    ///< As Settled says.
  std::set<std::pair<DeviceId, DeviceId>> guest_peers{};  ///< As GuestPeers, both ways round.
  /// What hosts fetch, and have promised to fetch in time. Written by Fetches.
  std::map<HostId, policy::Nic> networks{};
  /// Hosts that have dropped an image to make room for others. Written by Catalog.
  std::set<HostId> full_hosts{};
  std::int64_t window = -1;  ///< Of the calendar, under way; -1: none yet. Written by Demand.
  std::uint64_t groups_formed = 0;  ///< Written by Residency.
  Index index{};
};

}  // namespace heddle::core::manager
