#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/http_address.h"
#include "base/ids.h"
#include "base/result.h"
#include "base/time.h"
#include "core/decision.h"
#include "ledger/drop_reason.h"
#include "ledger/ledger.h"
#include "policy/objectives.h"
#include "policy/watchdog.h"
#include "spec/engine.h"
#include "spec/sampling.h"

namespace heddle::core {

/// When things happened to a request; zero where they have not. For its trace and its metrics.
struct RequestTimes {
  Instant arrived{};     ///< Accepted by the gateway.
  Instant load_began{};  ///< It had to wait for its model, whose load began (or was under way).
  Instant dispatched{};  ///< Sent to a worker (the last time before its first token).
  Instant first_token{};
  Instant finished{};

  /// From its arrival to its first token, once there is one.
  [[nodiscard]] std::optional<Duration> ttft() const {
    return first_token == Instant{} ? std::nullopt : std::optional(first_token - arrived);
  }

  /// When its worker dies, a request waits and is sent again; what came before stays as it was, so
  /// that no phase ends before it began.
  void note_load(Instant now) {
    if (dispatched == Instant{} && first_token == Instant{}) {
      load_began = now;
    }
  }
  void note_dispatch(Instant now) {
    if (first_token == Instant{}) {
      dispatched = now;
    }
  }
};

/// What can happen to a request beside its phases.
enum class IncidentKind : std::uint8_t {
  kPreempted,  ///< Its KV was given up for others', and computed again.
  kRecalled,   ///< Called back from where it waited for memory.
  kReturned,   ///< Its model went before the request had ended.
  kLost,       ///< Its worker or engine died, or could not be reached.
  kResumed,    ///< Sent on to a worker or engine after one of the above.
  kSuspended,  ///< Its external engine was suspended with the request in it.
  kAwoken,     ///< That engine goes on with it.
};

/// Something that happened to a request, for its trace.
struct Incident {
  Instant at{};
  IncidentKind kind = IncidentKind::kLost;
  std::optional<DeviceId> device{};  ///< Where it was; of kResumed, where it goes.
  Duration lasted{};                 ///< Of kPreempted: until its next token.
  friend bool operator==(const Incident&, const Incident&) = default;
};

/// As in traces: "preempted".
[[nodiscard]] std::string_view name(IncidentKind kind);
/// Notes one more; a request that has met very many of them is told of the first ones.
void note(std::vector<Incident>& incidents, const Incident& incident);
/// Notes that the request goes on at `device`, where it was taken from another place before.
void note_resumed(std::vector<Incident>& incidents, Instant now, DeviceId device);

/// Everything that is needed to run a request, and to run the rest of it again somewhere else:
/// prompt, parameters (the seed is drawn already) and every token received. Owned by the gateway,
/// which appends the tokens; the rest of the system holds none of it durably.
struct RequestRecord {
  RequestId id{};
  ModelId model{};
  std::vector<TokenId> prompt{};
  std::vector<spec::SamplingParams> choices{};    ///< One per answer; `n` of them.
  std::vector<std::vector<TokenId>> generated{};  ///< Per choice, in order.
  std::vector<spec::FinishReason> finished{};     ///< Per choice; kNone while it runs.
  std::int32_t priority = 0;                      ///< Lower runs first.
  std::uint64_t client = 0;           ///< Whose it is: of one priority clients take turns.
  std::optional<Instant> deadline{};  ///< Fails with kDeadlineExceeded after this.
  /// The client named no length: an answer may end where the memory of its device does. Where it
  /// named one, the request runs where that fits.
  bool open_ended = false;
  std::string cache_salt{};  ///< Only requests of the same salt share cached prefixes.
  std::string adapter{};     ///< Name of the model's LoRA adapter that it asks; empty: none.
  RequestTimes times{};
  std::int32_t restarts = 0;          ///< Workers that died under it.
  std::optional<DeviceId> device{};   ///< Where it was dispatched last.
  std::vector<Incident> incidents{};  ///< In order.
  /// Of the prompt, what a cached prefix spared every choice; known with their first tokens.
  std::optional<std::int64_t> cached_tokens{};
};

/// One generated token. Positions count from 0 per choice; a duplicate after a resume is dropped by
/// whoever owns the record, before anybody else sees it.
struct TokenEvent {
  RequestId request{};
  std::uint32_t choice = 0;
  std::int64_t position = 0;
  TokenId token = 0;
  spec::FinishReason finish = spec::FinishReason::kNone;
  spec::TokenDetails details{};
  Duration preempted{};  ///< Since its KV was given up for others', if that was after the last one.
};

/// What a front knows of a configured model.
struct ServedModel {
  std::uint64_t image_bytes = 0;   ///< 0 where an external engine serves it.
  std::optional<Error> failure{};  ///< Why requests for it fail.
};

/// Where a request's events go; one per request, called on the loop thread only.
class RequestSink {
 public:
  virtual ~RequestSink() = default;
  /// New tokens of one step, in order, already appended to the record.
  virtual void on_tokens(const std::vector<TokenEvent>& tokens) = 0;
  /// The request waits for its model: `loaded` of `total` bytes are in place.
  virtual void on_loading(std::uint64_t loaded, std::uint64_t total) = 0;
  /// All choices have finished; nothing follows.
  virtual void on_done() = 0;
  /// The request failed; nothing follows.
  virtual void on_error(const Error& error) = 0;
};

/// A request that an external engine answers. The exchange itself is the gateway's; the
/// rest of the system knows when it may be forwarded and that it has not ended.
struct ExternalRequest {
  RequestId id{};
  ModelId model{};
  std::int32_t priority = 0;          ///< Lower goes first.
  std::optional<Instant> deadline{};  ///< Fails with kDeadlineExceeded after this.
  RequestTimes times{};
  std::int32_t restarts = 0;          ///< Engines that died under it.
  std::vector<Incident> incidents{};  ///< In order.
  Instant heard{};                    ///< When it was forwarded, or its engine last sent a byte.
  std::optional<DeviceId> device{};   ///< Of the engine it was forwarded to last.
  std::int64_t prompt_tokens = 0;     ///< As its answer says; 0 where it says none.
  std::int64_t answer_tokens = 0;     ///< Likewise.
};

/// How an external engine that runs is reached.
struct EngineRoute {
  ModelId model{};
  HostId host{};                         ///< That it runs on.
  std::optional<HttpAddress> address{};  ///< Nothing: a link to that host carries connections.
  friend bool operator==(const EngineRoute&, const EngineRoute&) = default;
};

/// Where the news of an external request go; called on the loop thread only, also from within calls
/// to Serving, which they do not call back.
class ExternalSink {
 public:
  virtual ~ExternalSink() = default;
  /// It waits for its engine, which was started or resumed `since` ago.
  virtual void on_waiting(Duration since) = 0;
  /// The engine runs: forward the request now. Called again after retry_external() or on_lost().
  virtual void on_ready(const EngineRoute& route) = 0;
  /// The engine has died with the request. on_ready follows unless the exchange was finished.
  virtual void on_lost(const Error& error) = 0;
  /// The request failed; nothing follows.
  virtual void on_error(const Error& error) = 0;
};

/// The life of a (device, model) pair. DESIGN's `absent → loading → warm → serving → draining`.
enum class Residency : std::uint8_t { kAbsent, kLoading, kWarm, kServing, kDraining };

/// Why a model was loaded.
enum class LoadReason : std::uint8_t {
  kRequest,   ///< A request waited for it.
  kOperator,  ///< Somebody asked for the load itself.
  kForecast,  ///< It was expected to be asked for.
  kLoad,      ///< It had more load than the devices should bear that it was on.
  kPressure,  ///< There was more memory to spare for its KV.
  kLeave,     ///< Another host that has it is to go.
  kGather,    ///< It ran in stages on several devices.
};
inline constexpr std::size_t kLoadReasons = 7;

/// What a model's first request found, after none was there.
enum class StartKind : std::uint8_t {
  kWarm,    ///< It was resident, and had been used since it came.
  kHit,     ///< It was resident: it had been prewarmed.
  kAttach,  ///< It was on its way.
  kMiss,    ///< It was nowhere, or not to be had.
};
inline constexpr std::size_t kStartKinds = 4;

/// Why a model was taken off a device. The death of a worker is no eviction.
enum class EvictionReason : std::uint8_t {
  kDisplaced,  ///< Another model was loaded in its place.
  kOutgrown,   ///< The requests of another model needed its pages.
  kIdle,       ///< Its time to live passed without a request.
  kOperator,   ///< Somebody asked for it.
  kRemoved,    ///< The configuration no longer has it.
  kCramped,    ///< A request of its own needs a device with more memory.
  kFailed,     ///< Its load failed.
  kMoved,      ///< It is on another device instead.
  kLeave,      ///< Its host is to go.
  kTurn,       ///< It had its turn, and goes on with its requests in its next.
};
inline constexpr std::size_t kEvictionReasons = 10;

/// As in metric labels: "request", "displaced".
[[nodiscard]] std::string_view name(LoadReason reason);
[[nodiscard]] std::string_view name(EvictionReason reason);
[[nodiscard]] std::string_view name(StartKind kind);

/// How much a model is asked for, and expected to be; in requests in the system.
struct DemandStatus {
  double expected_mean = 0;  ///< In the present window.
  double expected_peak = 0;
  /// Of such forecasts lately, relative; nullopt: there is nothing to judge them by.
  std::optional<double> error{};
  std::array<std::uint64_t, kStartKinds> starts{};  ///< Indexed by StartKind.
  std::uint64_t wasted_bytes = 0;  ///< Loaded by forecast, and evicted before anybody asked.
};

/// A decision as it was made, with the names of that time: what it is about may be gone since.
struct NotedDecision {
  Instant at{};
  DecisionKind kind = DecisionKind::kLoad;
  std::string model{};
  std::string device{};     ///< Empty where it concerns none.
  std::string for_model{};  ///< Who needs the room; empty: nobody.
  std::string why{};
  std::optional<Duration> first_token{};      ///< As Decision has it.
  std::optional<Duration> first_token_was{};  ///< What that took, once its request has ended.
};

/// In place of FetchStatus::kind, in metrics, of what came from other hosts' caches.
inline constexpr std::string_view kPeerSource = "peer";

/// What a host fetches of a model, or has fetched since it started.
struct FetchStatus {
  std::string model{};
  std::string from{};               ///< Its source, without credentials.
  std::string kind{};               ///< As in metric labels: "hub", "s3", "http".
  bool active = false;              ///< It is being fetched. The next three are of that.
  std::uint64_t bytes = 0;          ///< That are there, of the files that it lacked.
  std::uint64_t total_bytes = 0;    ///< Of these files.
  double bytes_per_second = 0;      ///< Of late.
  std::uint64_t fetched_bytes = 0;  ///< All that has come over the network.
  std::uint64_t peer_bytes = 0;     ///< Of these, what came from other hosts' caches.
  friend bool operator==(const FetchStatus&, const FetchStatus&) = default;
};

/// A model as listings and metrics show it. Reading it wakes nothing.
struct ModelStatus {
  ModelId id{};
  std::string name{};
  Residency residency = Residency::kAbsent;  ///< The furthest along of all devices.
  std::optional<DeviceId> device{};          ///< Where that is.
  std::vector<DeviceId> peers{};             ///< With that, if it is on several: by rank, from 1.
  bool host_cached = false;                  ///< Its image is complete in the host cache.
  std::uint64_t image_bytes = 0;
  std::uint64_t loaded_bytes = 0;
  std::int64_t kv_pages = 0;
  std::int64_t requests_running = 0;
  std::int64_t requests_waiting = 0;
  bool external = false;  ///< An external engine serves it; Serving::engines has more.
  std::array<std::uint64_t, kLoadReasons> loads{};          ///< Indexed by LoadReason.
  std::array<std::uint64_t, kEvictionReasons> evictions{};  ///< Indexed by EvictionReason.
  std::uint64_t recalled = 0;  ///< Requests called back from where they waited for memory.
  /// Tokens of requests that went on from the model's stages to the whole of it: whose KV moved
  /// there, and that were computed again.
  std::uint64_t kv_moved_tokens = 0;
  std::uint64_t kv_again_tokens = 0;
  std::uint64_t step_backs = 0;     ///< Of its groups, which ended while their shards stayed.
  policy::Objectives objectives{};  ///< Of the requests that come now.
  DemandStatus demand{};
  Instant last_used{};
  std::optional<Error> failure{};  ///< Why the last load failed; cleared by a success.
  /// Of one that some host fetches or has fetched, of all hosts together.
  std::optional<FetchStatus> fetch{};
};

/// Where an external engine is in its life.
enum class EngineState : std::uint8_t {
  kStopped,
  kStarting,
  kRunning,
  kSuspending,
  kSuspended,
  kResuming,
  kStopping,
};
inline constexpr std::size_t kEngineStates = 7;
/// As in listings: "suspended".
[[nodiscard]] std::string_view name(EngineState state);

/// What one way of suspending an engine was measured to cost; means over its last uses.
struct SuspendCost {
  std::uint64_t times = 0;
  Duration out{};                  ///< To suspend it so.
  Duration in{};                   ///< To resume it from there; of kStop: to start it anew.
  std::int64_t held_pages = 0;     ///< That it went on holding of its device, the last time.
  std::int64_t host_pages = 0;     ///< That it took of host memory, the last time.
  std::uint64_t insufficient = 0;  ///< It freed too little, and the next level was taken.
  std::uint64_t failures = 0;
  friend bool operator==(const SuspendCost&, const SuspendCost&) = default;
};

/// An external engine, as listings and metrics show it.
struct EngineStatus {
  ModelId model{};
  DeviceId device{};
  EngineState state = EngineState::kStopped;
  std::optional<spec::SuspendLevel> level{};  ///< While kSuspended, or on the way there or back.
  Instant since{};                            ///< Of the state.
  std::int64_t reserved_pages = 0;            ///< Of each of its devices.
  std::int64_t held_pages = 0;                ///< Of each of its devices, measured.
  std::int64_t host_pages = 0;
  std::uint64_t starts = 0;
  std::uint64_t deaths = 0;                               ///< Not asked for.
  std::uint64_t hung = 0;                                 ///< Of these, ended for hanging.
  std::array<SuspendCost, spec::kSuspendLevels> costs{};  ///< Indexed by SuspendLevel.
  std::string trouble{};            ///< The last escalation or failure, for people; empty: none.
  std::int64_t kv_limit_pages = 0;  ///< Of an elastic engine that runs: what its KV may have,
  std::int64_t kv_used_pages = 0;   ///< and has, of `reserved_pages`.
  std::vector<DeviceId> further{};  ///< Devices that it is on beside `device`.
};

/// How well the prefix cache of a device does for a model, since its worker started.
struct PrefixCounts {
  ModelId model{};
  std::uint64_t queried_tokens = 0;  ///< Of sequences that sought a prefix.
  std::uint64_t hit_tokens = 0;      ///< Of these, what was found,
  std::uint64_t host_tokens = 0;     ///< and of that, what was there because the host kept it.
  friend bool operator==(const PrefixCounts&, const PrefixCounts&) = default;
};

/// KV that a device has let go of and its host keeps (memory::KvStore), since its worker started.
struct KvStoreCounts {
  std::int64_t pages = 0;             ///< There are.
  std::int64_t held = 0;              ///< Of these, those with KV.
  std::uint64_t kept_pages = 0;       ///< That came whole, for others of the device's.
  std::uint64_t kept_blocks = 0;      ///< Blocks that were copied.
  std::uint64_t returned_pages = 0;   ///< That went back to the device.
  std::uint64_t displaced_pages = 0;  ///< Given up for others.
  std::uint64_t declined_tokens = 0;  ///< Found, and computed again as that was quicker.
  friend bool operator==(const KvStoreCounts&, const KvStoreCounts&) = default;
};

/// A LoRA adapter whose weights are on a device, beside those of its model.
struct AdapterStatus {
  ModelId model{};
  std::string name{};
  std::int64_t pages = 0;      ///< Of the lease of its model's KV, or of cached prefixes.
  std::int64_t sequences = 0;  ///< That have begun with it; 0: it goes where memory is wanted.
  std::uint64_t loads = 0;     ///< Times that it came, since its model did.
  friend bool operator==(const AdapterStatus&, const AdapterStatus&) = default;
};

/// The experts of a model of which a device has a part in its memory, the others being with the
/// host. What is counted is since its worker started.
struct ExpertStatus {
  ModelId model{};
  std::int64_t experts = 0;         ///< Of all layers.
  std::int64_t resident = 0;        ///< Of them, those that are there; 0 while the model is not.
  std::uint64_t hits = 0;           ///< Times that a layer took one that was there,
  std::uint64_t misses = 0;         ///< and one that had to be fetched.
  std::uint64_t fetched_bytes = 0;  ///< Of those.
  friend bool operator==(const ExpertStatus&, const ExpertStatus&) = default;
};

/// A model on a device, or the part of it that is there.
struct ResidentStatus {
  std::string model{};
  Residency residency = Residency::kLoading;
  bool external = false;           ///< An external engine.
  bool staged = false;             ///< A shard whose group is not formed.
  std::int64_t weights_pages = 0;  ///< Of such an engine: all it holds.
  std::int64_t kv_pages = 0;       ///< As its worker last said.
  std::int64_t requests_running = 0;
};

/// Pages that a device lends to KV of a model on another (WEAVER).
struct GuestStatus {
  std::string model{};
  DeviceId hot{};             ///< Where the model runs.
  std::int64_t pages = 0;     ///< Lent.
  std::int64_t in_use = 0;    ///< Of them, those that hold KV, as the hot worker last said.
  std::int64_t recalled = 0;  ///< On their way back.
};

struct DeviceStatus {
  DeviceId id{};
  std::string name{};
  bool up = false;
  WorkerEpoch epoch{};
  std::uint64_t restarts = 0;
  std::uint64_t page_bytes = 0;
  ledger::PoolUsage usage{};                ///< Pages by lease kind.
  std::vector<ResidentStatus> residents{};  ///< By model id.
  std::vector<GuestStatus> guests{};        ///< By model id.
  std::vector<PrefixCounts> prefixes{};
  std::vector<AdapterStatus> adapters{};
  std::vector<ExpertStatus> experts{};
  ledger::DropCounts dropped_pages{};   ///< Of cached prefixes, since its worker started.
  std::uint64_t steps = 0;              ///< Of its engine, since its worker started.
  std::uint64_t late_steps = 0;         ///< Of these, those that took longer than its pace allows.
  std::uint64_t slow_steps = 0;         ///< Of these, those that took 1.2 times as long, or longer.
  std::uint64_t overrun_steps = 0;      ///< Of these, those that were not woken late.
  std::uint64_t copied_bytes = 0;       ///< Of images, since its worker started.
  std::uint64_t peer_load_bytes = 0;    ///< Of these, over other GPUs' links to the host.
  std::uint64_t peer_assist_bytes = 0;  ///< Over its own link, for other GPUs.
  std::uint64_t kept_bytes = 0;         ///< Of images, mapped for models that are not there now.
  Duration guest_busy{};  ///< Attention over guests of other devices, since its worker started.
  Duration guest_wait{};  ///< Waiting for attention over its own guests elsewhere.
  std::uint64_t guest_layers = 0;        ///< Layers of those that were answered,
  std::uint64_t guest_layers_alone = 0;  ///< and that were not, and were computed here.
  /// Of a GPU: what processes hold of it that are not ours, as its driver says; nothing where it
  /// does not.
  std::optional<std::uint64_t> others_bytes{};
  KvStoreCounts kv_store{};
  std::string trouble{};        ///< What is wrong with its worker now; empty: nothing.
  std::uint64_t suspected = 0;  ///< Times that its worker was suspected of hanging.
  /// Times that its worker was ended for hanging; indexed by policy::HangReason.
  std::array<std::uint64_t, policy::kHangReasons> hung{};
  /// While there were requests for models of this device: how long some of them ran, and how long
  /// none did because models were being brought in or taken out.
  Duration serving{};
  Duration switching{};
};

/// How a host stands to its manager.
enum class HostPresence : std::uint8_t {
  kAway,     ///< They are not linked.
  kHere,     ///< It takes requests.
  kLeaving,  ///< It is to go: nothing more comes there, and what it has goes elsewhere.
};
/// As answers of the server have it: "here".
[[nodiscard]] std::string_view name(HostPresence presence);

/// A host, as listings show it.
struct HostEntry {
  HostId id{};
  std::string name{};
  std::string address{};  ///< Where it takes links; empty where this is no cluster.
  HostPresence presence = HostPresence::kAway;
  Instant since{};        ///< That it has been here, or away.
  std::string build{};    ///< The version of its program, as it last said; as the next.
  std::string isa{};      ///< What its processor offers.
  std::string trouble{};  ///< Why it is away.
};

/// What there is to see of a system; reading it wakes nothing. Loop thread.
class ServingStatus {
 public:
  virtual ~ServingStatus() = default;

