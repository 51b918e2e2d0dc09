#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/time.h"
#include "core/decision.h"
#include "core/messages.h"
#include "core/serving.h"
#include "policy/admission.h"
#include "policy/load_history.h"
#include "policy/objectives.h"
#include "policy/plans.h"

namespace heddle::core {

/// An unload or load asked for by an operator; drawn by the shell, never reused.
using TicketId = Id<struct TicketIdTag>;

/// What the manager knows of an external engine.
struct ExternalModel {
  /// Its requests may end for so long, then it is suspended with them; nullopt: they must end.
  std::optional<Duration> drain{};
  /// Of one on several devices at once: for each device of its footprints the others, ascending and
  /// after that one, which speaks for all. It needs as much of each.
  std::map<DeviceId, std::vector<DeviceId>> further{};
};

/// Where one rank of a sharded model is.
struct ShardPlace {
  ModelId model{};  ///< The shard.
  DeviceId device{};
  friend bool operator==(const ShardPlace&, const ShardPlace&) = default;
};

/// A model as the manager places it. One that is sharded over n devices (tensor parallelism) is n
/// of them: rank 0 bears its name and gets its requests, the others are loaded and evicted with it.
struct ManagerModel {
  ModelId id{};
  std::string name{};
  std::uint64_t image_bytes = 0;
  std::int64_t context = 0;  ///< Longest prompt and answer together [tokens].
  bool pin = false;          ///< Once loaded, never evicted for another.
  /// Once serving, not drained for another before this has passed. Idle models go at once.
  Duration min_residence{};
  policy::WantedObjectives slo{};
  /// Requests at once that one device should bear; beyond it the model gets another device.
  std::int64_t batch = 32;
  std::map<DeviceId, policy::Footprint> footprints{};  ///< On each device that may hold it.
  /// The same on all devices of a kind, but for those of `footprints`: a large cluster has few
  /// kinds.
  std::map<std::uint32_t, policy::Footprint> on_kinds{};
  /// An external engine serves it: its footprint has image pages alone, 0 for one whose
  /// memory is unknown until it was measured.
  std::optional<ExternalModel> external{};
  /// Models that cannot stay on the device when this one comes; ascending.
  std::vector<ModelId> displaces{};
  /// If it is sharded: for each device of `footprints`, all of which may lead, where ranks 1 and up
  /// are then, in order. On one host these blocks of devices do not overlap.
  std::map<DeviceId, std::vector<ShardPlace>> groups{};
  /// If it is sharded: its KV has shares of its devices, so that other models may be there while it
  /// runs. Of each shard as of the whole.
  bool shares = false;
  std::optional<ModelId> part_of{};  ///< Rank 0 of the model that this is another shard of.
  /// It is that model, cut into the stages of a pipeline, for hosts to fetch together what one
  /// would fetch for longer. It gets requests of that model, and `groups` is empty here: where
  /// its stages go is chosen each time (HydraServe).
  std::optional<ModelId> cut_of{};
  std::vector<ModelId> stages{};  ///< Of such a one: its further stages, in order.
  /// What hosts that lack its files fetch of them over their networks, when they load it [bytes].
  std::map<HostId, std::uint64_t> fetched{};
};

struct ManagerDevice {
  DeviceId id{};
  std::string name{};
  std::int64_t pages = 0;
  std::uint64_t page_bytes = 0;
  /// Its pages are part of the host's memory, where other such devices of it can read and write
  /// them.
  bool in_host_memory = false;
  std::uint32_t kind = 0;  ///< Of ManagerModel::on_kinds; whoever configures numbers them.
};

/// Which parts of the planner decide; each can be left out to see what it is worth. As it stands
/// here models come when they are asked for, and go in the order of their last use.
struct PlannerOptions {
  bool prewarm = false;  ///< Models are loaded before they are asked for, by forecast (WarmServe).
  bool forecast = true;  ///< By the best of several experts; else as in the window that ended.
  bool value = false;  ///< The idle model that is worth least goes; else the one used longest ago.
  bool pressure = false;  ///< Models go, and move, to where KV pressure is least (Prism).
  bool replicas = false;  ///< A model with more load than a device should bear gets another.
  /// KV of models that lack memory goes to devices that have some to spare (WEAVER).
  bool weave = false;
  double weave_share = 0.5;  ///< Most of a model's KV that may be elsewhere.
  bool share = true;         ///< Several models may run on one device at once.
  bool evict = true;         ///< A model may be evicted for another.
  Duration period = std::chrono::milliseconds(500);  ///< Of looking ahead.
  policy::Calendar calendar{};                       ///< Of forecasts.
};

struct ManagerOptions {
  std::size_t queue_per_model = 512;  ///< Most unfinished requests of a model; the next gets 429.
  std::size_t queue_total = 4096;     ///< Most unfinished requests of all models.
  /// How long the oldest waiting request of a model bears with busy models before some are drained.
  Duration drain_after = std::chrono::seconds(2);
  /// How long a busy model may go on with its requests once it is drained for another; then it goes
  /// with them, and they wait for its next turn. 0: until they end.
  Duration turn{};
  std::int32_t load_attempts = 3;  ///< Then the requests that wait for the model fail.
  Duration load_retry_first = std::chrono::milliseconds(100);  ///< Doubled with each attempt.
  Duration load_cooldown = std::chrono::seconds(10);  ///< After that, arrivals fail at once.
  PlannerOptions planner{};
};

// ---- What a manager hears ----

/// The whole configuration; again at each reload. A model whose id is missing is being removed: its
/// running requests end, its waiting ones fail.
struct Configure {
  ManagerOptions options{};
  std::vector<ManagerModel> models{};
  /// One that is no longer among them is forgotten, unless its worker is up.
  std::vector<ManagerDevice> devices{};
  /// What the networks of hosts carry that are known [bytes/s].
  std::map<HostId, std::int64_t> networks{};
};
/// What was measured of a model's load before this manager was, or a part of that; after the
/// Configure that brought the model.
struct LoadRemembered {
  ModelId model{};
  std::vector<std::pair<std::int64_t, policy::Load>> windows{};  ///< Ascending, as measured.
};
struct RequestArrived {
  RequestId request{};
  ModelId model{};
  std::int32_t priority = 0;  ///< Lower goes first.
  std::int64_t prompt_tokens = 0;
  std::int64_t max_tokens = 0;         ///< Of the longest choice.
  bool open_ended = false;             ///< An answer may end where the memory of its device does.
  std::optional<Duration> patience{};  ///< It fails where no worker has it after that.
  std::string adapter{};               ///< Name of the model's LoRA adapter that it asks; or empty.
};
/// All its choices have ended: the record is complete.
struct RequestFinished {
  RequestId request{};
  std::optional<Duration> ttft{};  ///< From its arrival to its first token, if that was seen.
  std::optional<Duration> tpot{};  ///< Then from one token to the next, of its longest answer.
  /// For who keeps the history: its model, and its tokens as far as they are known. Fronts of the
  /// version before say no model.
  std::optional<ModelId> model{};
  std::int64_t prompt_tokens = 0;
  std::int64_t answer_tokens = 0;  ///< Of all choices.
};
/// A request that has not ended, as its front has it.
struct Unfinished {
  RequestArrived request{};          ///< Its patience counts from now.
  Duration age{};                    ///< Since it arrived.
  std::optional<DeviceId> device{};  ///< Where it is; none: it waits.
  WorkerEpoch epoch{};
};
/// All requests of a front, where some may have ended or moved unheard: at a manager that is new to
/// it, and after they were cut off from each other. None, where the front is gone.
struct FrontState {
  FrontId front{};
  std::vector<Unfinished> requests{};
};
/// Whether what hosts and fronts have to tell of themselves has been heard. While it has not,
/// nothing is decided, and what is said of requests waits to be heard.
struct Settled {
  bool settled = true;
};
/// Its client is gone. Nothing more is said about it.
struct RequestCancelled {
  RequestId request{};
};
struct AdminLoad {
  TicketId ticket{};
  ModelId model{};
};
struct AdminUnload {
  TicketId ticket{};
  ModelId model{};
  EvictionReason why = EvictionReason::kOperator;
};
struct WorkerUp {
  DeviceId device{};
  WorkerEpoch epoch{};
};
/// A worker that lived before this manager heard of it, or while its host was cut off; with what it
/// last said of its models.
struct WorkerFound {
  DeviceId device{};
  WorkerEpoch epoch{};
  DeviceReport report{};
};
/// Nothing is heard of the host any more. What runs there may run on; its devices are no place for
/// anything until their workers are found again.
struct HostLost {
  HostId host{};
};
/// From the host: it is to go, as an operator wants or as its process was told to end; or no
/// longer. Nothing more comes there, and what it has goes elsewhere.
struct HostLeaving {
  HostId host{};
  bool leaving = true;
};
struct WorkerDown {
  DeviceId device{};
  WorkerEpoch epoch{};
  /// Somebody killed or stopped it, or the kernel did for want of memory.
  bool killed = false;
};
/// From a front: it takes nothing more from that life of a worker. Its requests there wait again.
struct PlaceLost {
  DeviceId device{};
  WorkerEpoch epoch{};
  std::vector<RequestId> requests{};  ///< Ascending, as the next.
  std::vector<RequestId> advanced{};  ///< Those of them that it gave a token.
};
/// From the agent: the image cannot be had. Nothing of the model is left on the device.
struct ImageFailed {
  DeviceId device{};
  WorkerEpoch epoch{};
  ModelId model{};
  Error reason{};
};
/// From the agent: the workers of the group that this leads have been told to run in lockstep, and
/// hear of it before anything that is sent to them from now on.
struct GroupFormed {
  DeviceId device{};  ///< Of the leader.
  WorkerEpoch epoch{};
  ModelId model{};
  std::vector<GroupMember> members{};  ///< By rank.
};
/// From the agent: how much of the image the host has, for status and patience. Not in the cache:
/// 0.
struct ImageState {
  ModelId model{};
  std::uint64_t bytes = 0;
  bool host_cached = false;  ///< Complete and in the host cache.
  HostId host{};
};
/// From the agent: so many of the device's pages are lent to KV of a model elsewhere; said whenever
/// it changes, or a Weave was refused.
struct GuestState {
  DeviceId device{};
  ModelId model{};
  std::int64_t pages = 0;
  bool refused = false;
};
/// From the host: what has become of an external engine.
enum class EngineNews : std::uint8_t {
  kServing,    ///< It runs and gives the right answers.
  kRefused,    ///< It was not brought in, for want of memory or because the device had changed.
  kFailed,     ///< It was not brought in: `reason`. Nothing of it is left.
  kSuspended,  ///< It was taken out, stands by, and holds `held_pages` still.
  kEnded,      ///< It was taken out, and nothing of it is left.
  kLost,       ///< It died while it ran or was suspended: `reason`. Nothing of it is left.
};
struct EngineSaid {
  DeviceId device{};
  ModelId model{};
  EngineNews news = EngineNews::kServing;
  std::int64_t held_pages = 0;  ///< Of the device, measured.
  Duration swap_out{};          ///< What suspending it takes, as far as that is known.
  Duration swap_in{};           ///< And bringing it back.
  Error reason{};
};
/// From the host: what an elastic engine has of its device for KV, while it runs; said when that
/// changes (docs/contracts/elastic_engines.md).
struct EngineKv {
  DeviceId device{};
  ModelId model{};
  /// Of the engine and its KV together: what no load may count on.
  std::int64_t firm_pages = 0;
  std::int64_t fixed_pages = 0;   ///< Of the engine alone.
  std::int64_t least_pages = 0;   ///< KV that it always has.
  std::int64_t limit_pages = 0;   ///< KV that is its own.
  std::int64_t wanted_pages = 0;  ///< What its host takes to be the last LimitKv.
  std::int64_t used_pages = 0;    ///< KV that it has mapped, as it says.
  bool deaf = false;              ///< Its limit cannot be changed now, or it does not keep to it.
  friend bool operator==(const EngineKv&, const EngineKv&) = default;
};
/// GPUs of which one can have KV of its models on the other, and the other run attention over it,
/// in place of what was said before. Parts of the host's memory all can.
struct GuestPeers {
  std::vector<std::pair<DeviceId, DeviceId>> pairs{};
};
/// The request was forwarded to an engine that did not take it; nothing of an answer has come.
struct RequestUnanswered {
  RequestId request{};
  bool cut = false;  ///< The engine's host could not be reached, which says nothing of the engine.
};
/// Take no more requests; say Drained when the last has ended, which at `deadline` they are made
/// to.
struct DrainManager {
  Instant deadline{};
};

using ManagerEvent = std::variant<Configure,
                                  LoadRemembered,
                                  RequestArrived,
                                  RequestFinished,
                                  RequestCancelled,
                                  AdminLoad,
                                  AdminUnload,
                                  WorkerUp,
                                  WorkerDown,
                                  WorkerFound,
                                  HostLost,
                                  HostLeaving,
                                  FrontState,
                                  Settled,
                                  PlaceLost,
                                  WorkerSaid,
                                  ImageFailed,
                                  GroupFormed,
                                  ImageState,
                                  GuestState,
                                  GuestPeers,
                                  EngineSaid,
                                  EngineKv,
                                  RequestUnanswered,
                                  DrainManager,
                                  Tick>;

/// To the host: the KV of an elastic engine may have so many pages of its device. More are reserved
/// first, of a worker's device by Borrow. Fewer are the engine's until it says that it has no more.
struct LimitKv {
  DeviceId device{};
  ModelId model{};
  Basis basis{};  ///< Of what is borrowed.
  std::int64_t pages = 0;
  friend bool operator==(const LimitKv&, const LimitKv&) = default;
};

/// Among the cores of a host: have the device's worker give up pages, and give what backs them to
/// the kernel. Answered by LoanGranted or LoanRefused.
struct Borrow {
  DeviceId device{};
  ModelId model{};
  Basis basis{};
  std::int64_t pages = 0;
};
/// Back so many of the pages lent for the model again, and give them to the worker.
struct Repay {
  DeviceId device{};
  ModelId model{};
  std::int64_t pages = 0;
};
/// From the cores of a host: the manager is to hear this.
struct TellManager {
  ManagerEvent event{};
};

// ---- What a manager does ----

/// Send the request's record to this worker (Submit).
struct Dispatch {
  RequestId request{};
  DeviceId device{};
  WorkerEpoch epoch{};
  /// Prompt and answer together are no longer than this, there and wherever it goes on.
  std::int64_t tokens = 0;
  Duration due{};  ///< Until its first token is, by the objective of its model; < 0: it is late.
  std::optional<ModelId> as{};  ///< What runs it there, if that is a cut of its model.
  std::vector<KvSource> kv{};   ///< As Submit has it.
};
/// It waits for its model; said at most once a wait.
struct Hold {
  RequestId request{};
};
/// Tell this worker to give some requests up (RecallRequests), or that nobody gives the pages that
/// it wants (NoPages). To forget a request its front tells it, as it told it of the request.
struct TellWorker {
  DeviceId device{};
  WorkerEpoch epoch{};
  WorkerMessage message{};
};
/// The request has ended so.
struct FailRequest {
  RequestId request{};
  Error error{};
};
/// Answer to AdminLoad or AdminUnload.
struct AdminDone {
  TicketId ticket{};
  std::optional<Error> error{};
};
/// A window of a model's load has ended, for who keeps the history.
struct LoadMeasured {
  ModelId model{};
  std::int64_t window = 0;  ///< As PlannerOptions::calendar numbers them.
  policy::Load load{};
};
/// A request has ended for which a model was loaded: what was predicted of its first token as the
/// load was decided, and what it took from then on.
struct PlanMeasured {
  ModelId model{};
  DeviceId device{};  ///< Of several, the one that leads.
  policy::PlanKind kind = policy::PlanKind::kActivate;
  Duration predicted{};
  Duration took{};
};
/// Answer to DrainManager: no request is left.
struct Drained {};

using ManagerCommand = std::variant<LoadOn,
                                    EvictFrom,
                                    FormGroup,
                                    Weave,
                                    Unweave,
                                    LimitKv,
                                    Dispatch,
                                    Hold,
                                    TellWorker,
                                    FailRequest,
                                    AdminDone,
                                    Decision,
                                    LoadMeasured,
                                    PlanMeasured,
                                    Drained,
                                    WakeAt>;

}  // namespace heddle::core