  [[nodiscard]] virtual std::vector<ModelStatus> models() const = 0;
  [[nodiscard]] virtual std::vector<DeviceStatus> devices() const = 0;
  [[nodiscard]] virtual ledger::PoolUsage host_usage() const = 0;
  /// The external engines, by model.
  [[nodiscard]] virtual std::vector<EngineStatus> engines() const = 0;
  /// The latest decisions, oldest first.
  [[nodiscard]] virtual std::vector<NotedDecision> decisions() const = 0;
  /// What is wrong now, for people, a sentence each: why this is not ready to serve all.
  [[nodiscard]] virtual std::vector<std::string> troubles() const = 0;
};

/// What a gateway asks for its requests; single-threaded, on the loop thread. serving::Front does
/// it.
class RequestServing {
 public:
  virtual ~RequestServing() = default;

  /// Runs `record` to its end. Events come to `sink`, never from within this call, until on_done,
  /// on_error or cancel(). Both live until then.
  virtual void start(std::shared_ptr<RequestRecord> record, std::shared_ptr<RequestSink> sink) = 0;
  /// One choice needs no more tokens (a stop string was found): `reason` becomes its finish.
  virtual void finish_choice(RequestId request,
                             std::uint32_t choice,
                             spec::FinishReason reason) = 0;
  /// Nobody wants the answer any more. Its sink hears nothing after this call.
  virtual void cancel(RequestId request) = 0;

  /// Has `request` forwarded to its engine when that runs. News come to `sink`, the first of them
  /// perhaps from within this call, until finish_external(), on_error or cancel().
  virtual void start_external(std::shared_ptr<ExternalRequest> request,
                              std::shared_ptr<ExternalSink> sink) = 0;
  /// The exchange with the engine has ended, well or not. Its sink hears nothing more.
  virtual void finish_external(RequestId request) = 0;
  /// The engine did not take the request, and its client has had nothing of an answer: forward it
  /// again as soon as the engine is known to run. Fails it when that has happened too often, not
  /// counting when the engine's host could not be reached (`cut`).
  virtual void retry_external(RequestId request, bool cut) = 0;
};

/// What a gateway asks of the system behind it; single-threaded, on the loop thread. The one
/// implementation behind `heddle serve` is manager::Manager; tests have fakes.
class Serving : public ServingStatus, public RequestServing {
 public:
  /// Makes the model resident, evicting others as for a request. `done` is called once.
  virtual void load(ModelId model, std::function<void(Result<void>)> done) = 0;
  /// Lets the model's running requests end, then evicts it everywhere. `done` is called once.
  virtual void unload(ModelId model,
                      EvictionReason why,
                      std::function<void(Result<void>)> done) = 0;

  /// The hosts, by id; one, where this is no cluster.
  [[nodiscard]] virtual std::vector<HostEntry> hosts() const = 0;
  /// Has a host that is to go lose what it has to others, or take requests again; `done` is called
  /// once it knows, and hosts() shows how far that is. kFailedPrecondition where there is no other,
  /// or it is away; kUnavailable where no manager is there to decide.
  virtual void leave(HostId host, bool leaving, std::function<void(Result<void>)> done) = 0;
  /// Has the whole cluster take over models and how they are placed from this configuration, in
  /// YAML, for ever; or only says whether it could. `done` is called once: kInvalidArgument, with a
  /// line for each problem, changes nothing.
  virtual void apply(std::string configuration,
                     bool dry_run,
                     std::function<void(Result<void>)> done) = 0;
};

}  // namespace heddle::core
